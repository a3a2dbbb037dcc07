//! Readers of bytes that anyone may have made, for fuzzers: none may panic or run for ever.

use std::io::{self, Read as _};

use super::{
    Observer,
    deb::{self, Stop},
    openpgp::{Keyring, signed_text},
};

/// A moment at which keys of seeds are valid: November 2026.
const NOW: u64 = 1_795_300_000;

/// The length of a keyring in two bytes, the keyring, and a message that one of its keys may have signed.
pub fn openpgp(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
    let (keys, message) = rest.split_at(length);
    let keyring = Keyring::parse(keys, NOW).unwrap_or_default();
    if let Ok(text) = signed_text(message, &keyring, NOW) {
        assert!(text.len() <= message.len(), "no more than there is");
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
