//! A walk over the machine code with a decoder.

use super::*;
use crate::process::image::{Function, TailJump};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, OpKind, Register};

const ADDRESS: u64 = 0x7000_0000;
const LAYOUT: Layout = Layout {
    base: 0x7f12_3456_0000,
    areas: 100,
    children: Some(0x7e00_0000_0000),
};

/// The proof with all of its code.
const PROOF: Proof = Proof {
    counter: Some(0x7d00_0000_0000),
    asks: true,
};

fn trampolines() -> Vec<(Site, Trampoline)> {
    let mut all = Vec::new();
    for is_go in [false, true] {
        // push rbp; mov rbp, rsp; xor eax, eax; add rsp, 24; ret
        let code = vec![
            0x55, 0x48, 0x89, 0xe5, 0x31, 0xc0, 0x48, 0x83, 0xc4, 0x18, 0xc3,
        ];
        let (name, padding) = ("f".to_owned(), Vec::new());
        let function = Function {
            name,
            address: 0x7100_0000,
            code,
            padding,
            is_go,
            entrances: Vec::new(),
            is_described: true,
            tail_jumps: Vec::new(),
        };
        let mut sites = vec![
            Site::entry(&function).unwrap(),
            Site::returns(&function).unwrap().sites.remove(0),
            Site::at(&function, 10).unwrap(),
        ];
        if is_go {
            // cmp rsp, [r14 + 16]; jbe to the end; mov eax, 1; ret
            let mut tested = function.clone();
            tested.code = vec![
                0x49, 0x3b, 0x66, 0x10, 0x76, 0x06, 0xb8, 0x01, 0x00, 0x00, 0x00, 0xc3,
            ];
            sites.push(Site::at(&tested, 6).unwrap());
        } else {
            sites.push(Site::at(&function, 4).unwrap());
        }
        for site in sites {
            let context = Context {
                layout: LAYOUT,
                proof: PROOF,
                slot: 7,
                function: function.address,
                role: Role::Probe,
            };
            let trampoline = Trampoline::assemble(ADDRESS, &site, context).unwrap();
            all.push((site, trampoline));
        }
    }
    all
}

fn decode(trampoline: &Trampoline) -> Vec<Instruction> {
    // Four numbers come first.
    let mut decoder = Decoder::with_ip(
        64,
        &trampoline.bytes[32..],
        ADDRESS + 32,
        DecoderOptions::NONE,
    );
    decoder.iter().collect()
}

#[test]
fn no_vector_register_is_touched_and_nothing_written_to_the_threads_stack() {
    let mut factory = InstructionInfoFactory::new();
    for (site, trampoline) in trampolines() {
        let own = decode(&trampoline)
            .into_iter()
            .filter(|one| trampoline.own.contains(&one.ip()));
        let is_amid = site.is_amid();
        let mut on_own_stack = false;
        // How far the thread's stack pointer is below where it was.
        let mut below = 0;
        let mut calls = 0;
        for instruction in own {
            assert!(!instruction.is_invalid(), "{instruction:?}");
            let info = factory.info(&instruction);
            for used in info.used_registers() {
                let register = used.register();
                assert!(
                    !register.is_vector_register() && !register.is_st() && !register.is_mm(),
                    "{instruction:?}"
                );
            }
            // From the switch of stacks to the switch back, the stack pointer is ours.
            if instruction.op0_register() == Register::RSP {
                let is_lea = instruction.code() == Code::Lea_r64_m;
                if is_lea && instruction.memory_base() == Register::RSP {
                    below -= instruction.memory_displacement64() as i64;
                } else {
                    on_own_stack = is_lea;
                }
            }
            let writes = [
                OpAccess::Write,
                OpAccess::ReadWrite,
                OpAccess::CondWrite,
                OpAccess::ReadCondWrite,
            ];
            for used in info
                .used_memory()
                .iter()
                .filter(|used| writes.contains(&used.access()))
            {
                // The one exception, and below the red zone the flags as well. A system call changes RCX.
                let registers: &[_] = match (is_amid, site.is_go) {
                    (true, _) if below < 128 => &[],
                    (false, true) => &[],
                    _ => &[Register::R11, Register::RAX, Register::RCX],
                };
                let saves = instruction.code() == Code::Push_r64
                    && registers.contains(&instruction.op0_register());
                assert!(
                    used.base() != Register::RSP || on_own_stack || saves,
                    "{instruction:?}"
                );
                assert!(used.base() != Register::RBP, "{instruction:?}");
                let scratch = if site.is_go && !is_amid {
                    Register::R12
                } else {
                    Register::R11
                };
                let known = [scratch, Register::RDX, Register::RSP].contains(&used.base());
                assert!(known || used.segment() == Register::GS, "{instruction:?}");
            }
            if !on_own_stack {
                below -= i64::from(instruction.stack_pointer_increment());
            }
            // System calls are of a forked child, once, and where a process may share the memory.
            let is_system_call = instruction.code() == Code::Syscall;
            calls += usize::from(is_call(&instruction) && !is_system_call);
        }
        assert!(!on_own_stack);
        assert_eq!(below, 0);
        assert_eq!(calls, 1);
    }
}

#[test]
fn flags_are_saved_before_they_change_and_restored_last() {
    let amid = trampolines().into_iter().filter(|(site, _)| site.is_amid());
    let mut count = 0;
    for (_, trampoline) in amid {
        let own: Vec<_> = decode(&trampoline)
            .into_iter()
            .filter(|one| trampoline.own.contains(&one.ip()))
            .collect();
        let at = |code| own.iter().position(|one| one.code() == code).unwrap();
        let changes = |one: &Instruction| one.rflags_modified() != 0;
        let (saved, restored) = (at(Code::Seto_rm8).max(at(Code::Lahf)), at(Code::Sahf));
        assert!(!own[..=saved].iter().any(changes));
        assert!(!own[restored + 1..].iter().any(changes));
        // Nothing leaves but through the end.
        assert!(own.iter().all(|one| {
            one.op0_kind() != OpKind::NearBranch64
                || trampoline.own.contains(&one.near_branch_target())
        }));
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn entries_and_insides_are_probed_before_their_moved_code_and_rets_after_it() {
    for (site, trampoline) in trampolines() {
        let code = decode(&trampoline);
        let at = |address| {
            code.iter()
                .find(|one| one.ip() == address)
                .copied()
                .unwrap()
        };
        let first = match (site.is_amid(), site.is_go) {
            (true, _) => Code::Lea_r64_m,
            (false, true) => Code::Rdgsbase_r64,
            (false, false) => Code::Push_r64,
        };
        assert_eq!(at(trampoline.own.start).code(), first);
        match site.when {
            When::Entry => {
                assert_eq!(trampoline.entry, trampoline.own.start);
                assert_eq!(at(trampoline.own.end).code(), Code::Push_r64);
                assert_eq!(trampoline.moved[0], (site.address, trampoline.own.end));
                assert!(code.iter().any(|one| one.op0_kind() == OpKind::NearBranch64
                    && one.near_branch_target() == site.end()));
            }
            When::Inside if site.probed == 0 => {
                assert_eq!(trampoline.entry, trampoline.own.start);
                let moved = if site.is_go {
                    Code::Mov_r32_imm32
                } else {
                    Code::Xor_rm32_r32
                };
                assert_eq!(at(trampoline.own.end).code(), moved);
                let back = at(trampoline.back.unwrap());
                assert_eq!(back.code(), Code::Jmp_rel32_64);
                assert_eq!(back.near_branch_target(), site.end());
            }
            When::Return | When::Inside => {
                assert_eq!(trampoline.back, None);
                assert_eq!(at(trampoline.entry).code(), Code::Add_rm64_imm8);
                assert_eq!(at(trampoline.own.end).code(), Code::Retnq);
                assert_eq!(trampoline.moved.last().unwrap().1, trampoline.own.start);
            }
        }
    }
}

#[test]
fn a_moved_call_returns_to_the_function() {
    // sub rsp, 8; call to +0x20; ret
    let code = vec![0x48, 0x83, 0xec, 0x08, 0xe8, 0x17, 0, 0, 0, 0xc3];
    let (name, padding) = ("f".to_owned(), vec![0x90; 8]);
    let function = Function {
        name,
        address: 0x7100_0000,
        code,
        padding,
        is_go: false,
        entrances: Vec::new(),
        is_described: true,
        tail_jumps: Vec::new(),
    };
    let site = Site::entry(&function).unwrap();
    let context = Context {
        layout: LAYOUT,
        proof: PROOF,
        slot: 0,
        function: 0,
        role: Role::Probe,
    };
    let trampoline = Trampoline::assemble(ADDRESS, &site, context).unwrap();
    assert_eq!(trampoline.bytes[16..24], 0x7100_0009_u64.to_le_bytes());
    let code = decode(&trampoline);
    let moved: Vec<_> = code
        .iter()
        .filter(|one| one.ip() >= trampoline.own.end)
        .collect();
    assert_eq!(moved[1].code(), Code::Push_rm64);
    assert_eq!(moved[1].memory_displacement64(), ADDRESS + 16);
    assert_eq!(moved[2].near_branch_target(), 0x7100_0020);
}

#[test]
fn a_jump_to_another_function_changes_its_return_address_alone() {
    // mov eax, 1; jne or jmp to 0x7200_0000
    for jump in [&[0x0f, 0x85][..], &[0xe9]] {
        let mut code = [&[0xb8, 1, 0, 0, 0][..], jump].concat();
        let distance = 0x0100_0000 - code.len() as i32 - 4;
        code.extend(distance.to_le_bytes());
        code.push(0xc3);
        let address = 0x7100_0005;
        let obstacle = None;
        let function = Function {
            name: "f".to_owned(),
            address: 0x7100_0000,
            code,
            padding: vec![0x90; 8],
            is_go: false,
            entrances: Vec::new(),
            is_described: true,
            tail_jumps: vec![TailJump { address, obstacle }],
        };
        let site = Site::returns(&function).unwrap().sites.remove(0);
        let table = Table {
            keys: 0x7300_0000,
            stubs: 0x7400_0000,
        };
        let context = Context {
            layout: LAYOUT,
            proof: PROOF,
            slot: 7,
            function: function.address,
            role: Role::Replace(table),
        };
        let trampoline = Trampoline::assemble(ADDRESS, &site, context).unwrap();
        let mut factory = InstructionInfoFactory::new();
        let (mut pushed, mut popped, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let code = decode(&trampoline);
        for one in code.iter().filter(|one| trampoline.own.contains(&one.ip())) {
            let info = factory.info(one);
            let registers = info.used_registers().iter();
            assert!(
                !registers
                    .map(|used| used.register())
                    .any(Register::is_vector_register)
            );
            match one.code() {
                Code::Push_r64 => pushed.push(one.op0_register()),
                Code::Pop_r64 => popped.insert(0, one.op0_register()),
                Code::Mov_rm64_r64 if one.memory_base() == Register::RSP => {
                    written.push(one.memory_displacement64());
                }
                _ => {}
            }
        }
        assert_eq!(pushed, popped);
        // Behind what was pushed is the return address.
        assert_eq!(written, [8 * pushed.len() as u64]);
        let last = code
            .iter()
            .find(|one| one.ip() == trampoline.own.end)
            .unwrap();
        assert_eq!(last.code(), Code::Jmp_rel32_64);
        assert_eq!(last.near_branch_target(), 0x7200_0000);
        assert_eq!(trampoline.back.is_some(), jump.len() == 2);
        if let Some(back) = trampoline.back {
            let back = code.iter().find(|one| one.ip() == back).unwrap();
            assert_eq!(back.near_branch_target(), site.end());
            // Flags are as they were before it.
            assert_eq!(code[0].code(), Code::Jne_rel8_64);
        }
    }
}
