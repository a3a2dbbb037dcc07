//! The kernel's symbols: functions and tables of the kernel, of modules, and of BPF programs.

use std::{fs, ops::Range, sync::Arc};

use crate::error::{Error, Result};

/// The kernel's list of symbols.
pub(crate) const KALLSYMS: &str = "/proc/kallsyms";

/// Longest distance of an address behind its symbol where no other symbol follows.
const FARTHEST: u64 = 1 << 20;

/// Symbols by address.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    /// The list, which has the names.
    text: Arc<str>,
    /// Sorted by address. Several names of one address stand as the kernel lists them.
    symbols: Vec<Symbol>,
}

#[derive(Clone, Debug)]
struct Symbol {
    address: u64,
    is_text: bool,
    /// Places in the list.
    name: Range<u32>,
    /// Empty for the kernel's own; `bpf` for BPF programs.
    module: Range<u32>,
}

/// An address as a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SymbolRef<'a> {
    /// The symbol's name.
    pub name: &'a str,
    /// The module that it is in, or `bpf`.
    pub module: Option<&'a str>,
    /// Distance of the address behind the symbol.
    pub offset: u64,
}

impl KernelSymbols {
    /// Reads the symbols of the running kernel.
    ///
    /// # Errors
    ///
    /// Where the kernel hides its addresses.
    pub fn read() -> Result<Self> {
        let text = fs::read_to_string(KALLSYMS)
            .map_err(|error| Error::Refused(format!("cannot read {KALLSYMS}: {error}")))?;
        let symbols = KernelSymbols::parse(text);
        symbols.shown().map(|()| symbols)
    }

    /// An error where the kernel hides its addresses.
    pub(crate) fn shown(&self) -> Result<()> {
        if self.symbols.iter().any(|symbol| symbol.address != 0) {
            return Ok(());
        }
        Err(Error::Refused(
            "the kernel hides the addresses of its functions\n  Run as root, with the sysctl kernel.kptr_restrict at 0 \
             or 1"
                .to_owned(),
        ))
    }

    /// Symbols as the kernel lists them: `ffffffff81000000 T _stext`, and behind some `[module]`. Those beyond the first
    /// 4 GB of a list are left out.
    pub fn parse(list: impl Into<Arc<str>>) -> Self {
        let text = list.into();
        let lines = text.lines();
        let mut symbols: Vec<Symbol> = lines
            .filter_map(|line| Symbol::parse(&text, line))
            .collect();
        symbols.sort_by_key(|symbol| symbol.address);
        KernelSymbols { text, symbols }
    }

    /// The functions of modules, and BPF programs. The rest of the list is not kept for them.
    pub fn of_modules(&self) -> Self {
        let of_module = |symbol: &&Symbol| !symbol.module.is_empty();
        let line = |symbol: &Symbol| {
            let (name, module) = (self.name(symbol), self.at(&symbol.module));
            format!("{:x} t {name}\t[{module}]\n", symbol.address)
        };
        KernelSymbols::parse(self.text().filter(of_module).map(line).collect::<String>())
    }

    fn at(&self, place: &Range<u32>) -> &str {
        &self.text[place.start as usize..place.end as usize]
    }

    fn name(&self, symbol: &Symbol) -> &str {
        self.at(&symbol.name)
    }

    /// An address as that symbol, or one behind it.
    fn reference(&self, symbol: &Symbol, address: u64) -> SymbolRef<'_> {
        let module = self.at(&symbol.module);
        SymbolRef {
            name: self.name(symbol),
            module: (!module.is_empty()).then_some(module),
            offset: address - symbol.address,
        }
    }

    /// Functions, in the order of addresses.
    fn text(&self) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(|symbol| symbol.is_text)
    }

    /// The address of one of the kernel's own symbols.
    pub fn address(&self, name: &str) -> Option<u64> {
        let own = |symbol: &&Symbol| {
            symbol.name.len() == name.len() && symbol.module.is_empty() && self.name(symbol) == name
        };
        self.symbols.iter().find(own).map(|symbol| symbol.address)
    }

    /// Modules, and where their `struct module` is. Empty where the kernel lists functions alone.
    pub(super) fn modules(&self) -> impl Iterator<Item = (&str, u64)> {
        let of_module =
            |symbol: &&Symbol| !symbol.module.is_empty() && self.name(symbol) == "__this_module";
        let own = self.symbols.iter().filter(of_module);
        own.map(|symbol| (self.at(&symbol.module), symbol.address))
    }

    /// Starts of functions of the kernel's own, in order.
    pub(super) fn functions(&self) -> impl Iterator<Item = u64> {
        let own = |symbol: &&Symbol| symbol.module.is_empty();
        self.text().filter(own).map(|symbol| symbol.address)
    }

    /// The functions of that name: of the kernel, of modules, and BPF programs.
    pub fn functions_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = SymbolRef<'a>> {
        let named = self.text().filter(move |symbol| self.name(symbol) == name);
        named.map(|symbol| self.reference(symbol, symbol.address))
    }

    /// Names of all functions, in the order of addresses.
    pub fn function_names(&self) -> impl Iterator<Item = &str> {
        self.text().map(|symbol| self.name(symbol))
    }

    /// The functions whose names begin so, with their addresses, and in their order.
    pub fn starting_with<'a>(&'a self, beginning: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let named = self
            .text()
            .map(|symbol| (self.name(symbol), symbol.address));
        named.filter(move |(name, _)| name.starts_with(beginning))
    }

    /// The function that an address is in, its start, and the start of the next function.
    pub fn containing(&self, address: u64) -> Option<(&str, u64, u64)> {
        let symbol = self.symbol(address)?;
        let start = address - symbol.offset;
        let after = self.symbols.partition_point(|one| one.address <= address);
        let next = self.symbols[after..].iter().find(|one| one.is_text);
        let end = next.map_or(start + FARTHEST, |next| next.address);
        Some((symbol.name, start, end.min(start + FARTHEST)))
    }

    /// The function that an address is in.
    pub fn symbol(&self, address: u64) -> Option<SymbolRef<'_>> {
        let after = self
            .symbols
            .partition_point(|symbol| symbol.address <= address);
        let last = self.symbols[..after].iter().rev().find(|one| one.is_text)?;
        // Of several names the first, as the kernel prints it.
        let first = self
            .symbols
            .partition_point(|symbol| symbol.address < last.address);
        let same = &self.symbols[first..after];
        let symbol = same.iter().find(|symbol| symbol.is_text).unwrap_or(last);
        let found = self.reference(symbol, address);
        (found.offset < FARTHEST).then_some(found)
    }
}

impl Symbol {
    /// The symbol of a line of `text`.
    fn parse(text: &str, line: &str) -> Option<Symbol> {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let kind = words.next()?;
        let name = place(text, words.next()?)?;
        let module = words.next().unwrap_or_default();
        let module = module.trim_start_matches('[').trim_end_matches(']');
        Some(Symbol {
            address,
            is_text: matches!(kind, "t" | "T" | "w" | "W"),
            name,
            module: place(text, module)?,
        })
    }
}

/// Where a part of a text is in it.
fn place(text: &str, part: &str) -> Option<Range<u32>> {
    if part.is_empty() {
        return Some(0..0);
    }
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    Some(start.try_into().ok()?..(start + part.len()).try_into().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t do_one
ffffffff81000180 D a_table
ffffffff81000200 T do_two
ffffffffc0000000 t do_one\t[loop]
ffffffffc0002000 d __this_module\t[loop]
ffffffffc0100000 t bpf_prog_6deef7357e7b4530_on_switch\t[bpf]
";

    #[test]
    fn addresses_have_the_function_before_them() {
        let symbols = KernelSymbols::parse(LIST);
        let name = |address| {
            let symbol = symbols.symbol(address)?;
            Some((symbol.name, symbol.module, symbol.offset))
        };
        assert_eq!(name(0xffffffff81000000), Some(("_stext", None, 0)));
        assert_eq!(name(0xffffffff81000190), Some(("do_one", None, 0x90)));
        assert_eq!(name(0xffffffffc0000004), Some(("do_one", Some("loop"), 4)));
        let program = name(0xffffffffc0100010).unwrap();
        assert_eq!((program.1, program.2), (Some("bpf"), 16));
        assert_eq!(name(0xffffffffc0900000), None);
        assert_eq!(name(1), None);
    }

    #[test]
    fn names_have_the_address_of_the_kernel_and_modules_their_own() {
        let symbols = KernelSymbols::parse(LIST);
        assert_eq!(symbols.address("do_one"), Some(0xffffffff81000100));
        assert_eq!(symbols.address("a_table"), Some(0xffffffff81000180));
        assert_eq!(symbols.address("__this_module"), None);
        let modules: Vec<_> = symbols.modules().collect();
        assert_eq!(modules, [("loop", 0xffffffffc0002000)]);
        assert_eq!(symbols.functions_named("do_one").count(), 2);
        assert_eq!(symbols.functions().count(), 4);
        let starts: Vec<_> = symbols.starting_with("do_").collect();
        assert_eq!(starts.len(), 3);
        assert_eq!(starts[0], ("do_one", 0xffffffff81000100));
        let one = symbols.containing(0xffffffff81000190);
        let expected = ("do_one", 0xffffffff81000100, 0xffffffff81000200);
        assert_eq!(one, Some(expected));
        assert_eq!(symbols.containing(1), None);
    }
}
