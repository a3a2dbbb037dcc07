//! A function's instructions, and where branches lead in it.

use super::{JUMP, Site, When, is_call, is_movable_call};
use crate::process::{
    error::{Error, Result},
    image::Function,
};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// Offset of the stack's limit in Go's description of a goroutine.
const GO_STACK_LIMIT: u64 = 0x10;
/// The register with the address of that description.
const GOROUTINE: Register = Register::R14;
/// Registers that Go compares with the limit: the stack pointer, or, where a frame is large, how low it will be.
const GO_STACK: [Register; 3] = [Register::RSP, Register::R12, Register::R13];

pub(super) struct Decoded<'a> {
    pub(super) function: &'a Function,
    pub(super) instructions: Vec<Instruction>,
    /// Targets of its branches, and of others that lead into it, by ascending address.
    targets: Vec<u64>,
    pub(super) has_indirect_jump: bool,
}

impl<'a> Decoded<'a> {
    pub(super) fn new(function: &'a Function) -> Result<Self> {
        if !function.is_described {
            return Err(Error::Unpatchable {
                function: function.name.clone(),
                reason: "it is written by hand, as its file does not say how to unwind it: a computed jump may lead into the replaced bytes, and its flags may be arguments\n  use a kernel uprobe for it".to_owned(),
            });
        }
        let mut decoder =
            Decoder::with_ip(64, &function.code, function.address, DecoderOptions::NONE);
        let mut instructions = Vec::new();
        let mut targets = function.entrances.clone();
        let mut has_indirect_jump = false;
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                let reason = format!(
                    "its code can't be decoded at +{:#x}",
                    instruction.ip() - function.address
                );
                return Err(Error::Unpatchable {
                    function: function.name.clone(),
                    reason,
                });
            }
            targets.extend(target(&instruction));
            has_indirect_jump |= instruction.flow_control() == FlowControl::IndirectBranch;
            instructions.push(instruction);
        }
        targets.sort_unstable();
        Ok(Decoded {
            function,
            instructions,
            targets,
            has_indirect_jump,
        })
    }

    /// Which instruction begins at an address. An error with those around it where none does.
    pub(super) fn index(&self, address: u64) -> Result<usize> {
        let found = self
            .instructions
            .binary_search_by_key(&address, Instruction::ip);
        found.map_err(|next| {
            let offset = |address: u64| address - self.function.address;
            let before = self.instructions[next.saturating_sub(1)];
            let reason = format!(
                "no instruction begins there\n  the next ones begin at +{:#x} and +{:#x}",
                offset(before.ip()),
                offset(before.next_ip())
            );
            let symbol = format!("{}+{:#x}", self.function.name, offset(address));
            Error::Symbol { symbol, reason }
        })
    }

    /// Returns whether the function has such an instruction.
    pub(super) fn has(&self, mnemonic: Mnemonic) -> bool {
        self.instructions
            .iter()
            .any(|one| one.mnemonic() == mnemonic)
    }

    /// The instructions that a jump from the beginning of one replaces, or why it can't. `place` names its bytes.
    pub(super) fn forward(&self, index: usize, place: &str) -> Result<Vec<Instruction>, String> {
        let start = self.instructions[index].ip();
        let mut length = 0;
        let mut taken = Vec::new();
        for instruction in &self.instructions[index..] {
            length += instruction.len();
            taken.push(*instruction);
            if length >= JUMP || ends(instruction) {
                break;
            }
            if is_call(instruction) {
                return Err(format!("a call lies in {place}"));
            }
        }
        if length < JUMP && !self.is_padding(start + length as u64, JUMP - length) {
            return Err(if index == 0 {
                "it is shorter than 5 bytes, with the padding behind it".to_owned()
            } else if taken.last().is_some_and(ends) {
                format!("a jump or a RET lies in {place}, with too little padding behind it")
            } else {
                format!("the function ends in {place}")
            });
        }
        if self.is_target(start + 1, start + JUMP as u64) {
            return Err(format!("a branch leads into {place}"));
        }
        if taken
            .iter()
            .any(|one| is_call(one) && !is_movable_call(one))
        {
            return Err(format!("a call in {place} can't be moved"));
        }
        Ok(taken)
    }

    /// Returns whether a branch leads to an address from `start` on, and before `end`.
    pub(super) fn is_target(&self, start: u64, end: u64) -> bool {
        let first = self.targets.partition_point(|&target| target < start);
        self.targets.get(first).is_some_and(|&target| target < end)
    }

    /// Returns whether these bytes are never executed: nops or breakpoints behind an instruction that doesn't go on.
    fn is_padding(&self, start: u64, length: usize) -> bool {
        let end = start + length as u64;
        let offset = (start - self.function.address) as usize;
        let bytes: Vec<u8> = self
            .function
            .code
            .iter()
            .chain(&self.function.padding)
            .skip(offset)
            .copied()
            .collect();
        let mut decoder = Decoder::with_ip(64, &bytes, start, DecoderOptions::NONE);
        while decoder.ip() < end {
            // Zeroes fill the end of a section.
            let rest = bytes
                .get((decoder.ip() - start) as usize..length)
                .unwrap_or_default();
            if !rest.is_empty() && rest.iter().all(|&byte| byte == 0) {
                break;
            }
            if !decoder.can_decode() {
                return false;
            }
            let instruction = decoder.decode();
            let dead = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
            // A nop in the middle of the function that is wider than needed is overwritten in part.
            if !dead || instruction.is_invalid() {
                return false;
            }
        }
        !self.is_target(start, end)
    }

    /// The place for a jump that leads to a RET: its own bytes and padding, or as few instructions before it as
    /// there have to be.
    pub(super) fn before_return(&self, index: usize, when: When) -> Result<Site, &'static str> {
        let ret = &self.instructions[index];
        let mut first = index;
        loop {
            let start = self.instructions[first].ip();
            let length = (ret.next_ip() - start) as usize;
            if length >= JUMP || self.is_padding(ret.next_ip(), JUMP - length) {
                let taken = self.instructions[first..=index].to_vec();
                if self.function.is_go && faults_above_frame(&taken) {
                    return Err(
                        "an instruction that Go may recover from lies in the 5 bytes that end with its RET",
                    );
                }
                return Ok(self.site(when, taken, index - first));
            }
            if self.is_target(start, ret.next_ip()) {
                return Err("a branch leads to its RET, or between it and the instructions before");
            }
            if self.has_indirect_jump {
                return Err("a jump table may lead to its RET");
            }
            first = first.checked_sub(1).ok_or("it is shorter than 5 bytes")?;
            if self.instructions[first].flow_control() != FlowControl::Next {
                return Err("a call or a jump lies in the 5 bytes that end with its RET");
            }
        }
    }

    /// Returns whether a probe at an instruction of a Go function, not a RET, has the room on the stack that it needs, and
    /// no goroutine can be stopped amid the bytes that the jump replaces.
    pub(super) fn has_room_in_go(&self, index: usize) -> Result<(), &'static str> {
        let probed = &self.instructions[index];
        // Behind the test of the stack's limit, Go leaves 800 bytes for functions without such a test. Where the test
        // fails, the function goes on behind its end, with no room.
        let tested = self.instructions.windows(2).find(|pair| {
            let limit = pair[0].mnemonic() == Mnemonic::Cmp
                && GO_STACK.contains(&pair[0].op0_register())
                && pair[0].op1_kind() == OpKind::Memory
                && pair[0].memory_base() == GOROUTINE
                && pair[0].memory_displacement64() == GO_STACK_LIMIT;
            limit && pair[1].mnemonic() == Mnemonic::Jbe
        });
        let has_room = tested.is_some_and(|pair| {
            (pair[1].next_ip()..pair[1].near_branch_target()).contains(&probed.ip())
        });
        if !has_room {
            return Err("this place of a Go function has no room on the stack that is certain");
        }
        // Go's runtime interrupts a goroutine between any two instructions, and lets it go on much later.
        if probed.len() < JUMP {
            return Err(
                "in a Go function, the instruction has to have 5 bytes, such as a call: a goroutine may be stopped \
                 behind a shorter one",
            );
        }
        // Go recovers from a pointer to nothing only where its own code used it.
        if may_fault(probed) {
            return Err("in a Go function, an instruction that may fault has to stay where it is");
        }
        Ok(())
    }

    /// Returns whether a jump leaves the function. One through a table stays.
    pub(super) fn is_tail_jump(&self, index: usize) -> bool {
        let instruction = &self.instructions[index];
        let inside = self.function.address..self.function.address + self.function.code.len() as u64;
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                target(instruction).is_some_and(|target| !inside.contains(&target))
            }
            FlowControl::IndirectBranch => {
                let from_table = instruction.op0_kind() == OpKind::Memory
                    && instruction.memory_index() != Register::None;
                let computed = instruction.op0_kind() == OpKind::Register
                    && self.instructions[index.saturating_sub(6)..index]
                        .windows(2)
                        .any(|pair| {
                            matches!(
                                pair[0].code(),
                                Code::Movsxd_r64_rm32 | Code::Movsxd_r32_rm32
                            ) && pair[1].mnemonic() == Mnemonic::Add
                        });
                !from_table && !computed
            }
            _ => false,
        }
    }

    /// The place for a jump over instructions, one of which is probed.
    pub(super) fn site(&self, when: When, instructions: Vec<Instruction>, probed: usize) -> Site {
        let address = instructions[0].ip();
        let offset = (address - self.function.address) as usize;
        let mut original = [0; JUMP];
        let bytes = self
            .function
            .code
            .iter()
            .chain(&self.function.padding)
            .skip(offset);
        original
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        let (function, is_go) = (self.function.name.clone(), self.function.is_go);
        Site {
            function,
            when,
            address,
            original,
            is_go,
            is_tail: false,
            instructions,
            probed,
        }
    }

    pub(super) fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::Unpatchable {
            function: self.function.name.clone(),
            reason: reason.into(),
        }
    }
}

fn target(instruction: &Instruction) -> Option<u64> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(instruction.near_branch_target())
        }
        _ => None,
    }
}

/// Returns whether an instruction of a Go function may use an address where nothing is: none on the stack, beside the code or in
/// the goroutine's description.
fn may_fault(instruction: &Instruction) -> bool {
    let has_address = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    let is_unused = matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
    let is_there = matches!(
        instruction.memory_base(),
        Register::RSP | Register::RIP | GOROUTINE
    );
    has_address && !is_unused && !is_there
}

/// Returns whether one of the instructions that end with a RET may fault while the stack pointer is not at the return address.
/// There, Go finds the caller of a fault outside of its code by that address; elsewhere it gives up.
fn faults_above_frame(instructions: &[Instruction]) -> bool {
    let Some((_, before)) = instructions.split_last() else {
        return false;
    };
    let moves_stack =
        |one: &Instruction| one.is_stack_instruction() || one.op0_register() == Register::RSP;
    let last_move = before.iter().rposition(moves_stack).unwrap_or(0);
    before[..last_move].iter().any(may_fault)
}

/// Returns whether execution never goes on behind an instruction.
fn ends(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    )
}
