//! Readers of bytes that anyone may have made, for fuzzers: none may panic or run for ever.

use std::io::{self, Read as _};

use super::{
    Observer,
    deb::{self, Stop},
    openpgp::{Keyring, signed_text},
};

/// A moment at which the embedded keys are valid.
const NOW: u64 = 1_795_300_000;

/// A signed message, or a keyring.
pub fn openpgp(bytes: &[u8]) {
    let embedded = Keyring::embedded(NOW);
    let _ = signed_text(bytes, &embedded, NOW);
    if let Ok(keyring) = Keyring::parse(bytes, NOW) {
        let _ = signed_text(bytes, &keyring, NOW);
    }
}

/// A package: all its files are read, up to a megabyte together.
pub fn deb(bytes: &[u8]) {
    let mut left = 1 << 20;
    let _ = deb::read(bytes, &Silent, &mut |path, contents| {
        assert!(path.is_relative(), "it stays in its folder");
        let read = io::copy(&mut contents.take(left), &mut io::sink()).unwrap_or(left);
        left -= read;
        if left == 0 {
            return Err(Stop::Damaged("large".to_owned()));
        }
        Ok(())
    });
}

struct Silent;

impl Observer for Silent {
    fn progress(&self, _: f64) {}

    fn interrupted(&self) -> bool {
        false
    }
}
