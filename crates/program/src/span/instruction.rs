//! Instructions as a trace has them: where each lies, and where the next one may be.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

/// An executed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Address.
    pub address: u64,
    /// The address behind it.
    pub next: u64,
    /// Instruction that follows.
    pub flow: Flow,
}

/// The instruction that follows another one, unless an interrupt or a fault comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The one behind it, or itself once more.
    Next,
    /// The one behind it, or another one.
    Branch,
    /// Another one; its address, if the instruction has it.
    Jump(Option<u64>),
    /// The first one of a function that returns behind it.
    Call,
    /// The one behind a call.
    Return,
    /// The one that was interrupted, or the one behind it.
    EndOfInterrupt,
}

impl Instruction {
    /// One of x86-64.
    pub fn decode(address: u64, bytes: &[u8]) -> Self {
        let decoded = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let flow = match decoded.flow_control() {
            FlowControl::UnconditionalBranch => Flow::Jump(Some(decoded.near_branch_target())),
            FlowControl::IndirectBranch => Flow::Jump(None),
            FlowControl::ConditionalBranch => Flow::Branch,
            FlowControl::Call | FlowControl::IndirectCall if is_call(decoded.mnemonic()) => {
                Flow::Call
            }
            FlowControl::Return if decoded.mnemonic() == Mnemonic::Ret => Flow::Return,
            FlowControl::Return => Flow::EndOfInterrupt,
            _ => Flow::Next,
        };
        Instruction {
            address,
            next: address.wrapping_add(bytes.len() as u64),
            flow,
        }
    }

    /// True if it is one of user mode.
    pub fn is_user(&self) -> bool {
        self.address >> 63 == 0
    }
}

/// System calls and hypercalls are calls too, as the decoder has it.
fn is_call(mnemonic: Mnemonic) -> bool {
    mnemonic == Mnemonic::Call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_an_instruction() {
        let flow = |bytes: &[u8]| Instruction::decode(0xffff_ffff_8100_0000, bytes).flow;
        assert_eq!(flow(&[0x90]), Flow::Next);
        assert_eq!(flow(&[0xcc]), Flow::Next, "an int3");
        assert_eq!(flow(&[0x0f, 0x05]), Flow::Next, "a system call");
        assert_eq!(flow(&[0x74, 0x02]), Flow::Branch);
        let near = Flow::Jump(Some(0xffff_ffff_8100_0007));
        assert_eq!(flow(&[0xe9, 2, 0, 0, 0]), near);
        assert_eq!(flow(&[0xff, 0xe0]), Flow::Jump(None), "jmp *%rax");
        assert_eq!(flow(&[0xe8, 0, 0, 0, 0]), Flow::Call);
        assert_eq!(flow(&[0xff, 0xd0]), Flow::Call, "call *%rax");
        assert_eq!(flow(&[0xc3]), Flow::Return);
        assert_eq!(flow(&[0x48, 0xcf]), Flow::EndOfInterrupt);
        let one = Instruction::decode(0xffff_ffff_8100_0000, &[0xe8, 0, 0, 0, 0]);
        assert_eq!(one.next, 0xffff_ffff_8100_0005);
        assert!(!one.is_user() && Instruction::decode(0x40_1000, &[0x90]).is_user());
    }
}
