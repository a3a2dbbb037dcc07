//! Parsers of what the kernel and ELF files say, as functions of bytes, for fuzzing.

use crate::unwind::{KernelSymbols, rules_of_bytes};

pub use bpfcost_uprobe::fuzz::{elf, usdt};

/// `/proc/kallsyms`, and a symbol for an address that the list itself names.
pub fn kallsyms(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let symbols = KernelSymbols::parse(text.as_ref());
    for line in text.lines().take(64) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let address = words.first().map(|word| u64::from_str_radix(word, 16));
        let address = address.and_then(Result::ok).unwrap_or_default();
        let _ = symbols.symbol(address);
        let _ = symbols.symbol(address.wrapping_add(16));
        let name = words.get(2).copied().unwrap_or_default();
        let _ = symbols.address(name);
        let _ = symbols.functions_named(name).count();
    }
}

/// An ORC table: 10 bytes of layout (shift and bits of each field), 8 bytes of address, 8 bytes of text size, then
/// addresses (4 bytes each) and as many entries (6 bytes each).
pub fn orc(bytes: &[u8]) {
    let Some((fields, rest)) = bytes.split_first_chunk::<10>() else {
        return;
    };
    let Some((start, rest)) = rest.split_first_chunk::<8>() else {
        return;
    };
    let Some((size, rest)) = rest.split_first_chunk::<8>() else {
        return;
    };
    let start = u64::from_le_bytes(*start);
    // A kernel's text has an index with an entry per 256 bytes.
    let size = u64::from_le_bytes(*size) % (1 << 28);
    let fields = [0, 2, 4, 6, 8].map(|at| [fields[at], fields[at + 1]]);
    let (relative, entries) = rest.split_at(rest.len() / 10 * 4);
    let text = [start, start.saturating_add(size)];
    if let Some(Ok(table)) = rules_of_bytes(fields, text, relative, entries) {
        let _ = table.covers(start);
        let _ = table.covers(text[1]);
    }
}
