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

/// Runs a program that must succeed; gives its stdout.
#[track_caller]
pub(crate) fn ran(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}
