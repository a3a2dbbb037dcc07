//! The code around a function in its file: which of it may lead into the function, and whether a compiler wrote that.

use super::span;
use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindSection as _};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use std::ops::Range;

/// Bytes that a short jump reaches, with its own.
const SHORT: u64 = 130;

/// Addresses in a function, behind its first, that calls and jumps of other code may lead to. All code is searched for
/// bytes that would be such an instruction, whether or not one begins there: too many are better than too few.
pub(super) fn entrances(file: &object::File<'_>, function: Range<u64>) -> Vec<u64> {
    let mut found = short_entrances(file, &function);
    for section in file
        .sections()
        .filter(|one| one.kind() == SectionKind::Text)
    {
        let Ok(bytes) = section.data() else { continue };
        for index in 1..bytes.len().saturating_sub(4) {
            // CALL, JMP, and the second byte of Jcc.
            let is_branch = matches!(bytes[index], 0xe8 | 0xe9)
                || (bytes[index] & 0xf0 == 0x80 && bytes[index - 1] == 0x0f);
            let from = section.address().wrapping_add(index as u64);
            if !is_branch || function.contains(&from) {
                continue;
            }
            let distance = bytes[index + 1..index + 5].try_into().expect("4 bytes");
            let target = from
                .wrapping_add(5)
                .wrapping_add_signed(i64::from(i32::from_le_bytes(distance)));
            if target > function.start && target < function.end {
                found.push(target);
            }
        }
    }
    found
}

/// Those that short jumps of the functions before and behind lead to. A distance of one byte is anywhere in code, so that
/// whole instructions are looked at, from the beginning of each function on.
fn short_entrances(file: &object::File<'_>, function: &Range<u64>) -> Vec<u64> {
    let near = function.start.saturating_sub(SHORT)..function.end.saturating_add(SHORT);
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let mut starts: Vec<u64> = symbols
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .map(|symbol| symbol.address())
        .collect();
    starts.sort_unstable();
    starts.dedup();
    let mut found = Vec::new();
    for (index, &start) in starts.iter().enumerate() {
        // Symbols of such code have no sizes, as often as not.
        let next = starts.get(index + 1).copied().unwrap_or(near.end);
        let end = next.min(near.end);
        if start >= near.end || end <= near.start || function.contains(&start) {
            continue;
        }
        let Some(code) = code(file, start..end) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            let is_branch = matches!(
                instruction.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            );
            let target = instruction.near_branch_target();
            if is_branch && target > function.start && target < function.end {
                found.push(target);
            }
        }
    }
    found
}

/// Bytes of code in the file; `None` where there are none.
pub(super) fn code<'a>(file: &object::File<'a>, wanted: Range<u64>) -> Option<&'a [u8]> {
    let mut sections = file.sections();
    let section = sections.find(|one| span(one.address(), one.size()).contains(&wanted.start))?;
    let length = wanted.end.checked_sub(wanted.start)?;
    let left = span(section.address(), section.size()).end - wanted.start;
    section
        .data_range(wanted.start, length.min(left))
        .ok()
        .flatten()
}

/// Returns whether the file says how to unwind the code at an address, or says that of none.
pub(super) fn is_described(file: &object::File<'_>, address: u64) -> bool {
    let Some(section) = file.section_by_name(".eh_frame") else {
        return true;
    };
    let Ok(data) = section.data() else {
        return false;
    };
    let frames = EhFrame::new(data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let found = frames.fde_for_address(&bases, address, EhFrame::cie_from_offset);
    found.is_ok()
}
