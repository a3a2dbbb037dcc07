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
    fn parse(list: &str, modules: &str) -> Self {
        let end = |line: &str| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let start = u64::from_str_radix(words.get(5)?.strip_prefix("0x")?, 16).ok()?;
            let size: u64 = words.get(1)?.parse().ok()?;
            Some(((*words.first()?).to_owned(), start.checked_add(size)?))
        };
        Modules {
            symbols: KernelSymbols::parse(&lines(list, true)),
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
    /// From the symbols of now on.
    ///
    /// # Errors
    ///
    /// Where they can't be read.
    pub fn read() -> Result<Self> {
        let (list, modules) = lists()?;
        Ok(SymbolHistory::new(&list, &modules))
    }

    /// Adds the symbols from now on: modules came or went, or it ends, and BPF programs that came meanwhile have names.
    ///
    /// # Errors
    ///
    /// Where they can't be read.
    pub fn push(&mut self) -> Result<()> {
        let (list, modules) = lists()?;
        self.add(&list, &modules);
        Ok(())
    }

    /// From these symbols on, as the kernel lists them, and its modules.
    pub(crate) fn new(list: &str, modules: &str) -> Self {
        let mut history = SymbolHistory {
            kernel: KernelSymbols::parse(&lines(list, false)),
            modules: Vec::new(),
        };
        history.add(list, modules);
        history
    }

    pub(super) fn add(&mut self, list: &str, modules: &str) {
        self.modules.push(Modules::parse(list, modules));
    }

    /// An address of a stack that was taken then.
    pub fn frame(&self, address: u64, generation: Generation) -> Frame {
        // Modules lie above the kernel.
        let symbol = (self.of_module(address, generation)).or_else(|| self.kernel.symbol(address));
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

fn lists() -> Result<(String, String)> {
    let list = fs::read_to_string(KALLSYMS).with_context(|| format!("cannot read {KALLSYMS}"))?;
    // Kernels without modules have no such list.
    Ok((list, fs::read_to_string(MODULES).unwrap_or_default()))
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
        let mut history = SymbolHistory::new(SYMBOLS, MODULES);
        let list = SYMBOLS.replace("dummy", "ifb") + "ffffffffc0003000 t on_event\t[bpf]\n";
        history.add(&list, &MODULES.replace("dummy", "ifb"));
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
        let mut history = SymbolHistory::new(SYMBOLS, MODULES);
        let frame = |history: &SymbolHistory| {
            history
                .frame(BEHIND_DUMMY, Generation::default())
                .to_string()
        };
        assert_eq!(frame(&history), format!("{BEHIND_DUMMY:#x}"));
        history.add(SYMBOLS, "");
        assert_eq!(frame(&history), format!("{BEHIND_DUMMY:#x}"));
        assert_eq!(name(BEHIND_DUMMY, 0, false), "on_event [bpf]");
    }

    #[test]
    fn programs_are_named_by_the_list_that_is_nearer() {
        let program = |at: &str| format!("{SYMBOLS}ffffffffc00{at} t program_{at}\t[bpf]\n");
        let mut history = SymbolHistory::new(&program("10000"), MODULES);
        history.add(&(program("10000") + &program("10100")), MODULES);
        let frame = |address| history.frame(address, Generation::default()).to_string();
        assert_eq!(frame(0xffffffffc0010010), "program_10000+0x10 [bpf]");
        assert_eq!(frame(0xffffffffc0010110), "program_10100+0x10 [bpf]");
    }
}
