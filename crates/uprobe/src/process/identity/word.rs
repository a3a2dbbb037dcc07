//! The word in which the C library keeps a thread's number.

use super::super::{memory::Memory, stopped::Registers};
use std::{fs, ops::Range};

/// Offsets from the FS base that are searched. glibc 2.36 has it at 0x2d0; Go keeps it before the thread-local storage.
const OFFSETS: Range<i64> = -0x400..0x1000;

/// Returns the offset from the FS base of the word that holds each thread's number, as its own PID namespace has it.
/// `None` where no offset, or more than one, is that word in all of the threads.
pub(in super::super) fn thread_word(
    pid: i32,
    threads: &[(i32, Registers)],
    memory: &Memory,
) -> Option<i64> {
    let mut offsets: Option<Vec<i64>> = None;
    for (tid, registers) in threads {
        let number = own_number(pid, *tid)?.to_le_bytes();
        let first = registers.fs_base.checked_add_signed(OFFSETS.start)?;
        // The memory may begin behind the first offset, or end before the last one.
        let is_it = |offset: i64| {
            let at = first + (offset - OFFSETS.start) as u64;
            let mut word = [0; 4];
            memory.read(at, &mut word).is_ok() && word == number
        };
        offsets = Some(match offsets {
            Some(before) => before.into_iter().filter(|&one| is_it(one)).collect(),
            None => all_offsets(memory, first, number),
        });
    }
    match offsets?[..] {
        [offset] => Some(offset),
        _ => None,
    }
}

/// Returns all offsets at which a word is in memory that begins at the first offset.
fn all_offsets(memory: &Memory, first: u64, word: [u8; 4]) -> Vec<i64> {
    const PAGE: u64 = 4096;
    let mut offsets = Vec::new();
    let end = first.saturating_add((OFFSETS.end - OFFSETS.start) as u64);
    let mut at = first;
    while at < end {
        let next = ((at & !(PAGE - 1)) + PAGE).min(end);
        let bytes = memory.read_until(at, (next - at) as usize);
        let words = bytes.chunks_exact(4).enumerate();
        let here = words.filter(|(_, bytes)| **bytes == word);
        let offset = |(index, _)| OFFSETS.start + (at - first) as i64 + 4 * index as i64;
        offsets.extend(here.map(offset));
        at = next;
    }
    offsets
}

/// A thread's number in the innermost PID namespace.
fn own_number(pid: i32, tid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line?.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_up_to_the_end_of_the_memory() {
        let words = [7_u32, 1, 7, 2];
        let pid = std::process::id() as i32;
        let memory = Memory::open(pid).unwrap();
        let found = all_offsets(&memory, words.as_ptr() as u64, 7_u32.to_le_bytes());
        assert_eq!(found[..2], [OFFSETS.start, OFFSETS.start + 8]);
        assert!(
            all_offsets(&memory, 8, [0; 4]).is_empty(),
            "nothing is mapped"
        );
    }
}
