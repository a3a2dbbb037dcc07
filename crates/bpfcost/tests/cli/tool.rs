//! The binary with its own home, and its output.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// Two of the cheapest cases, without a comparison between them.
pub(crate) const QUICK: &str = "run xdp-lb --quick --seed 7 --case pass-non-ip --case drop-v4-frag";

/// The state folder, in the tool's home.
pub(crate) const STATE: &str = ".state";

/// The binary in an empty folder that is its home and where it runs.
pub(crate) struct Tool {
    home: TempDir,
}

/// Output of a call, and its exit code.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Tool {
    pub(crate) fn new() -> Self {
        Tool {
            home: TempDir::new().expect("a temporary folder"),
        }
    }

    /// Path of a file of that name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).expect("a temporary file");
    }

    /// The names in the folder, sorted; hidden ones too.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home.path()).expect("the folder");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("UTF-8")
            })
            .filter(|name| name != STATE)
            .collect();
        names.sort();
        names
    }

    /// The command line, split at spaces.
    pub(crate) fn command(&self, line: &str) -> Command {
        self.wrapped(env!("CARGO_BIN_EXE_bpfcost"), line)
    }

    /// A shell command in that folder, in which `$BPFCOST` is the binary.
    pub(crate) fn shell(&self, script: &str) -> Said {
        let mut command = self.wrapped("sh", "");
        command
            .args(["-c", script])
            .env("BPFCOST", env!("CARGO_BIN_EXE_bpfcost"));
        said(&command.output().expect("sh runs"))
    }

    /// Another program in the same surroundings.
    pub(crate) fn wrapped(&self, program: impl AsRef<Path>, line: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .args(line.split_whitespace())
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env("XDG_STATE_HOME", self.home.path().join(STATE))
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("COLUMNS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The same command with this user's kernels and programs, what is known of KVM, and where go keeps its counters. Its
    /// temporary files go to `scratch`.
    pub(crate) fn with_caches(&self, mut command: Command) -> Command {
        let home = |name: &str, below: &str| {
            let set = env::var_os(name).map(PathBuf::from);
            let home = env::var_os("HOME").map(|home| Path::new(&home).join(below));
            set.filter(|path| path.is_absolute())
                .or(home)
                .unwrap_or_default()
        };
        let scratch = self.path("scratch");
        fs::create_dir_all(&scratch).expect("a folder");
        command
            .env("TMPDIR", scratch)
            .env("XDG_CACHE_HOME", home("XDG_CACHE_HOME", ".cache"))
            .env("XDG_CONFIG_HOME", home("XDG_CONFIG_HOME", ".config"));
        command
    }

    /// Runs it to its end.
    pub(crate) fn says(&self, line: &str) -> Said {
        said(&self.command(line).output().expect("the binary runs"))
    }

    /// The answer of a call, which must end well.
    pub(crate) fn answers(&self, line: &str) -> String {
        let said = self.says(line);
        assert_eq!(said.code, Some(0), "{line}: {said:?}");
        said.out
    }

    /// The complaint of a call: the exit code is `code`, nothing is on stdout, and stderr holds all of `words`.
    #[track_caller]
    pub(crate) fn refuses(&self, line: &str, code: i32, words: &[&str]) -> String {
        let said = self.says(line);
        assert_eq!(said.code, Some(code), "{line}: {said:?}");
        assert_eq!(said.out, "", "{line}");
        said.complains(words);
        said.err
    }
}

impl Said {
    /// Stderr holds an error with all of `words`, and no panic.
    #[track_caller]
    pub(crate) fn complains(&self, words: &[&str]) {
        assert!(self.err.contains("error: "), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no `{word}` in {}", self.err);
        }
    }
}

pub(crate) fn said(output: &Output) -> Said {
    Said {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
