//! Takers of stacks, and how far a stack goes from there.

use crate::{attach::AttachMethod, table::table};

table! {
/// A way to take a stack, and to deliver it.
pub enum StackTaker: TakerInfo {
    /// Not at all.
    Nothing = taker_info("none", "none", Walk::Nothing, Delivery::Kept, "no stack is taken");
    /// Into a buffer, by the kernel's helper.
    GetStack = taker_info(
        "get_stack", "get_stack", Walk::GetStack, Delivery::Kept,
        "bpf_get_stack(), into a buffer"
    );
    /// The same, into the ring buffer.
    GetStackRing = taker_info(
        "get_stack+ring", "get_stack_ring", Walk::GetStack, Delivery::Ring,
        "bpf_get_stack(), into the ring buffer"
    );
    /// The same, and user space reads the addresses.
    GetStackRead = taker_info(
        "get_stack+read", "get_stack_ring", Walk::GetStack, Delivery::Read,
        "bpf_get_stack(), into the ring buffer; user space reads the addresses"
    );
    /// The same, and user space prints the names.
    GetStackPrint = taker_info(
        "get_stack+print", "get_stack_ring", Walk::GetStack, Delivery::Printed,
        "bpf_get_stack(), into the ring buffer; user space prints the names of functions"
    );
    /// Into a buffer, by the helper for any task's stack, of this task.
    GetTaskStack = taker_info(
        "get_task_stack", "get_task_stack", Walk::GetTaskStack, Delivery::Kept,
        "bpf_get_task_stack() of the current task, into a buffer"
    );
    /// As a number, by the helper that keeps stacks.
    GetStackid = taker_info("get_stackid", "get_stackid", Walk::Stackid, Delivery::Kept, "bpf_get_stackid()");
    /// The same, counted in a hash map.
    GetStackidCount = taker_info(
        "get_stackid+count", "get_stackid_count", Walk::StackidCount, Delivery::Kept,
        "bpf_get_stackid(), counted in a hash map"
    );
    /// Counted, by `unwind.bpf.h`.
    Count = taker_info("count", "count", Walk::Count, Delivery::Kept, "unwind_count(): counted");
    /// The same, and its leaf into the ring buffer.
    CountRing = taker_info(
        "count+ring", "count_ring", Walk::Count, Delivery::Ring,
        "unwind_count(): counted, and 8 bytes into the ring buffer"
    );
    /// The same, and user space reads the leaf.
    CountRead = taker_info(
        "count+read", "count_ring", Walk::Count, Delivery::Read,
        "unwind_count(): counted, and 8 bytes into the ring buffer, which user space reads"
    );
    /// The same, and user space prints the names.
    CountPrint = taker_info(
        "count+print", "count_ring", Walk::Count, Delivery::Printed,
        "unwind_count(): counted, and 8 bytes into the ring buffer; user space prints the names of functions"
    );
    /// Into a buffer, by `unwind.bpf.h`.
    Frames = taker_info("frames", "frames", Walk::Frames, Delivery::Kept, "unwind_frames(), into a buffer");
    /// Into the ring buffer.
    FramesRing = taker_info(
        "frames+ring", "frames_ring", Walk::Frames, Delivery::Ring,
        "unwind_frames(), into the ring buffer"
    );
    /// The same, and user space reads the addresses.
    FramesRead = taker_info(
        "frames+read", "frames_ring", Walk::Frames, Delivery::Read,
        "unwind_frames(), into the ring buffer; user space reads the addresses"
    );
    /// The same, and user space prints the names.
    FramesPrint = taker_info(
        "frames+print", "frames_ring", Walk::Frames, Delivery::Printed,
        "unwind_frames(), into the ring buffer; user space prints the names of functions"
    );
}
}

/// The code that walks the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    Nothing,
    GetStack,
    GetTaskStack,
    Stackid,
    StackidCount,
    Count,
    Frames,
}

/// The distance that a stack goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Kept in the kernel: in a buffer, or counted.
    Kept,
    /// A record of the ring buffer. Reading the records is not timed.
    Ring,
    /// User space reads the records, once a batch of them is there. That is timed too.
    Read,
    /// User space reads the records and prints the names of their functions. That is timed too.
    Printed,
}

/// The description of a taker.
#[derive(Clone, Copy, Debug)]
struct TakerInfo {
    name: &'static str,
    program: &'static str,
    walk: Walk,
    delivery: Delivery,
    about: &'static str,
}

const fn taker_info(
    name: &'static str,
    program: &'static str,
    walk: Walk,
    delivery: Delivery,
    about: &'static str,
) -> TakerInfo {
    TakerInfo {
        name,
        program,
        walk,
        delivery,
        about,
    }
}

impl StackTaker {
    /// Describes the taker in a few words.
    pub fn about(self) -> &'static str {
        self.known().about
    }

    /// The beginning of its programs' names.
    pub(super) fn program(self) -> &'static str {
        self.known().program
    }

    pub(super) fn walk(self) -> Walk {
        self.known().walk
    }

    /// Returns the distance that its stacks go.
    pub fn delivery(self) -> Delivery {
        self.known().delivery
    }

    /// Returns true for those of `unwind.bpf.h`.
    pub fn is_manual(self) -> bool {
        matches!(self.walk(), Walk::Count | Walk::Frames)
    }

    /// Returns true if each stack is a record in the ring buffer.
    pub fn has_records(self) -> bool {
        self.delivery() != Delivery::Kept
    }

    /// Returns true if the time of user space is part of the cost.
    pub fn has_reader(self) -> bool {
        matches!(self.delivery(), Delivery::Read | Delivery::Printed)
    }

    /// Returns true if a shorter stack than the whole can be asked for.
    pub fn has_depth(self) -> bool {
        !matches!(self.walk(), Walk::Stackid | Walk::StackidCount)
    }

    /// Returns true if programs attached in this way have it: how a stack is delivered makes no difference to them.
    pub fn runs_in(self, method: AttachMethod) -> bool {
        match method {
            AttachMethod::RawTp => true,
            AttachMethod::TpBtf | AttachMethod::Kprobe | AttachMethod::Fentry => matches!(
                self,
                StackTaker::Nothing
                    | StackTaker::GetStack
                    | StackTaker::GetStackid
                    | StackTaker::Count
                    | StackTaker::Frames
            ),
            _ => false,
        }
    }

    /// The most stacks of a batch: what the ring buffer has room for.
    pub fn most(self) -> Option<u64> {
        self.has_records().then_some(match self.walk() {
            Walk::Count => 1 << 18,
            _ => 1 << 13,
        })
    }
}
