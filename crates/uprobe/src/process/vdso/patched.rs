//! The copy that was put into the vDSO of a process, in memory that its tracer process shares.

use super::{
    super::{
        error::Result,
        layout::{CONTROL_FRAME, FIRST_FRAME, Layout, STATE_OWNERS},
        memory::Memory,
    },
    code::Places,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// The copy to take out: none where its address is 0.
#[derive(Default)]
pub(in super::super) struct Patched {
    copy: AtomicU64,
    fixup: AtomicU64,
    /// The word that leads helpers to it, 0 where there are none yet.
    caller: AtomicU64,
    /// The memory whose frames say which threads are in probes.
    base: AtomicU64,
    areas: AtomicU64,
}

impl Patched {
    /// Says what is about to be written.
    pub(in super::super) fn set(&self, places: Places, layout: Layout) {
        for (field, value) in [
            (&self.fixup, places.fixup),
            (&self.caller, 0),
            (&self.base, layout.base),
            (&self.areas, layout.areas),
        ] {
            field.store(value, Ordering::Relaxed);
        }
        self.copy.store(places.copy, Ordering::Release);
    }

    /// Says which word leads helpers there.
    pub(in super::super) fn set_caller(&self, word: u64) {
        self.caller.store(word, Ordering::Release);
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.copy.load(Ordering::Acquire) == 0
    }

    /// Says that it is not there any more.
    pub(in super::super) fn clear(&self) {
        self.copy.store(0, Ordering::Release);
    }

    /// Returns whether a thread is in a probe, and may be about to call it.
    pub(in super::super) fn is_in_use(&self, memory: &Memory) -> Result<bool> {
        let layout = Layout {
            base: self.base.load(Ordering::Relaxed),
            areas: self.areas.load(Ordering::Relaxed),
            children: None,
        };
        has_frame(memory, layout)
    }

    /// Takes the copy out of a process, all of which is stopped: the one that was probed, or a forked child. Returns
    /// false where it is in use.
    pub(in super::super) fn restore(&self, memory: &Memory) -> Result<bool> {
        if self.is_in_use(memory)? {
            return Ok(false);
        }
        // A jump may be left that could not be restored, or that another tool has moved: its programs do without.
        match self.caller.load(Ordering::Acquire) {
            0 => {}
            caller => memory.write(caller, &[0; 8])?,
        }
        let places = Places {
            copy: self.copy.load(Ordering::Acquire),
            fixup: self.fixup.load(Ordering::Relaxed),
        };
        places.restore(memory).map(|()| true)
    }
}

/// Returns whether a thread has a frame of a probe. One that left a probe by `longjmp` has it for ever.
fn has_frame(memory: &Memory, layout: Layout) -> Result<bool> {
    let table = layout.base + STATE_OWNERS as u64;
    let owners = memory.read_vec(table, 8 * layout.areas as usize)?;
    // The area of no thread has no frames.
    for (index, owner) in (0..layout.areas).zip(owners.chunks_exact(8)).skip(1) {
        if owner == [0; 8] {
            continue;
        }
        // One that was just claimed has none yet.
        let next = memory.read_u64(layout.control(index) + CONTROL_FRAME)?;
        if next != 0 && next != layout.area(index) + FIRST_FRAME {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::layout::{LEVEL, LEVELS};

    /// Writes a number into memory of this process.
    fn write(memory: &Memory, address: u64, number: u64) {
        memory.write(address, &number.to_le_bytes()).unwrap();
    }

    #[test]
    fn the_copy_stays_while_a_thread_is_in_a_probe() {
        let memory = Memory::open(std::process::id() as i32).unwrap();
        let mut layout = Layout {
            base: 0,
            areas: 3,
            children: None,
        };
        let block = vec![0_u8; layout.private() as usize];
        layout.base = block.as_ptr() as u64;
        let code = [0_u8; 64];
        let places = Places {
            copy: code.as_ptr() as u64,
            fixup: code.as_ptr() as u64 + 16,
        };
        let caller = places.fixup + 16;
        for write in places.writes() {
            memory.write(write.address, &write.bytes).unwrap();
        }
        write(&memory, caller, places.copy);
        let patched = Patched::default();
        patched.set(places, layout);
        patched.set_caller(caller);

        let (owner, first) = (
            layout.base + STATE_OWNERS as u64 + 16,
            layout.area(2) + FIRST_FRAME,
        );
        let frame = layout.control(2) + CONTROL_FRAME;
        write(&memory, owner, 1);
        for taken in 1..=LEVELS {
            write(&memory, frame, first - taken * LEVEL);
            assert!(!patched.restore(&memory).unwrap());
            assert!(places.are_written(&memory).unwrap());
            assert_eq!(memory.read_u64(caller).unwrap(), places.copy);
        }
        write(&memory, frame, first);
        assert!(patched.restore(&memory).unwrap());
        assert!(!places.are_written(&memory).unwrap());
        assert_eq!(memory.read_u64(caller).unwrap(), 0);
        // Once more, it changes nothing.
        let before = memory.read_vec(places.copy, code.len()).unwrap();
        assert!(patched.restore(&memory).unwrap());
        assert_eq!(memory.read_vec(places.copy, code.len()).unwrap(), before);
        assert_eq!(before[..3], [0x0f, 0x01, 0xd7]);
        assert_eq!(before[16], 0x48);
    }
}
