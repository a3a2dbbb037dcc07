//! `bpf/unwind_example.bpf.c` as an outside program would use it: this crate's rules and stacks.

mod require;

use bpfcost_bpf::{
    current_cpu,
    named::OpenNamed,
    run,
    unwind::{KernelSymbols, RuleTable, Unwinder},
};
use libbpf_rs::OpenProgramMut;

const CALLS: u64 = 1000;

#[test]
fn an_outside_program_counts_stacks() {
    if !require::host() {
        return;
    }
    let symbols = KernelSymbols::read().expect("symbols");
    let rules = RuleTable::read(&symbols).expect("rules");

    let mut open = OpenNamed::open("unwind_example").expect("open");
    // The machine may have no modules.
    for program in ["on_module_load", "on_module_free"] {
        let leave_out = |program: &mut OpenProgramMut<'_>| {
            program.set_autoload(false);
            Ok(())
        };
        open.change_program(program, leave_out).expect("a program");
    }
    Unwinder::size(open.object(), &rules).expect("sizes");
    let mut example = open.load().expect("load");
    let unwinder = Unwinder::fill(example.object(), &rules).expect("rules that fit");

    let note = example.runnable("note_process").expect("a program");
    run::on_cpu(&note, current_cpu(), &[]).expect("a run");
    let on_call = example.program("on_call").expect("a program");
    let link = on_call
        .attach_raw_tracepoint("sys_enter")
        .expect("attached");
    for _ in 0..CALLS {
        let _ = std::fs::metadata("/");
    }
    // Other threads of this process make system calls too: none is counted from here on.
    let nobody = u32::MAX.into();
    example.set_variable("process", nobody).expect("a variable");
    drop(link);

    let calls = example.variable("calls").expect("a variable");
    let stacks = unwinder.stacks();
    let counted: u64 = stacks.iter().map(|stack| stack.count).sum();
    assert!(calls >= CALLS, "{calls}");
    assert_eq!(counted, calls, "{stacks:?}");
    assert_eq!(unwinder.losses(), Default::default());
    for stack in stacks {
        let addresses = unwinder.addresses(stack.leaf);
        let names: Vec<&str> = (addresses.iter())
            .filter_map(|address| Some(symbols.symbol(*address)?.name))
            .collect();
        let outermost = names.last().expect("a name");
        assert!(outermost.starts_with("entry_"), "{names:?}");
        assert!(
            names.iter().any(|name| name.starts_with("do_")),
            "{names:?}"
        );
        assert_eq!(unwinder.generation(stack.leaf), Default::default());
    }
}
