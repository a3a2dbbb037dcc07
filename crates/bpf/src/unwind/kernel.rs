//! Makes the rule table of the running kernel: of its ORC tables and those of its modules; where it keeps frame
//! pointers instead, of the entries of its functions.

use std::{fs, ops::Range};

use libbpf_rs::{
    Btf,
    btf::{
        BtfType,
        types::{Array, MemberAttr, Struct},
    },
};

use super::{
    memory::KernelReader,
    orc::{ENTRY_BYTES, OrcLayout, OrcRegisters},
    rule::Rule,
    symbols::KernelSymbols,
    table::RuleTable,
};
use crate::error::{Error, Result};

/// `push %rbp`.
const PUSH: u8 = 0x55;
/// `mov %rsp,%rbp`, which sets the frame up.
const SET_UP_FRAME: [u8; 3] = [0x48, 0x89, 0xe5];
/// How much of a function is looked at. Where a kernel keeps frame pointers, nine in ten have both instructions there.
const LOOKED_AT: usize = 32;
/// Bytes of the instruction that ftrace makes a call, and how it begins: a call, or nothing.
const FTRACE_LENGTH: u64 = 5;
const FTRACE: [&[u8]; 2] = [&[0xe8], &[0x0f, 0x1f, 0x44, 0, 0]];
/// How much text is read at once.
const WINDOW: usize = 1 << 16;

/// Modules whose text is as the kernel lists it: name, start and size.
const MODULES: &str = "/proc/modules";

impl RuleTable {
    /// The rules of the running kernel.
    ///
    /// # Errors
    ///
    /// Where it unwinds by neither ORC nor frame pointers, or hides its memory.
    pub fn read(symbols: &KernelSymbols) -> Result<Self> {
        let mut memory = KernelReader::load()?;
        let (start, end, generated) = text(symbols)?;
        let mut table = RuleTable::new(start, generated);
        let btf = Btf::from_vmlinux().map_err(|error| {
            Error::Refused(format!("cannot read the types of the kernel: {error}"))
        })?;
        let Some(tables) = OrcTables::of(symbols).zip(OrcLayout::of(&btf)) else {
            return frame_pointers(symbols, &mut memory, table, end);
        };
        let (tables, layout) = tables;
        table.is_orc = true;
        let (addresses, entries) = tables.read(&mut memory)?;
        let registers = layout.registers(&entries)?;
        let rules = layout.rules(&registers, &entries);
        table.add(start, end, addresses.into_iter().zip(rules));
        add_modules(&mut table, symbols, &mut memory, &btf, &layout, &registers);
        Ok(table)
    }
}

/// Where the kernel's text begins and ends, and from where on there may be generated code.
fn text(symbols: &KernelSymbols) -> Result<(u64, u64, u64)> {
    let ends = ["_einittext", "_etext"].map(|name| symbols.address(name));
    let start = symbols.address("_stext");
    let end = ends.into_iter().flatten().max();
    let (Some(start), Some(end)) = (start, end) else {
        return Err(Error::Refused(
            "the kernel does not list where its text is (_stext, _etext)".to_owned(),
        ));
    };
    let image = symbols.address("_end").unwrap_or(end);
    Ok((start, end, image.max(end)))
}

/// Where the kernel's own table is.
struct OrcTables {
    addresses: u64,
    addresses_end: u64,
    entries: u64,
}

impl OrcTables {
    fn of(symbols: &KernelSymbols) -> Option<Self> {
        Some(OrcTables {
            addresses: symbols.address("__start_orc_unwind_ip")?,
            addresses_end: symbols.address("__stop_orc_unwind_ip")?,
            entries: symbols.address("__start_orc_unwind")?,
        })
    }

    /// The addresses of entries, and the entries.
    fn read(&self, memory: &mut KernelReader) -> Result<(Vec<u64>, Vec<u8>)> {
        let count = self.addresses_end.saturating_sub(self.addresses) as usize / 4;
        read_orc(memory, self.addresses, self.entries, count)
    }
}

/// Reads a table: each address is relative to where it stands.
fn read_orc(
    memory: &mut KernelReader,
    addresses: u64,
    entries: u64,
    count: usize,
) -> Result<(Vec<u64>, Vec<u8>)> {
    let relative = memory.bytes(addresses, count * 4)?;
    let places = (addresses..).step_by(4);
    let address = |(place, relative): (u64, &[u8])| {
        let relative: [u8; 4] = relative.try_into().unwrap_or_default();
        place.wrapping_add_signed(i32::from_le_bytes(relative).into())
    };
    let read = places.zip(relative.chunks_exact(4)).map(address).collect();
    Ok((read, memory.bytes(entries, count * ENTRY_BYTES)?))
}

/// Where the kernel keeps frame pointers: rules of entries, and of the rest of each function.
fn frame_pointers(
    symbols: &KernelSymbols,
    memory: &mut KernelReader,
    mut table: RuleTable,
    end: u64,
) -> Result<RuleTable> {
    let mut code = TextReader::new(memory);
    let functions: Vec<Function> = symbols
        .functions()
        .filter(|start| *start < end)
        .map(|start| Function::of(start, code.at(start)))
        .collect();
    let keeping = functions.iter().filter(|one| one.frame.is_some()).count();
    if 2 * keeping < functions.len() {
        return Err(Error::Refused(
            "this kernel unwinds its stacks by neither ORC nor frame pointers (another unwinder, or tables that were \
             left out)\n  Take them with the kernel's helper: bpfcost stack --helper"
                .to_owned(),
        ));
    }
    let start = table.base;
    let fixed = AssemblyText::of(symbols);
    table.add(
        start,
        end,
        entry_rules(&functions, |start| fixed.rule(start)),
    );
    Ok(table)
}

/// Code in assembly that keeps no frame pointers of its own, where stacks begin.
struct AssemblyText {
    /// Entries from user space and by interrupts: registers are on top of the stack when they call.
    entries: Range<u64>,
    /// Where a thread or CPU starts: nothing called them.
    starts: Vec<u64>,
}

impl AssemblyText {
    fn of(symbols: &KernelSymbols) -> Self {
        let [start, end] = ["__entry_text_start", "__entry_text_end"]
            .map(|name| symbols.address(name).unwrap_or_default());
        // Until Linux 6.5, the one in assembly had the name that a function in C has since.
        let fork = symbols.address("ret_from_fork_asm");
        let fork = fork.or_else(|| symbols.address("ret_from_fork"));
        let starts = [
            "startup_64",
            "secondary_startup_64",
            "secondary_startup_64_no_verify",
            "common_startup_64",
        ];
        let starts = starts.into_iter().filter_map(|name| symbols.address(name));
        AssemblyText {
            entries: start..end,
            starts: starts.chain(fork).collect(),
        }
    }

    /// The rule of the function that starts there, if it is one of these.
    fn rule(&self, start: u64) -> Option<Rule> {
        if self.starts.contains(&start) {
            return Some(Rule::END);
        }
        self.entries.contains(&start).then_some(Rule::ON_TOP)
    }
}

/// Beginnings of functions, in the order of their addresses.
struct TextReader<'a> {
    memory: &'a mut KernelReader,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> TextReader<'a> {
    fn new(memory: &'a mut KernelReader) -> Self {
        TextReader {
            memory,
            start: 0,
            bytes: Vec::new(),
        }
    }

    /// What the function begins with; nothing where it is gone, as the kernel's init text is.
    fn at(&mut self, function: u64) -> &[u8] {
        let end = self.start + self.bytes.len() as u64;
        if function < self.start || function + LOOKED_AT as u64 > end {
            self.start = function;
            // There may be a hole behind it.
            let read = self.memory.bytes(function, WINDOW);
            let read = read.or_else(|_| self.memory.bytes(function, LOOKED_AT));
            self.bytes = read.unwrap_or_default();
        }
        let at = (function - self.start) as usize;
        self.bytes.get(at..at + LOOKED_AT).unwrap_or_default()
    }
}

/// A function of a kernel that keeps frame pointers, by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    /// Bytes before ftrace's instruction is over.
    traced: u64,
    /// Bytes before it has saved rbp, and before its frame is set up. Compilers put other instructions between the two.
    frame: Option<(u64, u64)>,
}

impl Function {
    fn of(start: u64, code: &[u8]) -> Self {
        let is_traced = FTRACE.iter().any(|begin| code.starts_with(begin));
        let traced = if is_traced { FTRACE_LENGTH } else { 0 };
        let body = code.get(traced as usize..).unwrap_or_default();
        let push = body.iter().position(|byte| *byte == PUSH);
        let frame = push.and_then(|push| {
            let mut behind = body.get(push + 1..)?.windows(SET_UP_FRAME.len());
            let between = behind.position(|code| code == SET_UP_FRAME)?;
            let saved = traced + push as u64 + 1;
            Some((saved, saved + (between + SET_UP_FRAME.len()) as u64))
        });
        Function {
            start,
            traced,
            frame,
        }
    }

    /// Its rules, and where each begins.
    fn rules(self) -> Vec<(u64, Rule)> {
        let entry = (self.start, Rule::ENTRY);
        match self.frame {
            Some((saved, set_up)) => vec![
                entry,
                (self.start + saved, Rule::SAVED),
                (self.start + set_up, Rule::FRAME),
            ],
            // Where it calls others, it has a frame.
            None => vec![entry, (self.start + self.traced + 1, Rule::FRAME)],
        }
    }
}

/// Rules of functions that keep frame pointers, sorted as their starts are; but for those that have a `fixed` one.
fn entry_rules(functions: &[Function], fixed: impl Fn(u64) -> Option<Rule>) -> Vec<(u64, Rule)> {
    let ends = functions.iter().skip(1).map(|next| next.start);
    let rules = functions
        .iter()
        .zip(ends.chain([u64::MAX]))
        .flat_map(|(function, end)| {
            let mut rules = match fixed(function.start) {
                Some(rule) => vec![(function.start, rule)],
                None => function.rules(),
            };
            // Of two names of one function the last one counts; a function may end before its frame is set up.
            rules.retain(|(start, _)| *start < end);
            rules
        });
    rules.collect()
}

/// Text of a module, and its table where it has one.
struct ModuleText {
    start: u64,
    end: u64,
    rules: Vec<(u64, Rule)>,
}

/// Adds the modules, in the order of their addresses. A module that can't be read has text without rules.
fn add_modules(
    table: &mut RuleTable,
    symbols: &KernelSymbols,
    memory: &mut KernelReader,
    btf: &Btf<'_>,
    layout: &OrcLayout,
    registers: &OrcRegisters,
) {
    let mut modules = listed_modules();
    if let Some(members) = ModuleMembers::of(btf) {
        for (_, address) in symbols.modules() {
            let text = members.text(memory, address, layout, registers);
            modules.extend(text.ok());
        }
    }
    // Of two with the same text, the one with rules comes first and is the one that is added.
    modules.sort_by_key(|text| (text.start, text.rules.is_empty()));
    for text in modules {
        table.add(text.start, text.end, text.rules);
    }
}

/// Text of modules as the kernel lists them, without rules.
fn listed_modules() -> Vec<ModuleText> {
    let text = fs::read_to_string(MODULES).unwrap_or_default();
    let module = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let start = words.get(5)?.strip_prefix("0x")?;
        let start = u64::from_str_radix(start, 16).ok()?;
        Some(ModuleText {
            start,
            end: start.checked_add(words.get(1)?.parse().ok()?)?,
            rules: Vec::new(),
        })
    };
    text.lines().filter_map(module).collect()
}

/// Where `struct module` has what is needed, in bytes.
struct ModuleMembers {
    text_base: u32,
    text_size: u32,
    count: u32,
    addresses: u32,
    entries: u32,
}

impl ModuleMembers {
    fn of(btf: &Btf<'_>) -> Option<Self> {
        let module = btf.type_by_name::<Struct<'_>>("module")?;
        let (arch, arch_at) = inner(btf, &module, "arch")?;
        // One structure for each kind of memory since Linux 6.4, the text's first; before, one for all.
        let (memory, memory_at) =
            inner(btf, &module, "mem").or_else(|| inner(btf, &module, "core_layout"))?;
        let size = member(&memory, "text_size").or_else(|| member(&memory, "size"))?;
        Some(ModuleMembers {
            text_base: memory_at + member(&memory, "base")?.1,
            text_size: memory_at + size.1,
            count: arch_at + member(&arch, "num_orcs")?.1,
            addresses: arch_at + member(&arch, "orc_unwind_ip")?.1,
            entries: arch_at + member(&arch, "orc_unwind")?.1,
        })
    }

    fn text(
        &self,
        memory: &mut KernelReader,
        module: u64,
        layout: &OrcLayout,
        registers: &OrcRegisters,
    ) -> Result<ModuleText> {
        let start = memory.word(module + u64::from(self.text_base))?;
        let size = memory.half(module + u64::from(self.text_size))?;
        let count = memory.half(module + u64::from(self.count))?;
        let addresses = memory.word(module + u64::from(self.addresses))?;
        let entries = memory.word(module + u64::from(self.entries))?;
        let (addresses, entries) = read_orc(memory, addresses, entries, count as usize)?;
        Ok(ModuleText {
            start,
            end: start + u64::from(size),
            rules: addresses
                .into_iter()
                .zip(layout.rules(registers, &entries))
                .collect(),
        })
    }
}

/// A member's type and offset in bytes.
fn member<'a>(structure: &Struct<'a>, name: &str) -> Option<(libbpf_rs::btf::TypeId, u32)> {
    let found = structure
        .iter()
        .find(|member| member.name.is_some_and(|one| one == name))?;
    match found.attr {
        MemberAttr::Normal { offset } => Some((found.ty, offset / 8)),
        MemberAttr::BitField { .. } => None,
    }
}

/// A member that is a structure, or the first of an array of them.
fn inner<'a>(btf: &'a Btf<'a>, outer: &Struct<'a>, name: &str) -> Option<(Struct<'a>, u32)> {
    let (kind, offset) = member(outer, name)?;
    let kind = btf
        .type_by_id::<BtfType<'_>>(kind)?
        .skip_mods_and_typedefs();
    let kind = match Array::try_from(kind) {
        Ok(array) => array.contained_type().skip_mods_and_typedefs(),
        Err(single) => single,
    };
    Some((Struct::try_from(kind).ok()?, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_set_up_among_other_instructions() {
        // As compilers write it: with ftrace's call before, and `xor %eax,%eax` between.
        let entries: [(&[u8], u64, Option<(u64, u64)>); 6] = [
            (&[0x55, 0x48, 0x89, 0xe5], 0, Some((1, 4))),
            (
                &[0x0f, 0x1f, 0x44, 0, 0, 0x55, 0x31, 0xc0, 0x48, 0x89, 0xe5],
                5,
                Some((6, 11)),
            ),
            (&[0xe8, 0x55, 0x48, 0x89, 0xe5, 0xc3], 5, None),
            (&[0x48, 0x89, 0xe5, 0x55], 0, None),
            (&[0x55, 0x53, 0x48, 0x89, 0xfb], 0, None),
            (&[], 0, None),
        ];
        for (code, traced, frame) in entries {
            let start = 0x100;
            let expected = Function {
                start,
                traced,
                frame,
            };
            assert_eq!(Function::of(start, code), expected, "{code:x?}");
        }
    }

    #[test]
    fn functions_have_rules_of_each_part_of_their_beginning() {
        let framed = |start| Function {
            start,
            traced: 5,
            frame: Some((6, 9)),
        };
        let bare = |start| Function {
            start,
            traced: 0,
            frame: None,
        };
        // Two names of one function, one that is too short for a frame, and one in assembly.
        let functions = [
            framed(0x100),
            framed(0x100),
            framed(0x200),
            bare(0x204),
            bare(0x400),
        ];
        let rules = entry_rules(&functions, |start| (start == 0x400).then_some(Rule::END));
        let expected = [
            (0x100, Rule::ENTRY),
            (0x106, Rule::SAVED),
            (0x109, Rule::FRAME),
            (0x200, Rule::ENTRY),
            (0x204, Rule::ENTRY),
            (0x205, Rule::FRAME),
            (0x400, Rule::END),
        ];
        assert_eq!(rules, expected);
    }
}
