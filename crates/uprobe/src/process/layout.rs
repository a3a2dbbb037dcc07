//! Layout of the memory that is kept in a process for probes.
//!
//! One block: the *state*, then the *areas* of threads, all private and wiped in a forked child, which therefore
//! finds everything off, or takes slots of its own ([`super::children`]); then the *slots* of threads, which are shared
//! with the tool and outlive the process. The slots of an area have the same distance from it everywhere, so that one
//! register leads to both: the GS base, which points to the area's control page.
//!
//! Area 0 belongs to no thread: threads start with it, and look for one of their own at their first probe. Its slots
//! count what threads without an area missed.

use crate::translate::helpers::Environment;

/// A page.
const PAGE: u64 = 4096;

/// The bytes of the state: see the offsets `STATE_…`.
pub(super) const STATE: u64 = 64 << 10;
/// State of the probes, 4 bytes: 1 where they run, 0 in a forked child, 2 in one that has slots of its own.
pub(super) const STATE_ON: i32 = 0;
pub(super) const IS_ON: u32 = 1;
pub(super) const IS_CHILD: u32 = 2;
/// A lock for what follows, bit 0 of 4 bytes.
pub(super) const STATE_LOCK: i32 = 4;
/// Number of slots that are taken, 8 bytes: tools that come later take others.
pub(super) const STATE_SLOTS: i32 = 8;
/// Number of bytes of the threads' memory that are taken, 8 bytes.
pub(super) const STATE_MEMORY: i32 = 16;
/// Address of the memory for children, 8 bytes, 0 where there is none.
pub(super) const STATE_CHILDREN: i32 = 24;
/// Number of areas that threads may have, the one of no thread among them, 4 bytes.
pub(super) const STATE_LIMIT: i32 = 32;
/// The first holder's number of this process, 4 bytes: 0, or that of a forked child ([`super::identity`]).
pub(super) const STATE_HOLDERS: i32 = 36;
/// The mark by which the memory is recognised, 8 bytes: 0 in a forked child.
pub(super) const STATE_MARK: i32 = 40;
/// The generation of the slots that a forked child is about to map, 4 bytes.
pub(super) const STATE_GENERATION: i32 = 48;
/// The bytes that are left of the memory for code that stays, 4 bytes, and where they begin, 8 bytes ([`super::kept`]).
pub(super) const STATE_KEPT_BYTES: i32 = 52;
pub(super) const STATE_KEPT: i32 = 56;
/// The registers of who holds the lock.
pub(super) const STATE_SPILL: i32 = 64;
/// The FS bases of the areas' owners, 8 bytes each, 0 where there is none.
pub(super) const STATE_OWNERS: i32 = 128;
/// The last page: what the tool has system calls read and write.
pub(super) const STATE_SCRATCH: u64 = STATE - PAGE;

/// The page before: the tables of calls that return through stubs ([`super::tail`]).
pub(super) const STATE_TABLES: u64 = STATE_SCRATCH - PAGE;
pub(super) const TABLES: usize = PAGE as usize;
/// The page before: memory that tools had to leave ([`super::release`]).
pub(super) const STATE_LEFT: u64 = STATE_TABLES - PAGE;
pub(super) const LEFT: usize = PAGE as usize;

/// The distance between two areas.
pub(super) const AREA: u64 = 256 << 10;
/// A page at the start of each area that nothing may touch, so that a stack that overflows is seen.
pub(super) const GUARD: u64 = PAGE;
/// Most probes that a thread is in at once: one is interrupted by a signal, whose handler runs into the next.
pub(super) const LEVELS: u64 = 3;
/// The bytes of each level: a stack, on which handlers run as well, and a frame at its top.
pub(super) const LEVEL: u64 = 80 << 10;
/// The bytes of a frame: see the offsets `FRAME_…`.
pub(super) const FRAME: u64 = 512;
/// The first level's frame, from the area's start.
pub(super) const FIRST_FRAME: u64 = GUARD + LEVELS * LEVEL - FRAME;
/// The control page, from the area's start: see the offsets `CONTROL_…`.
pub(super) const CONTROL: u64 = GUARD + LEVELS * LEVEL;

/// The FS base of the thread whose area this is.
pub(super) const CONTROL_OWNER: u64 = 0;
/// The frame that its next probe takes.
pub(super) const CONTROL_FRAME: u64 = 8;
/// The frame after the last.
pub(super) const CONTROL_LIMIT: u64 = 16;
/// The thread's number and that of its process, 4 bytes each; 0 where they are not known yet.
pub(super) const CONTROL_THREAD: u64 = 24;
/// The time when a helper last asked for the handler of [`super::guard`], and whether it was there.
pub(super) const CONTROL_GUARD: u64 = 32;
/// The thread's signal stack, as it was then, and its bytes: helpers alone use them.
const CONTROL_SIGNAL_STACK: u64 = 40;
const CONTROL_SIGNAL_STACK_BYTES: u64 = 48;
/// The address of the word in which the C library has the thread's number; 0 where it is not known.
pub(super) const CONTROL_WORD: u64 = 56;
/// The area's number as a holder of locks.
pub(super) const CONTROL_HOLDER: u64 = 64;
const _: () = assert!(CONTROL_SIGNAL_STACK + 8 == CONTROL_SIGNAL_STACK_BYTES);
const _: () = assert!(CONTROL_HOLDER + 8 <= PAGE);

/// The kernel's `struct pt_regs`, from the frame's start.
pub(super) mod regs {
    pub(in super::super) const R15: i32 = 0;
    pub(in super::super) const R14: i32 = 8;
    pub(in super::super) const R13: i32 = 16;
    pub(in super::super) const R12: i32 = 24;
    pub(in super::super) const RBP: i32 = 32;
    pub(in super::super) const RBX: i32 = 40;
    pub(in super::super) const R11: i32 = 48;
    pub(in super::super) const R10: i32 = 56;
    pub(in super::super) const R9: i32 = 64;
    pub(in super::super) const R8: i32 = 72;
    pub(in super::super) const RAX: i32 = 80;
    pub(in super::super) const RCX: i32 = 88;
    pub(in super::super) const RDX: i32 = 96;
    pub(in super::super) const RSI: i32 = 104;
    pub(in super::super) const RDI: i32 = 112;
    pub(in super::super) const ORIG_RAX: i32 = 120;
    pub(in super::super) const RIP: i32 = 128;
    pub(in super::super) const CS: i32 = 136;
    pub(in super::super) const RFLAGS: i32 = 144;
    pub(in super::super) const RSP: i32 = 152;
    pub(in super::super) const SS: i32 = 160;
}
/// The probed function and the probe's cookie, which helpers return (`translate::ProbeContext`).
pub(super) const FRAME_FUNCTION: i32 = 168;
pub(super) const FRAME_COOKIE: i32 = 176;
/// The thread's stack pointer.
pub(super) const FRAME_STACK: i32 = 184;
/// The page that a helper last found readable in this run of the programs at a place: no page's address at its start.
pub(super) const FRAME_CHECKED: i32 = 192;
/// The CPU whose values a program has, if it uses values of CPUs: helpers alone use it.
const FRAME_TURN: i32 = 208;
const _: () = assert!(FRAME_TURN + 8 <= FRAME as i32);
pub(super) const NO_PAGE: i32 = 1;
/// Number of tail calls that a program has made in this run (`translate::ProbeContext`): 4 bytes.
#[cfg(test)]
const FRAME_TAIL_CALLS: i32 = 200;

/// The bytes of slots of one probe: hits, then missed, 8 bytes each.
pub(super) const SLOT: u64 = 16;
/// Number of probes that have slots: the rest of an area's slots is for programs.
pub(super) const SLOTS: u64 = (64 << 10) / SLOT;

/// The block of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// The address.
    pub(super) base: u64,
    /// Number of areas, the one of no thread among them.
    pub(super) areas: u64,
    /// Address of the memory for its children, if they are followed.
    pub(super) children: Option<u64>,
}

/// Most children with slots of their own at a time, and the number of areas of each, the one of no thread among them.
pub(super) const CHILDREN: u64 = 1024;
const _: () = assert!(CHILDREN.is_power_of_two());
pub(super) const CHILD_AREAS: u64 = 16;
/// The first holder's number of the first child: those of the process itself are below.
pub(super) const FIRST_CHILD_HOLDER: u32 = 1 << 13;
const _: () = assert!(Layout::MAX_AREAS <= FIRST_CHILD_HOLDER as u64);
/// The bits of a holder's number.
pub(super) const HOLDER_BITS: u32 = Environment::HOLDER_BITS;
const _: () = assert!(FIRST_CHILD_HOLDER as u64 + CHILDREN * CHILD_AREAS <= 1 << HOLDER_BITS);
/// The bytes of one child's slots.
pub(super) const CHILD: u64 = CHILD_AREAS * AREA;
/// The memory for children: the queue of slots ([`super::queue`]), then the slots. The queue begins with the position that
/// the next child takes; whether none may take one any more; and the number of slots that were added: 8 bytes each.
pub(super) const CHILDREN_HEAD: u64 = 2 * PAGE;
pub(super) const CHILDREN_CLOSED: u64 = 8;
pub(super) const CHILDREN_FREED: u64 = 16;
/// The slots that were added, 2 bytes each, at positions modulo their greatest number; and the generations of all slots.
pub(super) const CHILDREN_QUEUE: u64 = 64;
pub(super) const CHILDREN_GENERATIONS: u64 = CHILDREN_QUEUE + 2 * CHILDREN;
const _: () = assert!(CHILDREN_GENERATIONS + 2 * CHILDREN <= CHILDREN_HEAD);
pub(super) const CHILDREN_BYTES: u64 = CHILDREN_HEAD + CHILDREN * CHILD;

impl Layout {
    /// The most areas that fit the state's table.
    pub(super) const MAX_AREAS: u64 = (STATE_LEFT - STATE_OWNERS as u64) / 8;

    /// The bytes that are private and wiped.
    pub(super) fn private(&self) -> u64 {
        STATE + self.areas * AREA
    }

    /// The bytes that are shared.
    pub(super) fn shared(&self) -> u64 {
        self.areas * AREA
    }

    /// The start of an area.
    pub(super) fn area(&self, index: u64) -> u64 {
        self.base + STATE + index * AREA
    }

    /// The control page of an area: the GS base of its thread.
    pub(super) fn control(&self, index: u64) -> u64 {
        self.area(index) + CONTROL
    }

    /// The area whose control page this is.
    pub(super) fn index(&self, gs_base: u64) -> Option<u64> {
        (0..self.areas).find(|&index| self.control(index) == gs_base)
    }

    /// The area whose stacks hold an address.
    pub(super) fn index_of_stack(&self, address: u64) -> Option<u64> {
        let index = address.checked_sub(self.area(0))? / AREA;
        (index < self.areas && address < self.control(index)).then_some(index)
    }

    /// From a control page to the slots of its area.
    pub(super) fn to_slots(self) -> u64 {
        self.areas * AREA - CONTROL
    }

    /// The slots of an area, in the process.
    pub(super) fn slots(&self, index: u64) -> u64 {
        self.control(index) + self.to_slots()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_have_the_same_numbers() {
        let header = std::fs::read_to_string("blob/types.h").expect("a header");
        let number = |name: &str| {
            let mut lines = header.lines();
            let value = lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(" = "));
            let value = value.unwrap_or_else(|| panic!("there is no {name}"));
            let mut factors = value.trim_end_matches(',').split(" << ");
            let mut next = || factors.next().map(|word| word.parse::<u64>().unwrap());
            next().unwrap() << next().unwrap_or(0)
        };
        for (name, expected) in [
            ("LEVELS", LEVELS),
            ("LEVEL", LEVEL),
            ("PAGE", PAGE),
            ("CONTROL_FRAME", CONTROL_FRAME),
            ("CONTROL_LIMIT", CONTROL_LIMIT),
            ("CONTROL_THREAD", CONTROL_THREAD),
            ("CONTROL_GUARD", CONTROL_GUARD),
            ("CONTROL_SIGNAL_STACK", CONTROL_SIGNAL_STACK),
            ("CONTROL_SIGNAL_STACK_BYTES", CONTROL_SIGNAL_STACK_BYTES),
            ("CONTROL_WORD", CONTROL_WORD),
            ("CONTROL_HOLDER", CONTROL_HOLDER),
            ("FIRST_FRAME_BELOW", CONTROL - FIRST_FRAME),
            ("CHILD_AREAS", CHILD_AREAS),
            ("HOLDER_BITS", HOLDER_BITS.into()),
            ("AREA", AREA),
            ("FRAME_STACK", FRAME_STACK as u64),
            ("FRAME_CHECKED", FRAME_CHECKED as u64),
            ("FRAME_TURN", FRAME_TURN as u64),
        ] {
            assert_eq!(number(name), expected, "{name}");
        }
    }

    #[test]
    fn the_parts_do_not_overlap() {
        let layout = Layout {
            base: 0x10_0000,
            areas: 5,
            children: None,
        };
        const { assert!(CONTROL + PAGE <= AREA) };
        const { assert!(FRAME_CHECKED as u64 + 8 <= FRAME_TAIL_CALLS as u64) };
        const { assert!(FRAME_TAIL_CALLS as u64 + 8 <= FRAME_TURN as u64) };
        assert_eq!(
            FRAME_TAIL_CALLS as u32,
            crate::translate::ProbeContext::TAIL_CALLS_OFFSET
        );
        assert_eq!(layout.slots(0), layout.base + layout.private());
        assert_eq!(
            layout.slots(4) + AREA,
            layout.base + layout.private() + layout.shared()
        );
        assert_eq!(layout.index(layout.control(3)), Some(3));
        assert_eq!(layout.index(layout.control(3) + 8), None);
        // What would follow the last frame is in the guard, which is the first page.
        const { assert!(FIRST_FRAME - LEVELS * LEVEL < GUARD) };
        // The stack pointer of a program is a multiple of 16 before the call.
        const { assert!(FIRST_FRAME.is_multiple_of(16)) };
    }
}
