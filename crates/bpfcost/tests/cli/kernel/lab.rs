//! The binary with its own store and system.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::tool::{Said, Tool, said};

/// A home in which `cache` is the user's cache and `system` stands in for `/`.
pub(crate) struct Lab {
    pub(crate) tool: Tool,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let lab = Lab { tool: Tool::new() };
        lab.write(
            "system/etc/os-release",
            "ID=debian\nVERSION_CODENAME=bookworm\n",
        );
        lab
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.tool.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Has the system's packages come from there.
    pub(crate) fn mirror(&self, uri: &str) {
        self.write(
            "system/etc/apt/sources.list",
            format!("deb {uri} bookworm main\n"),
        );
    }

    /// Kernels there, by `kernel`'s own words.
    pub(crate) fn command(&self, line: &str) -> Command {
        self.run(&format!("kernel {line}"))
    }

    /// The binary with those kernels.
    pub(crate) fn run(&self, line: &str) -> Command {
        let mut command = self.tool.command(line);
        self.surround(&mut command);
        command
    }

    /// The same for a shell script, in which `$BPFCOST` is the binary.
    pub(crate) fn surround(&self, command: &mut Command) {
        command
            .env("XDG_CACHE_HOME", self.tool.path("cache"))
            .env("BPFCOST_SYSTEM_ROOT", self.tool.path("system"))
            .env("BPFCOST", env!("CARGO_BIN_EXE_bpfcost"))
            // A proxy would answer for hosts that are not there.
            .env("no_proxy", "127.0.0.1");
    }

    pub(crate) fn says(&self, line: &str) -> Said {
        said(&self.command(line).output().expect("the binary runs"))
    }

    #[track_caller]
    pub(crate) fn answers(&self, line: &str) -> Said {
        let said = self.says(line);
        assert_eq!(said.code, Some(0), "{line}: {said:?}");
        said
    }

    #[track_caller]
    pub(crate) fn refuses(&self, line: &str, code: i32, words: &[&str]) -> String {
        let said = self.says(line);
        assert_eq!(said.code, Some(code), "{line}: {said:?}");
        assert_eq!(said.out, "", "{line}");
        said.complains(words);
        said.err
    }

    /// Names in the store, staging folders included.
    pub(crate) fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.tool.path("cache/bpfcost/kernels"));
        let names = entries.into_iter().flatten().flatten();
        let mut names: Vec<String> = names
            .map(|entry| entry.file_name().into_string().expect("UTF-8"))
            .filter(|name| name != ".lock")
            .collect();
        names.sort();
        names
    }
}

/// The smallest file that is taken for a bzImage of that release.
pub(crate) fn image(release: &str) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    bytes[0x1f1] = 1;
    bytes[0x1fe..0x206].copy_from_slice(b"\x55\xaa\0\0HdrS");
    bytes[0x20e] = 0x80;
    let version = format!("{release} (somebody@example.invalid) #1 SMP\0");
    bytes[0x280..0x280 + version.len()].copy_from_slice(version.as_bytes());
    bytes
}

/// The smallest file that is taken for a kernel of arm64.
pub(crate) fn arm64_image(release: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0x38..0x3c].copy_from_slice(b"ARM\x64");
    bytes.extend(format!("Linux version {release} (somebody@example.invalid)\0").bytes());
    bytes
}

/// The smallest ELF file that is a module which needs others.
pub(crate) fn module(needs: &str) -> Vec<u8> {
    const NAMES: &[u8] = b"\0.modinfo\0.shstrtab\0";
    let info = format!("license=GPL\0depends={needs}\0name=x\0");
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(64, 0);
    file.extend(NAMES);
    let info_at = file.len();
    file.extend(info.as_bytes());
    file.resize(file.len().next_multiple_of(8), 0);
    let sections_at = file.len();
    for (name, kind, at, length) in [
        (0u32, 0u32, 0, 0),
        (1, 1, info_at, info.len()),
        (10, 3, 64, NAMES.len()),
    ] {
        let mut header = [name.to_le_bytes(), kind.to_le_bytes()].concat();
        for word in [0, 0, at as u64, length as u64] {
            header.extend(word.to_le_bytes());
        }
        header.resize(64, 0);
        file.extend(header);
    }
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &1u16.to_le_bytes()); // e_type: relocatable
    put(18, &62u16.to_le_bytes()); // e_machine: x86-64
    put(20, &1u32.to_le_bytes()); // e_version
    put(40, &(sections_at as u64).to_le_bytes()); // e_shoff
    put(52, &64u16.to_le_bytes()); // e_ehsize
    put(58, &64u16.to_le_bytes()); // e_shentsize
    put(60, &3u16.to_le_bytes()); // e_shnum
    put(62, &2u16.to_le_bytes()); // e_shstrndx
    file
}

/// Runs a program that must succeed; gives its stdout.
#[track_caller]
pub(crate) fn ran(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}
