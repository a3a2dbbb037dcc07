//! Programs that are started: whether they are installed, and which package has them.

use std::{
    env,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A program is not on this machine. Its text says what to do.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct MissingProgram(String);

/// Programs of built-in workloads and usual probes, and the Debian packages that bring them.
pub(crate) const KNOWN: [(&str, &str); 9] = [
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("redis-cli", "redis-tools"),
    ("nginx", "nginx-light"),
    ("wrk", "wrk"),
    ("iperf3", "iperf3"),
    ("openssl", "openssl"),
    ("go", "golang-go"),
    ("bpftrace", "bpftrace"),
];

/// Folders that a plain `su` leaves out of PATH, where Debian keeps servers.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Where a program lies: what a shell would start, or a system administrator's shell.
pub(crate) fn find(program: &str) -> Result<PathBuf, MissingProgram> {
    let there = |path: &Path| {
        path.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let path = PathBuf::from(program);
        return if there(&path) {
            Ok(path)
        } else {
            Err(MissingProgram(format!(
                "there is no program {program}\n  Check that the path is right and the file is \
                 executable"
            )))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(SYSTEM.map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(program));
    files.find(|file| there(file)).ok_or_else(|| {
        let advice = match KNOWN.iter().find(|(name, _)| *name == program) {
            Some((_, package)) => format!(
                "Install it: apt-get install --no-install-recommends {package} (or all that workloads need: \
                 scripts/setup.sh run)"
            ),
            None => "Check its name, or give its path if it is not in PATH".to_owned(),
        };
        MissingProgram(format!("{program} is not installed here\n  {advice}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_its_package() {
        assert!(find("sh").expect("every system has one").ends_with("sh"));
        let said = find("no-such-program").expect_err("none").to_string();
        assert!(said.contains("no-such-program is not installed"), "{said}");
        let said = find("/etc/passwd").expect_err("no program").to_string();
        assert!(said.contains("is executable"), "{said}");
    }
}
