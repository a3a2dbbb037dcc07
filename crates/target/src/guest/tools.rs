//! The programs that guests need: QEMU, virtme-ng's composer, a static busybox.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use super::GuestError;
use bpfcost_process::{
    program::{BUSYBOX, QEMU, installing},
    xdg::Folder,
};

/// The version of virtme-ng that `scripts/setup.sh` installs and the tests know.
const VIRTME_NG: &str = "1.42";

/// Programs by their paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools {
    /// QEMU.
    pub qemu: PathBuf,
    /// Its version, e.g. `7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`.
    pub qemu_version: String,
    /// virtme-ng's composer.
    pub virtme_run: PathBuf,
}

impl Tools {
    /// Those of this machine; a virtme-ng that `scripts/setup.sh` installed comes before one on `PATH`.
    pub fn find() -> Result<Tools, GuestError> {
        let path = env::var_os("PATH").unwrap_or_default();
        let installed = Folder::Data
            .of_user()
            .map(|data| data.join("virtme-ng/bin/virtme-run"));
        let qemu = on_path(QEMU.name, &path).ok_or_else(|| {
            GuestError::Lacking(format!(
                "guests need {}, which is not installed\n  Install it: scripts/setup.sh run, or {}",
                QEMU.name,
                installing([QEMU.package])
            ))
        })?;
        let virtme_run = installed
            .filter(|file| file.is_file())
            .or_else(|| on_path("virtme-run", &path))
            .ok_or_else(|| {
                GuestError::Lacking(format!(
                    "guests need virtme-run (of virtme-ng), which is not installed\n  Install it: \
                     scripts/setup.sh run, or pip install virtme-ng=={VIRTME_NG} and put its bin \
                     folder on PATH"
                ))
            })?;
        // virtme-ng looks for it in these folders, whatever PATH says.
        let busybox = ["/usr/local", "/usr", ""]
            .iter()
            .flat_map(|root| ["bin", "sbin"].map(|bin| format!("{root}/{bin}")))
            .flat_map(|folder| {
                ["busybox-static", "busybox"].map(|name| Path::new(&folder).join(name))
            })
            .any(|path| path.is_file());
        if !busybox && on_path(BUSYBOX.name, &path).is_none() {
            return Err(GuestError::Lacking(format!(
                "guests need busybox for their initramfs, and it is not installed\n  Install it: scripts/setup.sh \
                 run, or {}",
                installing([BUSYBOX.package])
            )));
        }
        let output = Command::new(&qemu)
            .arg("--version")
            .output()
            .map_err(GuestError::io(format!("{} --version", qemu.display())))?;
        Ok(Tools {
            qemu_version: version(&String::from_utf8_lossy(&output.stdout)),
            qemu,
            virtme_run,
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
