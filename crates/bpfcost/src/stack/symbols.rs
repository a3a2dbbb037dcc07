//! Names of addresses, whatever modules come and go meanwhile.

use std::fs;

use anyhow::{Context, Result};
use bpfcost_bpf::unwind::KernelSymbols;

use super::Frame;

/// The kernel's list of symbols.
const KALLSYMS: &str = "/proc/kallsyms";

/// The kernel's symbols, and those of modules and BPF programs each time that modules came or went. Only these change,
/// so only they are kept more than once.
#[derive(Clone, Debug)]
pub struct SymbolHistory {
    kernel: KernelSymbols,
    modules: Vec<KernelSymbols>,
}

impl SymbolHistory {
    /// From the symbols of now on.
    ///
    /// # Errors
    ///
    /// Where they can't be read.
    pub fn read() -> Result<Self> {
        Ok(SymbolHistory::new(&list()?))
    }

    /// Modules came or went: adds the symbols from now on.
    ///
    /// # Errors
    ///
    /// Where they can't be read.
    pub fn push(&mut self) -> Result<()> {
        self.add(&list()?);
        Ok(())
    }

    /// Reads the latest symbols anew: BPF programs come and go unnoticed.
    ///
    /// # Errors
    ///
    /// Where they can't be read.
    pub fn renew(&mut self) -> Result<()> {
        self.modules.pop();
        self.push()
    }

    /// From these symbols on, as the kernel lists them.
    pub(super) fn new(list: &str) -> Self {
        let mut history = SymbolHistory {
            kernel: KernelSymbols::parse(&lines(list, false)),
            modules: Vec::new(),
        };
        history.add(list);
        history
    }

    pub(super) fn add(&mut self, list: &str) {
        self.modules.push(KernelSymbols::parse(&lines(list, true)));
    }

    /// An address of a stack that was taken in that generation: after modules came or went so often.
    pub fn frame(&self, address: u64, generation: usize) -> Frame {
        let modules = self.modules.get(generation).or(self.modules.last());
        // Modules lie above the kernel.
        let symbol = modules
            .and_then(|modules| modules.symbol(address))
            .or_else(|| self.kernel.symbol(address));
        match symbol {
            Some(symbol) => Frame {
                address,
                name: symbol.name.to_owned(),
                module: symbol.module.map(str::to_owned),
                offset: symbol.offset,
            },
            None => Frame {
                address,
                name: format!("{address:#x}"),
                module: None,
                offset: 0,
            },
        }
    }
}

fn list() -> Result<String> {
    fs::read_to_string(KALLSYMS).with_context(|| format!("cannot read {KALLSYMS}"))
}

/// The functions of the list that are the kernel's own, or those of modules and BPF programs.
fn lines(list: &str, of_modules: bool) -> String {
    let is_function = |line: &str| {
        let kind = line.split_ascii_whitespace().nth(1);
        matches!(kind, Some("t" | "T" | "w" | "W"))
    };
    let of_module = |line: &str| line.ends_with(']');
    let wanted = list
        .lines()
        .filter(|line| of_module(line) == of_modules && is_function(line));
    wanted.flat_map(|line| [line, "\n"]).collect()
}
