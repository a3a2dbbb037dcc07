//! `bpf/unwind_example.bpf.c` as an outside program would use it: its own skeleton, this crate's rules and stacks.

// Generated code, and a skeleton's life cycle as libbpf-rs has it.
#[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod unwind_example {
    include!(concat!(env!("OUT_DIR"), "/unwind_example.skel.rs"));
}

mod require;

use std::mem::MaybeUninit;

use bpfcost_bpf::{
    current_cpu,
    run::{self, SharedProgram},
    timing::{fetch, store},
    unwind::{KernelSymbols, RuleTable, Unwinder},
};
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use unwind_example::UnwindExampleSkelBuilder;

const CALLS: u64 = 1000;

#[test]
fn an_outside_program_counts_stacks() {
    if !require::host() {
        return;
    }
    let symbols = KernelSymbols::read().expect("symbols");
    let rules = RuleTable::read(&symbols).expect("rules");

    let mut storage = MaybeUninit::uninit();
    let mut open = UnwindExampleSkelBuilder::default()
        .open(&mut storage)
        .expect("open");
    // The machine may have no modules.
    open.progs.on_module_load.set_autoload(false);
    open.progs.on_module_free.set_autoload(false);
    Unwinder::size(open.open_object_mut(), &rules).expect("sizes");
    let mut example = open.load().expect("load");
    let unwinder = Unwinder::fill(example.object(), &rules).expect("rules that fit");

    let note = SharedProgram::new(&example.progs.note_process).expect("a program");
    run::on_cpu(&note, current_cpu(), &[]).expect("a run");
    let link = example
        .progs
        .on_call
        .attach_raw_tracepoint("sys_enter")
        .expect("attached");
    for _ in 0..CALLS {
        let _ = std::fs::metadata("/");
    }
    // Other threads of this process make system calls too: none is counted from here on.
    let area = example.maps.bss_data.as_deref_mut().expect(".bss");
    store(&mut area.process, u32::MAX);
    drop(link);

    let calls = fetch(&example.maps.bss_data.as_deref().expect(".bss").calls);
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
