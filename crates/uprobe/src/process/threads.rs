//! The threads of a process whose functions are about to be patched: which of them forbid it, and where they go on.

use super::{
    area,
    attachment::Prepared,
    children,
    error::{Error, Result},
    layout::{CONTROL_FRAME, FIRST_FRAME, FRAME_STACK, LEVEL, LEVELS, STATE_LOCK, STATE_OWNERS},
    maps::Mapping,
    runtime::Runtime,
    site::Site,
    stopped::Registers,
};
use std::{collections::BTreeSet, ops::Range};

/// Bytes of a stack that are searched for saved registers.
const STACK: u64 = 1 << 20;
/// Number of words before the saved instruction pointer at which a signal frame has the start of the alternate stack, and its
/// size (`uc_stack` of `struct ucontext`).
const ALTERNATE_STACK: usize = 19;
const ALTERNATE_SIZE: usize = 17;
/// The selector of 64-bit code.
const CS: u64 = 0x33;

impl Runtime {
    /// The registers of threads which have to change: those inside of replaced bytes go on in the copy, and those
    /// without an area get that of no thread. A thread that goes on in a copy comes back, whatever else happens.
    pub(super) fn move_threads(
        &self,
        threads: &[(i32, Registers)],
        prepared: &Prepared,
    ) -> Result<Vec<(i32, Registers)>> {
        let mut changed = Vec::new();
        for &(tid, before) in threads {
            let mut registers = before;
            let inside = prepared
                .jumps()
                .find(|known| known.site.is_inside(before.rip));
            if let Some(known) = inside {
                let mut moved = known.moved.iter();
                let to = moved.find(|&&(from, _)| from == before.rip);
                let Some(&(_, to)) = to else {
                    let reason = format!("thread {tid} is inside of one of its first instructions");
                    return Err(Error::Unpatchable {
                        function: known.site.function.clone(),
                        reason,
                    });
                };
                registers.rip = to;
            }
            if self.areas.layout.index(before.gs_base).is_none() {
                registers.gs_base = self.areas.layout.control(0);
            }
            if registers != before {
                changed.push((tid, registers));
            }
        }
        Ok(changed)
    }

    /// An error where a thread can't run probes.
    pub(super) fn check_threads(
        &self,
        threads: &[(i32, Registers)],
        all: &[Mapping],
        prepared: &Prepared,
    ) -> Result<()> {
        let pid = self.pid;
        let mut bases = BTreeSet::new();
        for (tid, registers) in threads {
            if registers.cs != CS {
                return Err(Error::Architecture { pid });
            }
            if registers.gs_base != 0 && self.areas.layout.index(registers.gs_base).is_none() {
                let Some(block) = inherited(registers.gs_base, all) else {
                    return Err(Error::GsTaken { pid, tid: *tid });
                };
                // In a probe that it has inherited as well, it needs that area still.
                let mut code = all.iter().filter(|mapping| mapping.contains(registers.rip));
                let is_in_probe = code.any(|mapping| mapping.inode == 0 && mapping.name.is_empty());
                if is_in_probe || block.contains(&registers.rsp) {
                    let mut functions = prepared.jumps().map(|known| &known.site.function);
                    return Err(Error::SavedAddress {
                        function: functions.next().cloned().unwrap_or_default(),
                        tid: *tid,
                    });
                }
            }
            // Alone, a thread may have none yet: a static program at its entry point. It takes another area then.
            let is_missing = registers.fs_base == 0 && threads.len() > 1;
            if is_missing || !bases.insert(registers.fs_base) {
                return Err(Error::FsShared { pid });
            }
        }
        Ok(())
    }

    /// An error where a signal handler will return into bytes that are replaced.
    pub(super) fn check_stacks(
        &self,
        threads: &[(i32, Registers)],
        prepared: &Prepared,
        all: &[Mapping],
    ) -> Result<()> {
        // Where a jump replaces one instruction alone, there is no address inside that could be returned to.
        let sites = prepared.jumps().filter(|known| {
            let mut moved = known.moved.iter();
            moved.any(|&(from, _)| known.site.is_inside(from))
        });
        let mut sites: Vec<&Site> = sites.map(|known| &known.site).collect();
        sites.sort_by_key(|site| site.address);
        let (Some(first), Some(last)) = (sites.first(), sites.last()) else {
            return Ok(());
        };
        let range = first.address..last.end();
        let inside = |address: u64| {
            let next = sites.partition_point(|site| site.address <= address);
            let site = sites[next.checked_sub(1)?];
            site.is_inside(address).then_some(site)
        };
        let stacks = threads.iter().flat_map(|(tid, registers)| {
            let stacks = self.stacks(registers.rsp, all).into_iter();
            stacks.map(move |stack| (tid, stack))
        });
        for (tid, stack) in stacks {
            // Signal frames are aligned to 8 bytes, as stack pointers are. A guard may follow the stack.
            let start = stack.start & !7;
            let length = stack.end.min(start + STACK).saturating_sub(start);
            let bytes = self.memory.read_until(start, length as usize);
            let words: Vec<u64> = bytes
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
                .collect();
            let mut saved =
                saved_addresses(start, &words).filter(|address| range.contains(address));
            if let Some(site) = saved.find_map(inside) {
                return Err(Error::SavedAddress {
                    function: site.function.clone(),
                    tid: *tid,
                });
            }
        }
        Ok(())
    }

    /// The used part of each stack of a thread: that of a probe, and those that probes interrupted.
    fn stacks(&self, pointer: u64, all: &[Mapping]) -> Vec<Range<u64>> {
        let layout = self.areas.layout;
        let own = |pointer: u64| {
            let mapping = all.iter().find(|mapping| mapping.contains(pointer))?;
            Some(pointer..mapping.end)
        };
        let mut stacks = Vec::new();
        let Some(area) = layout.index_of_stack(pointer) else {
            stacks.extend(own(pointer));
            return stacks;
        };
        let control = layout.control(area);
        stacks.push(pointer..control);
        let Ok(next) = self.memory.read_u64(control + CONTROL_FRAME) else {
            return stacks;
        };
        let frames = (0..LEVELS).map(|level| layout.area(area) + FIRST_FRAME - level * LEVEL);
        for frame in frames.filter(|&frame| frame > next) {
            let saved = self.memory.read_u64(frame + FRAME_STACK as u64);
            let saved = saved.ok().filter(|&at| layout.index_of_stack(at).is_none());
            stacks.extend(saved.and_then(own));
        }
        stacks
    }

    /// Gives the areas of threads that ended to others.
    pub(super) fn release_areas(&self, threads: &[(i32, Registers)]) -> Result<()> {
        let layout = self.areas.layout;
        let mut lock = [0; 4];
        self.memory
            .read(layout.base + STATE_LOCK as u64, &mut lock)?;
        if lock != [0; 4] {
            return Ok(()); // A thread is about to take one.
        }
        let table = layout.base + STATE_OWNERS as u64;
        let owners = self.memory.read_vec(table, 8 * layout.areas as usize)?;
        for (index, owner) in owners.chunks_exact(8).enumerate() {
            let owner = u64::from_le_bytes(owner.try_into().expect("8 bytes"));
            let control = layout.control(index as u64);
            let is_owner =
                |registers: &Registers| registers.fs_base == owner && registers.gs_base == control;
            if owner != 0 && !threads.iter().any(|(_, registers)| is_owner(registers)) {
                self.memory.write(table + 8 * index as u64, &[0; 8])?;
            }
        }
        Ok(())
    }
}

/// The memory around the GS base of a forked child's thread that was made for its parent's probes: before the slots,
/// which have a name.
fn inherited(gs_base: u64, all: &[Mapping]) -> Option<Range<u64>> {
    let first = all.iter().position(|mapping| mapping.contains(gs_base))?;
    let mut end = all[first].start;
    for mapping in &all[first..] {
        if mapping.start != end {
            return None;
        }
        if [area::MAPPED, children::MAPPED].contains(&mapping.name.as_str()) {
            return Some(all[first].start..mapping.start);
        }
        if mapping.inode != 0 {
            return None;
        }
        end = mapping.end;
    }
    None
}

/// The addresses that signal handlers on a stack will return to: `words` are the stack's, from its pointer `start` on.
fn saved_addresses(start: u64, words: &[u64]) -> impl Iterator<Item = u64> + '_ {
    // The saved instruction pointer, flags and selectors lie in this order.
    let saved = words
        .windows(3)
        .enumerate()
        .filter(|(_, three)| three[2] & 0xffff == CS);
    saved.filter_map(move |(index, three)| {
        // Before them, the frame says which alternate stack the thread had. Go's stacks lie side by side: a frame there
        // is another thread's, or one that was left, where the pointer is not on that stack.
        let stack = words[index.checked_sub(ALTERNATE_STACK)?];
        let alternate = stack..stack.saturating_add(words[index - ALTERNATE_SIZE]);
        let is_on_it = alternate.contains(&(start + 8 * index as u64));
        (!is_on_it || alternate.contains(&start)).then_some(three[0])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack at 0x1000 with a signal frame on it, which will return to 7, of a thread with that alternate stack.
    fn stack(alternate: u64, bytes: u64) -> Vec<u64> {
        let mut words = vec![0; 100];
        let at = 40;
        (words[at], words[at + 1], words[at + 2]) = (7, 0x246, CS | 0x2b << 48);
        (words[at - ALTERNATE_STACK], words[at - ALTERNATE_SIZE]) = (alternate, bytes);
        words
    }

    #[test]
    fn a_handler_returns_on_the_stack_that_its_thread_is_on() {
        let of = |words: &[u64]| saved_addresses(0x1000, words).collect::<Vec<_>>();
        // None, one elsewhere, and the one that the thread is on.
        for (alternate, bytes) in [(0, 0), (0x9000, 0x1000), (0x0f00, 0x1000)] {
            assert_eq!(of(&stack(alternate, bytes)), [7], "{alternate:#x}");
        }
        // One that begins above the thread's pointer: another thread's.
        assert!(of(&stack(0x1100, 0x1000)).is_empty());
        assert!(
            of(&[7, 0x246, CS]).is_empty(),
            "no frame begins below the pointer"
        );
    }
}
