//! A Debian archive: packages, lists, and a signature by a key that is made for it.

use std::{fs, path::PathBuf, process::Command};

use super::lab::{Lab, image, module, ran};
use crate::require;

/// An archive in the lab's folder, and the lab's system configured with it.
pub(crate) struct Archive<'a> {
    lab: &'a Lab,
    /// Debian's name of the architecture of its packages.
    pub(crate) arch: String,
    /// Fields of the descriptions of its suites besides the usual ones.
    pub(crate) fields: String,
    /// Stanzas of its list of packages.
    packages: Vec<String>,
}

impl<'a> Archive<'a> {
    /// An empty one; `None`, with the reason, where the tools to make one are missing.
    pub(crate) fn new(lab: &'a Lab) -> Option<Self> {
        for tool in ["gpg", "gpgconf", "dpkg-deb", "depmod", "xz", "sha256sum"] {
            let found = Command::new("sh")
                .arg("-c")
                .arg(format!("PATH=$PATH:/sbin:/usr/sbin command -v {tool}"))
                .output();
            if !found.is_ok_and(|found| found.status.success()) {
                require::skip(format!(
                    "{tool} is missing; scripts/setup.sh test installs it"
                ));
                return None;
            }
        }
        let arch = ran(Command::new("dpkg").arg("--print-architecture"));
        let archive = Archive {
            lab,
            arch: String::from_utf8(arch).expect("UTF-8").trim().to_owned(),
            fields: String::new(),
            packages: Vec::new(),
        };
        lab.mirror(&format!("file:{}", archive.path("").display()));
        let ring = archive.key("Archive");
        lab.write("system/usr/share/keyrings/debian-archive-keyring.gpg", ring);
        Some(archive)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.lab.tool.path("archive").join(name)
    }

    fn gpg(&self, arguments: &[&str]) -> Vec<u8> {
        let home = self.lab.tool.path("gpg");
        fs::create_dir_all(&home).expect("a folder");
        ran(Command::new("chmod").arg("700").arg(&home));
        let output = ran(Command::new("gpg")
            .args([
                "--quiet",
                "--batch",
                "--yes",
                "--pinentry-mode",
                "loopback",
                "--passphrase",
                "",
                "--homedir",
            ])
            .arg(&home)
            .args(arguments));
        // Its agent would stay.
        ran(Command::new("gpgconf")
            .arg("--homedir")
            .arg(&home)
            .args(["--kill", "all"]));
        output
    }

    /// Makes a key; gives its public half. The newest signs.
    pub(crate) fn key(&self, name: &str) -> Vec<u8> {
        let address = format!("{name}@example.invalid");
        self.gpg(&["--quick-generate-key", &address, "ed25519", "sign", "never"]);
        self.lab.write("gpg/newest", &address);
        self.gpg(&["--export", &address])
    }

    /// Adds a package with these files.
    pub(crate) fn package(
        &mut self,
        name: &str,
        version: &str,
        depends: &str,
        files: &[(String, Vec<u8>)],
    ) {
        let tree = format!("build/{name}");
        let arch = &self.arch;
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: Nobody <nobody@example.invalid>\n\
             Depends: {depends}\nDescription: made for a test\n"
        );
        let control = control.replace("Depends: \n", "");
        self.lab.write(&format!("{tree}/DEBIAN/control"), &control);
        for (path, bytes) in files {
            self.lab.write(&format!("{tree}/{path}"), bytes);
        }
        let file = format!("pool/{name}_{version}.deb");
        fs::create_dir_all(self.path("pool")).expect("a folder");
        ran(Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zxz", "--build"])
            .arg(self.lab.tool.path(&tree))
            .arg(self.path(&file)));
        fs::remove_dir_all(self.lab.tool.path(&tree)).expect("a folder");
        let (hash, size) = self.measured(&file);
        self.packages.push(format!(
            "{control}Filename: {file}\nSize: {size}\nSHA256: {hash}\n"
        ));
    }

    /// A kernel in the packaging of Linux up to 6, and the package that leads to it.
    pub(crate) fn kernel(&mut self, release: &str, version: &str) {
        let name = format!("linux-image-{release}");
        let files = [
            (format!("boot/vmlinuz-{release}"), image(release)),
            (format!("lib/modules/{release}/modules.order"), vec![]),
            (format!("lib/modules/{release}/modules.builtin"), vec![]),
            (
                format!("lib/modules/{release}/kernel/drivers/net/veth.ko"),
                module("slow,in-the-image"),
            ),
            // What a kept one needs, and what that needs, in folders that are not kept.
            (
                format!("lib/modules/{release}/kernel/drivers/slow.ko"),
                module("very-slow"),
            ),
            (
                format!("lib/modules/{release}/kernel/sound/very-slow.ko"),
                module(""),
            ),
            (
                format!("lib/modules/{release}/kernel/sound/snd.ko"),
                module(""),
            ),
        ];
        self.package(&name, version, "kmod, linux-base (>= 4.3~)", &files);
        self.leads_to(&name, version);
    }

    /// `linux-image-ARCH`, depending on a package.
    pub(crate) fn leads_to(&mut self, name: &str, version: &str) {
        let leading = format!("linux-image-{}", self.arch);
        self.packages
            .retain(|stanza| !stanza.starts_with(&format!("Package: {leading}\n")));
        self.package(&leading, version, &format!("{name} (= {version})"), &[]);
    }

    /// Takes a package out of the lists.
    pub(crate) fn forget(&mut self, name: &str) {
        self.packages
            .retain(|stanza| !stanza.contains(&format!("Package: {name}\n")));
    }

    /// Writes the lists of a suite and signs them.
    pub(crate) fn publish(&self, suite: &str) {
        self.release(suite);
        let key = fs::read_to_string(self.lab.tool.path("gpg/newest")).expect("a key");
        let folder = self.path(&format!("dists/{suite}"));
        let (clear, signed) = (folder.join("Release"), folder.join("InRelease"));
        let (clear, signed) = (clear.display().to_string(), signed.display().to_string());
        self.gpg(&[
            "--local-user",
            &key,
            "--output",
            &signed,
            "--clearsign",
            &clear,
        ]);
    }

    /// Writes the lists of a suite, without a signature.
    pub(crate) fn release(&self, suite: &str) {
        let folder = format!("archive/dists/{suite}");
        let list = format!("main/binary-{}/Packages.xz", self.arch);
        self.unsigned_change(suite);
        let (hash, size) = self.measured(&format!("dists/{suite}/{list}"));
        let release = format!(
            "Origin: Debian\nSuite: {suite}\nCodename: {suite}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n\
             {}Architectures: {}\nComponents: main\nSHA256:\n {hash} {size} {list}\n",
            self.fields, self.arch
        );
        self.lab.write(&format!("{folder}/Release"), release);
    }

    /// Changes the list of packages of a suite, and leaves what was signed.
    pub(crate) fn unsigned_change(&self, suite: &str) {
        let list = format!("archive/dists/{suite}/main/binary-{}/Packages", self.arch);
        let path = self.lab.write(&list, self.packages.join("\n"));
        ran(Command::new("xz").arg("--force").arg(path));
    }

    /// Cuts a package.
    pub(crate) fn truncate(&self, file: &str) {
        let path = self.path(&format!("pool/{file}"));
        let bytes = fs::read(&path).expect("a package");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("a package");
    }

    /// The file of a package.
    pub(crate) fn file(&self, file: &str) -> PathBuf {
        self.path(&format!("pool/{file}"))
    }

    /// Puts what was signed for one suite in the place of another, with more text.
    pub(crate) fn replay(&self, from: &str, to: &str, more: &str) {
        let signed = |suite: &str| self.path(&format!("dists/{suite}/InRelease"));
        let text = fs::read_to_string(signed(from)).expect("a suite");
        fs::write(signed(to), text + more).expect("a suite");
    }

    /// Changes the last byte of a package.
    pub(crate) fn tamper(&self, file: &str) {
        let path = self.path(&format!("pool/{file}"));
        let mut bytes = fs::read(&path).expect("a package");
        *bytes.last_mut().expect("a byte") ^= 1;
        fs::write(&path, bytes).expect("a package");
    }

    /// SHA-256 and size of a file.
    fn measured(&self, file: &str) -> (String, u64) {
        let path = self.path(file);
        let sum = String::from_utf8(ran(Command::new("sha256sum").arg(&path))).expect("UTF-8");
        let size = fs::metadata(&path).expect("a file").len();
        (sum.split(' ').next().unwrap_or_default().to_owned(), size)
    }
}
