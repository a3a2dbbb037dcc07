//! Places for a jump in a function: over its first bytes, over its RETs and the jumps by which it leaves to other functions,
//! and over other instructions.
//!
//! A jump takes 5 bytes. The instructions that it overwrites are executed elsewhere, so no branch may lead into
//! them, and no return address may: a CALL is among them only as the last.

mod decoded;
mod tail;

use super::{
    error::{Error, Result},
    image::Function,
};
use decoded::Decoded;
use iced_x86::{Code, FlowControl, Instruction, MemoryOperand, Mnemonic, Register};

/// The bytes of `jmp rel32`.
pub(super) const JUMP: usize = 5;

/// Moment of a call at which a probe runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// Before the first instruction.
    Entry,
    /// Before a RET, or the RET of a function that this one leaves to by a jump. The program's registers are those of the
    /// caller, as a kernel's uretprobe has them.
    Return,
    /// Before another instruction, or before a RET with the registers as they are there.
    Inside,
}

/// A place in a function for a jump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The function.
    pub function: String,
    /// The kind of place.
    pub when: When,
    /// Address of the jump.
    pub address: u64,
    /// The bytes that it replaces.
    pub original: [u8; JUMP],
    /// True if the function is Go's.
    pub is_go: bool,
    /// True if it leaves there by a jump to another function: the last of the instructions.
    pub(super) is_tail: bool,
    /// The instructions that it replaces, at least partly.
    pub(super) instructions: Vec<Instruction>,
    /// Which of them the program runs before. For a RET, it is the last.
    pub(super) probed: usize,
}

/// The places where a function returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returns {
    /// The RETs, and the jumps to other functions, that can be probed.
    pub sites: Vec<Site>,
    /// Offsets in the function at which it returns unseen, and why.
    pub unseen: Vec<(u64, &'static str)>,
}

impl Site {
    /// The place for a probe at a function's entry. An error where its first 5 bytes can't be replaced.
    pub fn entry(function: &Function) -> Result<Self> {
        let decoded = Decoded::new(function)?;
        let taken = decoded
            .forward(0, "its first 5 bytes")
            .map_err(|reason| decoded.refuse(reason))?;
        Ok(decoded.site(When::Entry, taken, 0))
    }

    /// The place for a probe at the instruction that begins at an offset in a function; at offset 0, its entry. An
    /// error where none begins there, or where it can't be replaced.
    pub fn at(function: &Function, offset: u64) -> Result<Self> {
        if offset == 0 {
            return Self::entry(function);
        }
        let address = function.offset(offset)?;
        let decoded = Decoded::new(function)?;
        let index = decoded.index(address)?;
        let refuse = |reason: String| Error::Unpatchable {
            function: format!("{}+{offset:#x}", function.name),
            reason,
        };
        let is_return = decoded.instructions[index].flow_control() == FlowControl::Return;
        if function.is_go && !is_return {
            decoded
                .has_room_in_go(index)
                .map_err(|reason| refuse(reason.to_owned()))?;
        }
        // Programs are C functions, which rely on it to be clear: to test it takes a PUSHF at each hit.
        if decoded.has(Mnemonic::Std) {
            return Err(refuse("the function sets the direction flag".to_owned()));
        }
        if is_return {
            let site = decoded.before_return(index, When::Inside);
            return site.map_err(|reason| refuse(reason.to_owned()));
        }
        let taken = decoded
            .forward(index, "the 5 bytes there")
            .map_err(refuse)?;
        let boundary = |one: &Instruction| (address + 1..address + JUMP as u64).contains(&one.ip());
        if decoded.has_indirect_jump && taken.iter().any(boundary) {
            let reason = "a jump table of the function may lead into the 5 bytes there";
            return Err(refuse(reason.to_owned()));
        }
        Ok(decoded.site(When::Inside, taken, 0))
    }

    /// The places for probes at a function's returns. An error where there is none.
    pub fn returns(function: &Function) -> Result<Returns> {
        let decoded = Decoded::new(function)?;
        let mut returns = Returns {
            sites: Vec::new(),
            unseen: Vec::new(),
        };
        for (index, instruction) in decoded.instructions.iter().enumerate() {
            let offset = instruction.ip() - function.address;
            if instruction.flow_control() == FlowControl::Return {
                match decoded.before_return(index, When::Return) {
                    Ok(site) => returns.sites.push(site),
                    Err(reason) => returns.unseen.push((offset, reason)),
                }
            } else if decoded.is_tail_jump(index) {
                match decoded.before_tail_jump(index) {
                    Ok(site) => returns.sites.push(site),
                    Err(reason) => returns.unseen.push((offset, reason)),
                }
            }
        }
        if returns.sites.is_empty() {
            let first = returns.unseen.first();
            return Err(decoded.refuse(first.map_or("it never returns", |&(_, reason)| reason)));
        }
        Ok(returns)
    }

    /// The address of the instruction that the program runs before.
    pub fn probed(&self) -> u64 {
        self.instructions
            .get(self.probed)
            .map_or(self.address, Instruction::ip)
    }

    /// The return from the function that this one leaves to, as a place of its own: nothing is replaced there. It is done by
    /// a jump. The processor has already taken the caller from its stack of return addresses, when that function ended by
    /// a RET; another one would have it predict all further returns wrong.
    pub(super) fn returning(&self) -> Self {
        let below = MemoryOperand::with_base_displ(Register::RSP, -8);
        let above = MemoryOperand::with_base_displ(Register::RSP, 8);
        let pop = Instruction::with2(Code::Lea_r64_m, Register::RSP, above);
        let jump = Instruction::with1(Code::Jmp_rm64, below);
        Site {
            is_tail: false,
            instructions: vec![
                pop.expect("it is encodable"),
                jump.expect("it is encodable"),
            ],
            probed: 0,
            ..self.clone()
        }
    }

    /// Returns what its counts are for: a function's entry, all of its returns, or one instruction.
    pub(super) fn key(&self, function: &Function) -> (u64, When) {
        match self.when {
            When::Entry | When::Return => (function.address, self.when),
            When::Inside => (self.probed(), self.when),
        }
    }

    /// Returns whether it is the same place, maybe under another name of the function.
    pub(super) fn is_same(&self, other: &Site) -> bool {
        let what = |site: &Site| {
            (
                site.address,
                site.when,
                site.probed,
                site.original,
                site.is_go,
            )
        };
        what(self) == what(other) && self.instructions == other.instructions
    }

    /// Returns whether flags, registers and the red zone have to stay as they are: before any instruction but the first and a
    /// RET of Go, which has no red zone and leaves r12 and the flags dead there.
    pub(super) fn is_amid(&self) -> bool {
        let is_return = |one: &Instruction| one.flow_control() == FlowControl::Return;
        self.when == When::Inside
            && !(self.is_go && self.instructions.get(self.probed).is_some_and(is_return))
    }

    /// Returns whether its instructions reach into these bytes.
    pub(super) fn overlaps(&self, start: u64, end: u64) -> bool {
        self.address < end && start < self.end()
    }

    /// The address after the last of the bytes that belong to the replaced instructions.
    pub fn end(&self) -> u64 {
        let last = self.instructions.last().map_or(0, Instruction::next_ip);
        last.max(self.address + JUMP as u64)
    }

    /// Returns whether a thread at this address would execute half an instruction once the jump is there.
    pub fn is_inside(&self, address: u64) -> bool {
        (self.address + 1..self.address + JUMP as u64).contains(&address)
    }
}

impl Returns {
    /// An error where the function can return unseen.
    pub fn complete(self, function: &Function) -> Result<Vec<Site>> {
        match self.unseen.first() {
            None => Ok(self.sites),
            Some((offset, reason)) => {
                let reason = format!("{reason}, at +{offset:#x}");
                Err(Error::Unpatchable {
                    function: function.name.clone(),
                    reason,
                })
            }
        }
    }
}

/// The addresses of a function's jumps to others. None where its code can't be decoded.
pub(super) fn tail_jumps(function: &Function) -> Vec<u64> {
    let Ok(decoded) = Decoded::new(function) else {
        return Vec::new();
    };
    let all = 0..decoded.instructions.len();
    let tail = all.filter(|&index| decoded.is_tail_jump(index));
    tail.map(|index| decoded.instructions[index].ip()).collect()
}

/// Returns whether an instruction is a CALL.
pub(super) fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

/// Returns whether a CALL can be done by a PUSH and a JMP.
fn is_movable_call(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Call_rel32_64 => true,
        Code::Call_rm64 => {
            let through_stack = [
                instruction.memory_base(),
                instruction.memory_index(),
                instruction.op0_register(),
            ];
            !through_stack.contains(&Register::RSP)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
