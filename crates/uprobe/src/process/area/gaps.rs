//! Free addresses of a process, for code that jumps reach.

use super::REACH;
use crate::process::{
    error::Result,
    maps::{Mapping, mappings},
};

/// Free bytes beside other mappings, if there is room: stacks and heaps grow.
const DISTANCE: u64 = 64 << 10;
/// The lowest address that the kernel lets programs map.
const LOWEST: u64 = 64 << 10;
/// The field of `/proc/PID/stat` with the address at which the heap begins, counted from 1.
const START_BRK: usize = 47;

/// Returns where so many bytes are free that jumps from an address reach, the nearest first.
pub(super) fn near(pid: i32, near: u64, size: u64) -> Result<Vec<u64>> {
    Ok(gaps(&mappings(pid)?, heap_start(pid), near, size))
}

/// Returns where the heap begins, or will: a program that has not called `malloc` has none.
fn heap_start(pid: i32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything; the third field is the first there.
    let (_, fields) = line.rsplit_once(')')?;
    fields.split_whitespace().nth(START_BRK - 3)?.parse().ok()
}

fn gaps(all: &[Mapping], heap: Option<u64>, near: u64, size: u64) -> Vec<u64> {
    let (lowest, highest) = (
        near.saturating_sub(REACH).max(LOWEST),
        near.saturating_add(REACH),
    );
    let ends = std::iter::once((0, "")).chain(
        all.iter()
            .map(|mapping| (mapping.end, mapping.name.as_str())),
    );
    let starts = all.iter().map(|mapping| mapping.start);
    let mut found: Vec<u64> = ends
        .zip(starts)
        .filter_map(|((end, before), start)| {
            let (from, to) = (end.max(lowest), start.min(highest));
            let room = to.checked_sub(from)?.checked_sub(size)?;
            let distance = if room >= 2 * DISTANCE { DISTANCE } else { 0 };
            // As far from a heap as it can be: it grows towards here.
            let is_for_heap =
                before == "[heap]" || heap.is_some_and(|heap| (end..start).contains(&heap));
            Some(if start <= near || is_for_heap {
                to - size - distance
            } else {
                from + distance
            })
        })
        .collect();
    found.sort_by_key(|start| start.abs_diff(near));
    found
}

#[cfg(test)]
mod tests {
    use super::{super::CODE, *};

    #[test]
    fn the_nearest_gap_comes_first_and_none_out_of_reach() {
        let all = [
            Mapping::for_test(0x40_0000, 0x50_0000, "/a"),
            Mapping::for_test(0x7f00_0000_0000, 0x7f00_0010_0000, "/b"),
        ];
        let found = gaps(&all, None, 0x41_0000, CODE);
        assert_eq!(found[0], 0x40_0000 - CODE - DISTANCE);
        assert_eq!(found[1], 0x50_0000 + DISTANCE);
        assert!(found.iter().all(|start| start.abs_diff(0x41_0000) < REACH));
    }

    #[test]
    fn a_heap_keeps_room_to_grow() {
        let all = [
            Mapping::for_test(0x1_0000, 0x50_0000, "/a"),
            Mapping::for_test(0x50_0000, 0x60_0000, "[heap]"),
            Mapping::for_test(0x7f00_0000_0000, 0x7f00_0010_0000, "/b"),
        ];
        let found = gaps(&all, None, 0x41_0000, CODE);
        assert_eq!(found, [0x41_0000 + REACH - CODE - DISTANCE]);
    }

    #[test]
    fn a_heap_that_is_not_there_yet_has_room_too() {
        let all = [
            Mapping::for_test(0x1_0000, 0x50_0000, "/a"),
            Mapping::for_test(0x7f00_0000_0000, 0x7f00_0010_0000, "/b"),
        ];
        let found = gaps(&all, Some(0x50_0000), 0x41_0000, CODE);
        assert_eq!(found, [0x41_0000 + REACH - CODE - DISTANCE]);
        let found = gaps(&all, None, 0x41_0000, CODE);
        assert_eq!(found, [0x50_0000 + DISTANCE]);
        assert!(heap_start(std::process::id() as i32).is_some_and(|start| start > 0));
    }

    #[test]
    fn a_gap_that_is_too_small_is_none() {
        let all = [
            Mapping::for_test(0x1_0000, 0x50_0000, "/a"),
            Mapping::for_test(0x50_1000, 0x50_0000_0000, "/b"),
        ];
        assert!(gaps(&all, None, 0x41_0000, CODE).is_empty());
    }
}
