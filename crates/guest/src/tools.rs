//! The one program that guests need: QEMU.

use std::{env, ffi::OsStr, path::PathBuf, process::Command};

use super::GuestError;
use bpfcost_process::program::{QEMU, installing};

/// QEMU, and what records say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// QEMU.
    pub qemu: PathBuf,
    /// QEMU's version, e.g. `7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`.
    pub qemu_version: String,
}

impl Tools {
    /// Finds QEMU on this machine.
    pub fn find() -> Result<Tools, GuestError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let qemu = on_path(QEMU.name, &path).ok_or_else(|| {
            GuestError::Lacking(format!(
                "guests need {}, which is not installed\n  Install it: scripts/setup.sh run, or {}",
                QEMU.name,
                installing([QEMU.package])
            ))
        })?;
        let output = Command::new(&qemu)
            .arg("--version")
            .output()
            .map_err(GuestError::io(format!("{} --version", qemu.display())))?;
        Ok(Tools {
            qemu_version: version(&String::from_utf8_lossy(&output.stdout)),
            qemu,
        })
    }
}

/// The version in what `qemu --version` says; all of its first line where that has none.
fn version(output: &str) -> String {
    let first = output.lines().next().unwrap_or_default();
    let version = first.split_once("version ").map_or(first, |(_, rest)| rest);
    version.trim().to_owned()
}

fn on_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_told_with_its_build() {
        let said = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright (c)\n";
        assert_eq!(version(said), "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)");
        assert_eq!(version("something else\n"), "something else");
        assert_eq!(version(""), "");
    }
}
