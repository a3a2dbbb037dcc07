//! Walks from registers that do not lead to a caller: they end, and take no address that is none.

mod require;

use bpfcost_bpf::{
    current_cpu,
    named::OpenNamed,
    run,
    unwind::{KernelSymbols, RuleTable, Unwinder},
};

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
    let mut open = OpenNamed::open("unwind_registers").expect("open");
    Unwinder::size(open.object(), &rules).expect("sizes");
    let mut program = open.load().expect("load");
    let unwinder = Unwinder::fill(program.object(), &rules).expect("rules that fit");
    let walk = program.runnable("walk").expect("a program");

    let schedule = symbols
        .address("schedule")
        .expect("a function of every kernel");
    for (lost, ip) in [schedule, GENERATED].into_iter().enumerate() {
        for (variable, value) in [("ip", ip), ("sp", NO_STACK), ("bp", NO_STACK)] {
            program.set_variable(variable, value).expect("a variable");
        }
        run::on_cpu(&walk, current_cpu(), &[]).expect("a run");
        let (words, _) = program.bytes("stack").expect("a variable").as_chunks::<8>();
        let [counts, first] = [0, 1].map(|word| u64::from_le_bytes(words[word]));
        let [depth, end] = [counts, counts >> 32].map(|word| word as u32);
        assert_eq!((depth, end, first), (1, LOST, ip), "{ip:#x}");
        assert_eq!(unwinder.losses().lost, lost as u64 + 1);
    }
}
