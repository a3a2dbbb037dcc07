//! Memory of tools that is unmapped once no thread can be in their code, or go on there.
//!
//! The jumps are gone, so that no thread comes in any more. All threads are stopped, and looked at: their instruction pointers;
//! and their stacks, on which a signal's frame has the address that its handler returns to. A number there that could be an
//! address in a tool's memory keeps all of that tool's memory for another attempt; a thread in a probe keeps that of all tools.
//! A table in the process has the rest after the last attempt, and the next tool tries again.
//!
//! Stubs to which calls return ([`super::tail`]) stay, as does the guard ([`super::guard`]): their addresses may be kept
//! anywhere. The stubs then return by themselves.

use super::{
    error::Result,
    layout::{
        CONTROL_FRAME, FIRST_FRAME, LEFT, Layout, STATE_LEFT, STATE_LIMIT, STATE_MARK, STATE_OWNERS,
    },
    mapped::{OWN, Owned},
    maps::{Mapping, mappings},
    memory::Memory,
    remote::Remote,
    server::{SYNC_CORE, Server, is_restored},
    stopped::{Registers, Stopped},
    tail,
};
use std::{collections::BTreeSet, ops::Range};

/// Bytes of a stack that are searched: from its pointer on, a handler uses less before its signal's frame.
const STACK: u64 = 1 << 20;
/// The bytes of one range in the table of what was left: where it begins and ends, and the tool's number.
const ENTRY: usize = 24;

impl Server<'_> {
    /// Unmaps what this tool has mapped and what earlier ones left. What may still be in use after so many attempts is left
    /// to the next tool.
    pub(super) fn release(&self, attempts: u32) {
        if self.may_release() && !is_restored(attempts, || self.try_release()) {
            // Where it can't be stopped, it stays for ever.
            let _ = self.leave();
        }
    }

    /// Returns whether nothing leads to the tool's code but threads that are in it.
    fn may_release(&self) -> bool {
        let (jumps, mapped) = (self.jumps, self.jumps.mapped());
        let Ok(all) = mappings(self.pid) else {
            return false;
        };
        let has_some = !mapped.is_empty() || !self.left().is_ok_and(|left| left.is_empty());
        has_some
            && !mapped.is_kept()
            && jumps.are_others_restored()
            && jumps.are_gone(self.memory, &all)
    }

    /// Unmaps what no thread can be in. Returns whether nothing is left.
    fn try_release(&self) -> Result<bool> {
        let mapped = self.jumps.mapped();
        let unused = {
            let (stopped, _sharers) = self.stop_all()?;
            if self.is_shared() {
                return Ok(false);
            }
            self.take_over()?;
            self.end_stubs(&stopped)?;
            self.unused(&stopped)?
        };
        // No thread can come there: the others may go on.
        let stopped = self.stop(Stopped::one)?;
        let all = mappings(self.pid)?;
        let mut remote = None;
        for range in unused {
            if is_of_tools(&range, &all) {
                let (start, bytes) = (range.start, range.end - range.start);
                let unmap = (libc::SYS_munmap, [start, bytes, 0, 0, 0, 0]);
                self.call(&stopped, &mut remote, unmap)?;
            } else {
                mapped.remove(range.start);
            }
        }
        remote.map_or(Ok(()), Remote::finish)?;
        Ok(mapped.all().is_empty())
    }

    /// Returns whether another process executes the same code.
    fn is_shared(&self) -> bool {
        let is_alone = self.watched.is_some_and(|watched| watched.count() == 0);
        let mark = self.jumps.mark().filter(|_| !is_alone);
        mark.is_some_and(|mark| !mark.sharers(self.pid).is_empty())
    }

    /// The ranges of tools in whose code no thread can be. All threads are stopped.
    fn unused(&self, stopped: &Stopped) -> Result<Vec<Range<u64>>> {
        if let Some(layout) = self.layout()?
            && is_in_probe(self.memory, layout)?
        {
            return Ok(Vec::new());
        }
        let mut ranges = self.jumps.mapped().all();
        ranges.sort_by_key(|owned| owned.range.start);
        let threads: Vec<(i32, Registers)> = stopped.threads_of_user().collect::<Result<_>>()?;
        let all = mappings(self.pid)?;
        let mut used = BTreeSet::new();
        let mut look = |word: u64| {
            let next = ranges.partition_point(|owned| owned.range.start <= word);
            let owned = next.checked_sub(1).map(|index| &ranges[index]);
            used.extend(
                owned
                    .filter(|one| one.range.contains(&word))
                    .map(|one| one.tool),
            );
        };
        let mut stacks = Vec::new();
        for (_, registers) in &threads {
            look(registers.rip);
            stacks.extend(stack(registers.rsp, &all));
        }
        for stack in stacks {
            let bytes = self
                .memory
                .read_until(stack.start, (stack.end - stack.start) as usize);
            let words = bytes.chunks_exact(8);
            words
                .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
                .for_each(&mut look);
        }
        ranges.retain(|owned| !used.contains(&owned.tool));
        Ok(ranges.into_iter().map(|owned| owned.range).collect())
    }

    /// The memory for probes. `None` where the tool ended before there was one.
    fn layout(&self) -> Result<Option<Layout>> {
        let Some(mark) = self.jumps.mark() else {
            return Ok(None);
        };
        let base = mark.address - STATE_MARK as u64;
        let mut areas = [0; 4];
        self.memory.read(base + STATE_LIMIT as u64, &mut areas)?;
        Ok(Some(Layout {
            base,
            areas: u32::from_le_bytes(areas).into(),
            children: None,
        }))
    }

    /// Has calls return by the stubs alone, which lead to this tool's code.
    fn end_stubs(&self, stopped: &Stopped) -> Result<()> {
        let Some(layout) = self.layout()? else {
            return Ok(());
        };
        let ranges = self.jumps.mapped().all();
        let is_ours = |target| ranges.iter().any(|owned| owned.range.contains(&target));
        let writes = tail::stubs_that_return(self.memory, layout, is_ours)?;
        if writes.is_empty() {
            return Ok(());
        }
        for write in writes {
            self.memory.write(write.address, &write.bytes)?;
        }
        let mut remote = None;
        self.call(stopped, &mut remote, (libc::SYS_membarrier, SYNC_CORE))?;
        remote.map_or(Ok(()), Remote::finish)
    }

    /// Returns what earlier tools had to leave.
    fn left(&self) -> Result<Vec<Owned>> {
        let Some(layout) = self.layout()? else {
            return Ok(Vec::new());
        };
        let bytes = self.memory.read_vec(layout.base + STATE_LEFT, LEFT)?;
        let word = |entry: &[u8], index: usize| {
            u64::from_le_bytes(entry[8 * index..][..8].try_into().expect("8 bytes"))
        };
        let entries = bytes.chunks_exact(ENTRY).map(|entry| Owned {
            range: word(entry, 0)..word(entry, 1),
            tool: word(entry, 2),
        });
        Ok(entries.filter(|owned| owned.range.end != 0).collect())
    }

    /// Takes what earlier tools had to leave. A thread is stopped meanwhile: no other tool does the same.
    fn take_over(&self) -> Result<()> {
        let left = self.left()?;
        self.set_left(&[])?;
        left.iter().for_each(|owned| self.jumps.mapped().add(owned));
        Ok(())
    }

    /// Leaves all that is not unmapped to the next tool.
    fn leave(&self) -> Result<()> {
        let _stopped = self.stop(Stopped::one)?;
        let mapped = self.jumps.mapped();
        let (mut left, mut ours) = (self.left()?, mapped.all());
        // No other tool has memory there as long as it is mapped.
        let own = ours.iter().filter(|owned| owned.tool == OWN);
        let number = own.map(|owned| owned.range.start).min().unwrap_or(OWN);
        for owned in ours.iter_mut().filter(|owned| owned.tool == OWN) {
            owned.tool = number;
        }
        ours.iter()
            .for_each(|owned| mapped.remove(owned.range.start));
        left.extend(ours);
        self.set_left(&left)
    }

    /// Writes the table of what is left, as far as there is room.
    fn set_left(&self, left: &[Owned]) -> Result<()> {
        let Some(layout) = self.layout()? else {
            return Ok(());
        };
        let entries = left.iter().take(LEFT / ENTRY);
        let words = entries.flat_map(|owned| [owned.range.start, owned.range.end, owned.tool]);
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.resize(LEFT, 0);
        self.memory.write(layout.base + STATE_LEFT, &bytes)
    }
}

/// The part of a stack, from its pointer on, that is searched.
fn stack(pointer: u64, all: &[Mapping]) -> Option<Range<u64>> {
    let mapping = all.iter().find(|mapping| mapping.contains(pointer))?;
    let start = pointer & !7;
    Some(start..mapping.end.min(start + STACK))
}

/// Returns whether a thread is in a probe, by its frames: also one whose stack is not in use, as a signal's handler has moved to
/// another one. One that has left a probe by longjmp counts as well.
fn is_in_probe(memory: &Memory, layout: Layout) -> Result<bool> {
    let table = layout.base + STATE_OWNERS as u64;
    let owners = memory.read_vec(table, 8 * layout.areas as usize)?;
    // The area of no thread has no frames.
    for (index, owner) in (0..layout.areas).zip(owners.chunks_exact(8)).skip(1) {
        let next = memory.read_u64(layout.control(index) + CONTROL_FRAME)?;
        // One that was just claimed has none yet.
        if owner != [0; 8] && next != 0 && next != layout.area(index) + FIRST_FRAME {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether all that is mapped in a range may be a tool's: none of it is a file, a heap or a stack.
fn is_of_tools(range: &Range<u64>, all: &[Mapping]) -> bool {
    let mut inside = all
        .iter()
        .filter(|one| one.start < range.end && range.start < one.end);
    inside.all(|one| {
        let name = one.name.as_str();
        name.is_empty() || name.starts_with("anon_inode:") || name.ends_with(" (deleted)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_the_process_has_mapped_since_is_not_a_tools() {
        let all = [
            Mapping::for_test(0x1000, 0x3000, ""),
            Mapping::for_test(0x3000, 0x4000, "anon_inode:bpf-map"),
            Mapping::for_test(0x4000, 0x5000, "/usr/lib/libc.so.6"),
            Mapping::for_test(0x5000, 0x6000, "[heap]"),
        ];
        assert!(is_of_tools(&(0x1000..0x4000), &all));
        assert!(!is_of_tools(&(0x1000..0x4001), &all));
        assert!(!is_of_tools(&(0x4fff..0x5000), &all));
        assert!(!is_of_tools(&(0x5000..0x6000), &all));
    }
}
