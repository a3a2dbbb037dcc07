//! Walks from registers that do not lead to a caller: they end, and take no address that is none.

// Generated code, and a skeleton's life cycle as libbpf-rs has it.
#[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod unwind_registers {
    include!(concat!(env!("OUT_DIR"), "/unwind_registers.skel.rs"));
}

mod require;

use std::mem::MaybeUninit;

use bpfcost_bpf::{
    current_cpu,
    run::{self, SharedProgram},
    timing::store,
    unwind::{KernelSymbols, RuleTable, Unwinder},
};
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use unwind_registers::UnwindRegistersSkelBuilder;

/// Not of the kernel: its loads there give 0.
const NO_STACK: u64 = 0x1000;
/// As far from `_stext` as generated code is: behind the modules of any machine.
const GENERATED: u64 = 0xffff_ffff_fe00_0000;
/// `UNWIND_LOST` of `unwind_maps.bpf.h`.
const LOST: u32 = 2;

#[test]
fn a_caller_of_address_0_is_none() {
    if !require::host() {
        return;
    }
    let symbols = KernelSymbols::read().expect("symbols");
    let rules = RuleTable::read(&symbols).expect("rules");
    let mut storage = MaybeUninit::uninit();
    let mut open = UnwindRegistersSkelBuilder::default()
        .open(&mut storage)
        .expect("open");
    Unwinder::size(open.open_object_mut(), &rules).expect("sizes");
    let mut program = open.load().expect("load");
    let unwinder = Unwinder::fill(program.object(), &rules).expect("rules that fit");
    let walk = SharedProgram::new(&program.progs.walk).expect("a program");

    let schedule = symbols
        .address("schedule")
        .expect("a function of every kernel");
    for (lost, ip) in [schedule, GENERATED].into_iter().enumerate() {
        let area = program.maps.bss_data.as_deref_mut().expect(".bss");
        store(&mut area.ip, ip);
        store(&mut area.sp, NO_STACK);
        store(&mut area.bp, NO_STACK);
        run::on_cpu(&walk, current_cpu(), &[]).expect("a run");
        let taken = &program.maps.bss_data.as_deref().expect(".bss").stack;
        assert_eq!(
            (taken.depth, taken.end, taken.ip[0]),
            (1, LOST, ip),
            "{ip:#x}"
        );
        assert_eq!(unwinder.losses().lost, lost as u64 + 1);
    }
}
