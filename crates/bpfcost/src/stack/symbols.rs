//! Names of addresses, whatever modules come and go meanwhile.

use std::{collections::HashMap, fs};

use anyhow::{Context, Result};
use bpfcost_bpf::unwind::{Generation, KernelSymbols, SymbolRef};

use super::Frame;

/// The kernel's list of symbols.
const KALLSYMS: &str = "/proc/kallsyms";
/// The kernel's list of modules: name, size, users, their names, state, start.
const MODULES: &str = "/proc/modules";

/// The module that BPF programs stand under.
const BPF: &str = "bpf";

/// The kernel's symbols, and those of modules and BPF programs each time that modules came or went. Only these change,
/// so only they are kept more than once.
#[derive(Clone, Debug)]
pub struct SymbolHistory {
    /// All symbols of the first time, of which the kernel's own count.
    kernel: KernelSymbols,
    modules: Vec<Modules>,
}

/// Modules and BPF programs at a time.
#[derive(Clone, Debug)]
struct Modules {
    symbols: KernelSymbols,
    /// Upper bound of each module's end. Its last function would have no end otherwise.
    ends: HashMap<String, u64>,
}

impl Modules {
    fn new(symbols: KernelSymbols, modules: &str) -> Self {
        let end = |line: &str| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let start = u64::from_str_radix(words.get(5)?.strip_prefix("0x")?, 16).ok()?;
            let size: u64 = words.get(1)?.parse().ok()?;
            Some(((*words.first()?).to_owned(), start.checked_add(size)?))
        };
        Modules {
            symbols,
            ends: modules.lines().filter_map(end).collect(),
        }
    }

    fn symbol(&self, address: u64) -> Option<SymbolRef<'_>> {
        let end = |symbol: &SymbolRef<'_>| self.ends.get(symbol.module?).copied();
        let symbol = self.symbols.symbol(address);
        symbol.filter(|symbol| end(symbol).is_none_or(|end| address < end))
    }
}

impl SymbolHistory {
    /// From these symbols on, with the modules of now.
    pub fn new(symbols: KernelSymbols) -> Self {
        SymbolHistory::with(symbols, &modules())
    }

    /// Adds the symbols from now on: modules came or went, or it ends, and BPF programs that came meanwhile have names.
    ///
    /// # Errors
    ///
    /// Where they can't be read.
    pub fn push(&mut self) -> Result<()> {
        let list = fs::read_to_string(KALLSYMS);
        let list = list.with_context(|| format!("cannot read {KALLSYMS}"))?;
        self.add(&KernelSymbols::parse(list), &modules());
        Ok(())
    }

    /// From these symbols on, and modules as the kernel lists them.
    pub(crate) fn with(symbols: KernelSymbols, modules: &str) -> Self {
        let mut history = SymbolHistory {
            kernel: KernelSymbols::default(),
            modules: Vec::new(),
        };
        history.add(&symbols, modules);
        history.kernel = symbols;
        history
    }

    pub(super) fn add(&mut self, symbols: &KernelSymbols, modules: &str) {
        let symbols = symbols.of_modules();
        self.modules.push(Modules::new(symbols, modules));
    }

    /// An address of a stack that was taken then.
    pub fn frame(&self, address: u64, generation: Generation) -> Frame {
        let own = || {
            self.kernel
                .symbol(address)
                .filter(|symbol| symbol.module.is_none())
        };
        let symbol = self.of_module(address, generation).or_else(own);
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

    fn of_module(&self, address: u64, generation: Generation) -> Option<SymbolRef<'_>> {
        let known = self.modules.get(generation.rules..).unwrap_or_default();
        let mut symbols = known.iter().map(|modules| modules.symbol(address));
        let then = symbols.next()?;
        let mut later = symbols.peekable();
        if generation.is_stale {
            // What lies there all the time is known, and nothing else.
            return then.filter(|_| later.peek().is_some() && later.all(|symbol| symbol == then));
        }
        // BPF programs come and go unnoticed, and are named from the next list on.
        let next = later.next().flatten();
        let is_program = |symbol: &SymbolRef<'_>| symbol.module == Some(BPF);
        let nearer = |next: &SymbolRef<'_>| {
            then.is_none_or(|then| is_program(&then) && next.offset < then.offset)
        };
        next.filter(|next| is_program(next) && nearer(next))
            .or(then)
    }
}

/// Kernels without modules have no such list.
fn modules() -> String {
    fs::read_to_string(MODULES).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
ffffffff81000000 T entry
ffffffffc0000000 t dummy_xmit\t[dummy]
ffffffffc0004000 t loop_queue\t[loop]
";
    const MODULES: &str = "\
dummy 8192 0 - Live 0xffffffffc0000000
loop 8192 0 - Live 0xffffffffc0004000
";
    const IN_DUMMY: u64 = 0xffffffffc0000010;
    const IN_LOOP: u64 = 0xffffffffc0004010;
    const BEHIND_DUMMY: u64 = 0xffffffffc0003000;

    /// A history in which `dummy` was replaced by `ifb`, and a BPF program came behind it.
    fn history() -> SymbolHistory {
        let mut history = SymbolHistory::with(KernelSymbols::parse(SYMBOLS), MODULES);
        let list = SYMBOLS.replace("dummy", "ifb") + "ffffffffc0003000 t on_event\t[bpf]\n";
        history.add(
            &KernelSymbols::parse(list),
            &MODULES.replace("dummy", "ifb"),
        );
        history
    }

    fn name(address: u64, rules: usize, is_stale: bool) -> String {
        let generation = Generation { rules, is_stale };
        history().frame(address, generation).to_string()
    }

    #[test]
    fn what_was_replaced_has_the_name_of_its_time() {
        assert_eq!(name(IN_DUMMY, 0, false), "dummy_xmit+0x10 [dummy]");
        assert_eq!(name(IN_DUMMY, 1, false), "ifb_xmit+0x10 [ifb]");
    }

    #[test]
    fn a_stale_address_has_a_name_where_it_did_not_change() {
        assert_eq!(name(IN_DUMMY, 0, true), format!("{IN_DUMMY:#x}"));
        assert_eq!(name(IN_LOOP, 0, true), "loop_queue+0x10 [loop]");
        assert_eq!(name(0xffffffff81000004, 0, true), "entry+0x4");
        // What comes after the last list is not known.
        assert_eq!(name(IN_LOOP, 1, true), format!("{IN_LOOP:#x}"));
    }

    #[test]
    fn a_module_ends_where_the_kernel_says() {
        let mut history = SymbolHistory::with(KernelSymbols::parse(SYMBOLS), MODULES);
        let frame = |history: &SymbolHistory| {
            history
                .frame(BEHIND_DUMMY, Generation::default())
                .to_string()
        };
        assert_eq!(frame(&history), format!("{BEHIND_DUMMY:#x}"));
        history.add(&KernelSymbols::parse(SYMBOLS), "");
        assert_eq!(frame(&history), format!("{BEHIND_DUMMY:#x}"));
        assert_eq!(name(BEHIND_DUMMY, 0, false), "on_event [bpf]");
    }

    #[test]
    fn programs_are_named_by_the_list_that_is_nearer() {
        let program = |at: &str| format!("{SYMBOLS}ffffffffc00{at} t program_{at}\t[bpf]\n");
        let mut history = SymbolHistory::with(KernelSymbols::parse(program("10000")), MODULES);
        history.add(
            &KernelSymbols::parse(program("10000") + &program("10100")),
            MODULES,
        );
        let frame = |address| history.frame(address, Generation::default()).to_string();
        assert_eq!(frame(0xffffffffc0010010), "program_10000+0x10 [bpf]");
        assert_eq!(frame(0xffffffffc0010110), "program_10100+0x10 [bpf]");
    }
}
