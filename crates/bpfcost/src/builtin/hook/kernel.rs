//! Places in this kernel by which a trace of it is read, and names for those that a trace has.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use bpfcost_bpf::{
    hook::{Hook, Root, symbols},
    unwind::KernelSymbols,
};
use bpfcost_program::{KernelPlaces, Span};

/// The system calls between which a window lies: no stimulus makes them.
const BEGINS: &str = "sys_getgroups";
const ENDS: &str = "sys_membarrier";

/// Beginnings of the functions of system calls.
const SYSTEM_CALLS: [&str; 2] = ["__x64_", "__arm64_"];

/// Functions to which functions with return probes return: of kretprobes up to 6.1, of them and of fprobes later, of fprobes
/// from 6.14 on.
const RETURNS: [&str; 3] = [
    "__kretprobe_trampoline",
    "arch_rethook_trampoline",
    "return_to_handler",
];

/// Bits of an address within a page.
const PAGE_BITS: u32 = 12;

/// The running kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    symbols: Arc<KernelSymbols>,
    pub(super) places: KernelPlaces,
    pub(super) window: (u64, u64),
    /// Functions whose names begin so: to look for them takes an emulated guest as long as a trace.
    calls: RefCell<BTreeMap<Beginnings, BTreeSet<u64>>>,
}

/// Beginnings of names.
type Beginnings = &'static [&'static str];

impl Kernel {
    pub(super) fn read() -> Result<Self> {
        let symbols = symbols()?;
        let call = |name: &str| {
            let mut names = SYSTEM_CALLS.iter().map(|begin| format!("{begin}{name}"));
            names
                .find_map(|name| symbols.address(&name))
                .with_context(|| format!("the kernel's symbols lack {name}"))
        };
        Ok(Kernel {
            places: places(&symbols),
            window: (call(BEGINS)?, call(ENDS)?),
            calls: RefCell::default(),
            symbols,
        })
    }

    /// The function at an address. Trampolines and the like, which the kernel makes as it attaches, have no name: they lie in
    /// pages of their own, among those of modules.
    pub(super) fn function(&self, address: u64) -> &str {
        let page = |at: u64| at >> PAGE_BITS;
        match self.symbols.symbol(address) {
            Some(found)
                if found.module.is_none() || page(address - found.offset) == page(address) =>
            {
                found.name
            }
            _ => "generated code",
        }
    }

    /// The parts of a trace that are events of a program at this hook.
    pub(super) fn spans(&self, hook: &Hook) -> Result<Vec<Span>> {
        let root = hook.kind.root();
        Ok(match root {
            Root::Entry => self.functions(hook)?,
            Root::Return => vec![Span::Return],
            Root::EntryAndReturn => {
                let mut spans = self.functions(hook)?;
                spans.push(Span::Return);
                spans
            }
            Root::Visit => vec![Span::Visit],
            Root::Caller => vec![Span::Caller],
            Root::Functions(names) => {
                let mut known = self.calls.borrow_mut();
                let functions = known.entry(names).or_insert_with(|| {
                    let all = self.symbols.starting_with("");
                    let functions = all.filter(|(name, _)| root.has_function(name));
                    functions.map(|(_, address)| address).collect()
                });
                vec![Span::Call(functions.clone())]
            }
        })
    }

    /// The functions that a hook is at.
    fn functions(&self, hook: &Hook) -> Result<Vec<Span>> {
        let address = |name: &String| {
            let mut all = self.symbols.starting_with(name);
            let of_module = || all.find(|(one, _)| one == name).map(|(_, address)| address);
            self.symbols.address(name).or_else(of_module)
        };
        let span = |address: u64| {
            let (_, start, end) = self.symbols.containing(address)?;
            Some(Span::Function { start, end })
        };
        let functions = hook.functions()?;
        Ok(functions
            .iter()
            .filter_map(address)
            .filter_map(span)
            .collect())
    }
}

fn places(symbols: &KernelSymbols) -> KernelPlaces {
    let starting = |begin| symbols.starting_with(begin).map(|(_, address)| address);
    // Stubs of equal length, one for each interrupt, which jump to the handler.
    let stubs = ["irq_entries_start", "spurious_entries_start"].into_iter();
    let stubs = stubs.filter_map(|name| {
        let (_, start, end) = symbols.containing(symbols.address(name)?)?;
        Some((start, end))
    });
    let handlers = [
        "asm_sysvec_",
        "asm_common_interrupt",
        "asm_spurious_interrupt",
    ];
    let handlers = handlers.into_iter().flat_map(starting);
    KernelPlaces {
        interrupts: stubs.chain(handlers.map(|at| (at, at + 1))).collect(),
        exceptions: starting("asm_exc_").collect(),
        breakpoint: symbols.address("asm_exc_int3"),
        step: symbols.address("asm_exc_debug"),
        switch: symbols.address("__switch_to_asm"),
        returns: RETURNS
            .iter()
            .filter_map(|name| symbols.address(name))
            .collect(),
    }
}
