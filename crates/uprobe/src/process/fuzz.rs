//! The parsers of [`Image`] as functions of bytes.

use super::image::{Image, notes_are_whole};

/// `.note.stapsdt` of a file.
pub fn usdt(bytes: &[u8]) {
    let _ = notes_are_whole(bytes);
}

/// A whole file: its symbols, its USDT probes.
pub(crate) fn elf(bytes: &[u8]) {
    let Ok(image) = Image::of_bytes(bytes.to_vec()) else {
        return;
    };
    for name in ["main", "mian", ""] {
        if let Ok(function) = image.function(name) {
            let _ = image.function_around(function.address + 1);
        }
        let _ = image.usdt("demo", name);
    }
    for address in [0, image.first_address(), u64::MAX] {
        let _ = image.function_around(address);
        let _ = image.address(address);
    }
    let _ = image.go_function("main.main", 64, 16);
}
