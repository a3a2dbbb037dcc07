//! Where in a function a jump can be written: over its first bytes, and over its RETs.
//!
//! A jump takes 5 bytes. The instructions that it overwrites are executed elsewhere, so no branch may lead into
//! them, and no return address may: a CALL is among them only as the last.

use super::{
    error::{Error, Result},
    image::Function,
};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// The bytes of `jmp rel32`.
pub(super) const JUMP: usize = 5;

/// Where in a call a probe runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// Before the first instruction.
    Entry,
    /// Before a RET.
    Return,
}

/// A place in a function for a jump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The function.
    pub function: String,
    /// What the place is.
    pub when: When,
    /// Where the jump begins.
    pub address: u64,
    /// The bytes that it replaces.
    pub original: [u8; JUMP],
    /// Whether the function is Go's.
    pub is_go: bool,
    /// The instructions that it replaces, at least partly. Of a return, the last is the RET.
    pub(super) instructions: Vec<Instruction>,
}

/// The places where a function returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Returns {
    /// The RETs that can be probed.
    pub sites: Vec<Site>,
    /// Offsets in the function at which it returns unseen, and why.
    pub unseen: Vec<(u64, &'static str)>,
}

/// A function, decoded.
struct Decoded<'a> {
    function: &'a Function,
    instructions: Vec<Instruction>,
    /// Where its branches lead, by ascending address.
    targets: Vec<u64>,
    has_indirect_jump: bool,
}

impl Site {
    /// The place for a probe at a function's entry. An error where its first 5 bytes can't be replaced.
    pub fn entry(function: &Function) -> Result<Self> {
        let decoded = Decoded::new(function)?;
        let mut length = 0;
        let mut taken = Vec::new();
        for instruction in &decoded.instructions {
            if length >= JUMP {
                break;
            }
            length += instruction.len();
            taken.push(*instruction);
            if ends(instruction) {
                break;
            }
            if is_call(instruction) && length < JUMP {
                return Err(decoded.refuse("a call lies in its first 5 bytes"));
            }
        }
        if length < JUMP && !decoded.is_padding(function.address + length as u64, JUMP - length) {
            return Err(decoded.refuse("it is shorter than 5 bytes, with the padding behind it"));
        }
        if decoded.is_target(function.address + 1, function.address + JUMP as u64) {
            return Err(decoded.refuse("a branch leads into its first 5 bytes"));
        }
        if taken
            .iter()
            .any(|one| is_call(one) && !is_movable_call(one))
        {
            return Err(decoded.refuse("it begins with a call that can't be moved"));
        }
        Ok(decoded.site(When::Entry, function.address, taken))
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
                match decoded.before_return(index) {
                    Ok(site) => returns.sites.push(site),
                    Err(reason) => returns.unseen.push((offset, reason)),
                }
            } else if decoded.is_tail_jump(index) {
                returns
                    .unseen
                    .push((offset, "it leaves by a jump to another function"));
            }
        }
        if returns.sites.is_empty() {
            return Err(decoded.refuse(
                returns
                    .unseen
                    .first()
                    .map_or("it never returns", |&(_, reason)| reason),
            ));
        }
        Ok(returns)
    }

    /// The address after the last of the bytes that belong to the replaced instructions.
    pub fn end(&self) -> u64 {
        let last = self.instructions.last().map_or(0, Instruction::next_ip);
        last.max(self.address + JUMP as u64)
    }

    /// Whether a thread at this address would execute half an instruction once the jump is there.
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

impl<'a> Decoded<'a> {
    fn new(function: &'a Function) -> Result<Self> {
        let mut decoder =
            Decoder::with_ip(64, &function.code, function.address, DecoderOptions::NONE);
        let mut instructions = Vec::new();
        let mut targets = Vec::new();
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

    /// Whether a branch leads to an address from `start` on, and before `end`.
    fn is_target(&self, start: u64, end: u64) -> bool {
        let first = self.targets.partition_point(|&target| target < start);
        self.targets.get(first).is_some_and(|&target| target < end)
    }

    /// Whether these bytes are never executed: nops or breakpoints behind an instruction that doesn't go on.
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
            let dead = matches!(
                instruction.mnemonic(),
                iced_x86::Mnemonic::Nop | iced_x86::Mnemonic::Int3
            );
            // A nop in the middle of the function that is wider than needed is overwritten in part.
            if !dead || instruction.is_invalid() {
                return false;
            }
        }
        !self.is_target(start, end)
    }

    /// The place for a jump that leads to a RET: its own bytes and padding, or as few instructions before it as
    /// there have to be.
    fn before_return(&self, index: usize) -> Result<Site, &'static str> {
        let ret = &self.instructions[index];
        let mut first = index;
        loop {
            let start = self.instructions[first].ip();
            let length = (ret.next_ip() - start) as usize;
            if length >= JUMP || self.is_padding(ret.next_ip(), JUMP - length) {
                return Ok(self.site(
                    When::Return,
                    start,
                    self.instructions[first..=index].to_vec(),
                ));
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

    /// Whether a jump leaves the function. One through a table stays.
    fn is_tail_jump(&self, index: usize) -> bool {
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
                            ) && pair[1].mnemonic() == iced_x86::Mnemonic::Add
                        });
                !from_table && !computed
            }
            _ => false,
        }
    }

    fn site(&self, when: When, address: u64, instructions: Vec<Instruction>) -> Site {
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
            instructions,
        }
    }

    fn refuse(&self, reason: &str) -> Error {
        Error::Unpatchable {
            function: self.function.name.clone(),
            reason: reason.to_owned(),
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

/// Whether execution never goes on behind an instruction.
fn ends(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    )
}

/// Whether an instruction is a CALL.
pub(super) fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

/// Whether a CALL can be done by a PUSH and a JMP.
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
mod tests {
    use super::*;

    /// A function at 0x1000 with this code, and nops behind it.
    fn function(code: &[u8]) -> Function {
        let (name, code, padding) = ("f".to_owned(), code.to_vec(), vec![0x90; 8]);
        Function {
            name,
            address: 0x1000,
            code,
            padding,
            is_go: false,
        }
    }

    fn reason<T: std::fmt::Debug>(result: Result<T>) -> String {
        match result.unwrap_err() {
            Error::Unpatchable { reason, .. } => reason,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn whole_instructions_are_taken_from_every_prologue() {
        let cases: [(&[u8], usize); 5] = [
            (&[0x55, 0x48, 0x89, 0xe5, 0x31, 0xc0, 0x5d, 0xc3], 6), // push rbp; mov rbp, rsp; xor eax, eax
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3], 5),       // endbr64; push rbp
            (&[0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3], 5),             // nop5
            (&[0x48, 0x83, 0xec, 0x08, 0xe8, 0, 0, 0, 0, 0xc3], 9), // sub rsp, 8; call
            (&[0x31, 0xc0, 0xc3], 5),                               // xor eax, eax; ret; padding
        ];
        for (code, length) in cases {
            let site = Site::entry(&function(code)).unwrap();
            assert_eq!(site.end(), 0x1000 + length as u64, "{code:x?}");
        }
    }

    #[test]
    fn what_a_jump_would_break_is_refused() {
        let mut short = function(&[0x31, 0xc0, 0xc3]);
        short.padding = vec![0x55; 8];
        assert_eq!(
            reason(Site::entry(&short)),
            "it is shorter than 5 bytes, with the padding behind it"
        );
        // push rbx; dec eax (+1); jne +1
        let looped = function(&[0x53, 0xff, 0xc8, 0x75, 0xfc, 0x5b, 0xc3]);
        assert_eq!(
            reason(Site::entry(&looped)),
            "a branch leads into its first 5 bytes"
        );
        // call rax (2 bytes); nop; nop; nop; ret
        let called = function(&[0xff, 0xd0, 0x90, 0x90, 0x90, 0xc3]);
        assert_eq!(
            reason(Site::entry(&called)),
            "a call lies in its first 5 bytes"
        );
        // sub rsp, 8; call [rsp + 8]
        let through = function(&[0x48, 0x83, 0xec, 0x08, 0xff, 0x54, 0x24, 0x08, 0xc3]);
        assert_eq!(
            reason(Site::entry(&through)),
            "it begins with a call that can't be moved"
        );
        assert_eq!(
            reason(Site::entry(&function(&[0x06, 0x90, 0x90, 0x90, 0x90]))),
            "its code can't be decoded at +0x0"
        );
    }

    #[test]
    fn a_branch_to_the_first_byte_is_none_into_the_patch() {
        // sub rsp, 16; jmp to the start
        let site = Site::entry(&function(&[0x48, 0x83, 0xec, 0x10, 0xeb, 0xfa])).unwrap();
        assert_eq!(site.end(), 0x1006);
    }

    #[test]
    fn a_ret_takes_its_padding_or_what_is_before_it() {
        let padded = Site::returns(&function(&[0x55, 0x5d, 0xc3])).unwrap();
        assert_eq!(
            (padded.sites[0].address, padded.sites[0].instructions.len()),
            (0x1002, 1)
        );
        assert_eq!(padded.sites[0].original, [0xc3, 0x90, 0x90, 0x90, 0x90]);
        // add rsp, 24; ret; then more code: push rbp; pop rbp; jmp to the start
        let squeezed = Site::returns(&function(&[
            0x48, 0x83, 0xc4, 0x18, 0xc3, 0x55, 0x5d, 0xeb, 0xf7,
        ]))
        .unwrap();
        assert_eq!(
            (
                squeezed.sites[0].address,
                squeezed.sites[0].instructions.len()
            ),
            (0x1000, 2)
        );
        assert!(squeezed.unseen.is_empty());
    }

    #[test]
    fn returns_that_no_jump_fits_are_named() {
        // je +6 (to the second ret's pop); nop3; ret; pop rbp (target); ret
        let mut tight = function(&[0x74, 0x04, 0x0f, 0x1f, 0x00, 0xc3, 0x5d, 0xc3]);
        tight.padding.clear();
        assert_eq!(
            reason(Site::returns(&tight)),
            "a call or a jump lies in the 5 bytes that end with its RET"
        );
        // test edi, edi; jne 0x2000 (another function); ret
        let tail = function(&[0x85, 0xff, 0x0f, 0x85, 0xf8, 0x0f, 0x00, 0x00, 0xc3]);
        let returns = Site::returns(&tail).unwrap();
        assert_eq!(
            returns.unseen,
            [(2, "it leaves by a jump to another function")]
        );
        let reason = reason(returns.complete(&tail));
        assert_eq!(reason, "it leaves by a jump to another function, at +0x2");
        // jmp rax; ret
        let indirect = Site::returns(&function(&[0xff, 0xe0, 0xc3])).unwrap();
        assert_eq!(indirect.unseen.len(), 1);
    }
}
