//! Keys that archives of Debian are signed with: the system's own keyring file, or else those that are part of bpfcost.

use std::{fs, path::Path};

use super::{Error, openpgp::Keyring, time};

/// The places of the system's keyring in Debian 12 and before, and in 13 and later.
const FILES: [&str; 2] = [
    "usr/share/keyrings/debian-archive-keyring.gpg",
    "usr/share/keyrings/debian-archive-keyring.pgp",
];

/// Unchanged files of Debian's package debian-archive-keyring; `keys/README.md` says how to renew them.
const EMBEDDED: [&[u8]; 4] = [
    include_bytes!("../keys/debian-archive-bookworm-automatic.gpg"),
    include_bytes!("../keys/debian-archive-bookworm-stable.gpg"),
    include_bytes!("../keys/debian-archive-trixie-automatic.gpg"),
    include_bytes!("../keys/debian-archive-trixie-stable.gpg"),
];

impl Keyring {
    /// The keyring of a system: its file, or else the embedded keys.
    pub fn of_system(system: &Path) -> Result<Self, Error> {
        let now = time::now();
        let Some(path) = FILES
            .iter()
            .map(|file| system.join(file))
            .find(|path| path.is_file())
        else {
            return Ok(Self::embedded(now));
        };
        let bytes = fs::read(&path).map_err(super::error::failed("read", &path))?;
        Keyring::parse(&bytes, now).map_err(|why| Error::Untrusted {
            what: path.display().to_string(),
            why: why.to_owned(),
        })
    }

    /// Keys that are part of bpfcost. `now` is in seconds since 1970.
    pub(crate) fn embedded(now: u64) -> Self {
        let mut keyring = Keyring::default();
        for file in EMBEDDED {
            // A test reads them.
            if let Ok(keys) = Keyring::parse(file, now) {
                keyring.extend(keys);
            }
        }
        keyring
    }
}
