//! Limits of translated code, checked by a decoder: no vector register, no memory but BPF's and its own frame.

use bpfcost_uprobe::translate::MachineCode;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

/// The registers that hold BPF's pointers: R0 to R9, R0's copy during a fetching operation, which also leads to the
/// state of an arena's pages, and a checked address in an arena.
const BASES: [Register; 12] = [
    Register::RAX,
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::RBX,
    Register::R13,
    Register::R14,
    Register::R15,
    Register::R11,
    Register::R9,
];

/// The first thing in some code that it must not do.
pub(crate) fn violation(code: &[u8], at: u64, is_bpf: bool) -> Option<String> {
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let failed = |why: &str| {
            Some(format!(
                "{why}: {instruction:?} at {:#x}",
                instruction.ip() - at
            ))
        };
        if instruction.is_invalid() {
            return failed("not an instruction");
        }
        let info = factory.info(&instruction);
        for used in info.used_registers() {
            let register = used.register();
            if register.is_vector_register()
                || register.is_st()
                || register.is_mm()
                || register.is_k()
                || register.is_tmm()
            {
                return failed("a vector register");
            }
        }
        if is_bpf
            && matches!(
                instruction.flow_control(),
                FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend
            )
        {
            return failed("an interrupt");
        }
        for memory in info.used_memory() {
            let writes = !matches!(
                memory.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
            );
            if !writes || !is_bpf {
                continue;
            }
            let is_frame = memory.base() == Register::RBP
                && memory.displacement().cast_signed() < 0
                && memory.displacement().cast_signed() >= -1024;
            let is_push = memory.base() == Register::RSP
                && matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Call);
            let is_bpf_memory = BASES.contains(&memory.base());
            if memory.index() != Register::None || !(is_frame || is_push || is_bpf_memory) {
                return failed("a write to other memory");
            }
        }
    }
    None
}

/// The same, of a translated program.
pub(crate) fn program_violation(code: &MachineCode, at: u64) -> Option<String> {
    violation(&code.bytes, at, true)
}
