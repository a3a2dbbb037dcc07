//! Makes the rule table of the running kernel: of its ORC tables and those of its modules; where it keeps frame
//! pointers instead, of the entries of its functions.

use std::fs;

use libbpf_rs::{
    Btf,
    btf::{
        BtfType,
        types::{Array, MemberAttr, Struct},
    },
};

use super::{
    frame_pointers::add_frame_pointers,
    memory::KernelReader,
    orc::{ENTRY_BYTES, OrcLayout, OrcRegisters},
    rule::Rule,
    symbols::KernelSymbols,
    table::RuleTable,
};
use crate::error::{Error, Result};

/// Modules whose text is as the kernel lists it: name, start and size.
const MODULES: &str = "/proc/modules";

/// More entries than the table of any module has.
const MAX_ENTRIES: u32 = 1 << 21;

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
        let Some(tables) = OrcTables::from_symbols(symbols).zip(OrcLayout::from_btf(&btf)) else {
            return add_frame_pointers(symbols, &mut memory, table, end);
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

/// Returns the start and end of the kernel's text, and the address from where on there may be generated code.
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

/// Places of the kernel's own table.
struct OrcTables {
    addresses: u64,
    addresses_end: u64,
    entries: u64,
}

impl OrcTables {
    fn from_symbols(symbols: &KernelSymbols) -> Option<Self> {
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
    Ok((
        absolute(addresses, &relative),
        memory.bytes(entries, count * ENTRY_BYTES)?,
    ))
}

/// The addresses of a table that stands at `start`.
fn absolute(start: u64, relative: &[u8]) -> Vec<u64> {
    let places = (0..).map(|index| start.wrapping_add(4 * index));
    let address = |(place, relative): (u64, &[u8])| {
        let relative: [u8; 4] = relative.try_into().unwrap_or_default();
        place.wrapping_add_signed(i32::from_le_bytes(relative).into())
    };
    places.zip(relative.chunks_exact(4)).map(address).collect()
}

/// The rules of a table as bytes, for text from `start` to `end`; `None` if the layout is no layout of entries.
pub(crate) fn rules_of_bytes(
    fields: [[u8; 2]; 5],
    [start, end]: [u64; 2],
    relative: &[u8],
    entries: &[u8],
) -> Option<Result<RuleTable>> {
    let layout = OrcLayout::with_fields(fields)?;
    let rules = |registers: OrcRegisters| {
        let mut table = RuleTable::new(start, end);
        let addresses = absolute(start, relative);
        let rules = layout.rules(&registers, entries);
        table.add(start, end, addresses.into_iter().zip(rules));
        table
    };
    Some(layout.registers(entries).map(rules))
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
    if let Some(members) = ModuleMembers::from_btf(btf) {
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

/// Returns true if a module is being loaded or unloaded just now. Its initial code may run, or its memory may become
/// that of other code at any moment, without another tracepoint.
pub(crate) fn modules_are_changing() -> bool {
    is_changing(&fs::read_to_string(MODULES).unwrap_or_default())
}

fn is_changing(modules: &str) -> bool {
    let state = |line: &str| {
        matches!(
            line.split_ascii_whitespace().nth(4),
            Some("Loading" | "Unloading")
        )
    };
    modules.lines().any(state)
}

/// Offsets of the members of `struct module` that are needed, in bytes.
struct ModuleMembers {
    text_base: u32,
    text_size: u32,
    count: u32,
    addresses: u32,
    entries: u32,
}

impl ModuleMembers {
    fn from_btf(btf: &Btf<'_>) -> Option<Self> {
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
        // What was read may be no module any more: it can be unloaded meanwhile.
        let end = start.checked_add(size.into());
        let (Some(end), true) = (end, count <= MAX_ENTRIES) else {
            return Err(Error::Refused(
                "a module was unloaded while it was read".to_owned(),
            ));
        };
        let (addresses, entries) = read_orc(memory, addresses, entries, count as usize)?;
        Ok(ModuleText {
            start,
            end,
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
    fn a_module_that_comes_or_goes_is_seen() {
        let live = "virtio_net 98304 0 - Live 0xffffffffc036c000\n";
        assert!(!is_changing(live) && !is_changing(""));
        for state in ["Loading", "Unloading"] {
            let other = format!("{live}dummy 12288 1 ifb, {state} 0xffffffffc0370000\n");
            assert!(is_changing(&other), "{other}");
        }
    }
}
