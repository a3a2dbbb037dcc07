//! The ELF file of an object, before libbpf opens it: why libbpf can't, and the code that a program reaches.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use object::{
    File, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionIndex,
    SectionKind, Symbol, SymbolKind, elf,
};

/// The section of functions that programs call.
const FUNCTIONS: &str = ".text";
/// Prefix of sections of single functions.
const FUNCTION_SECTIONS: &str = ".text.";
/// The section of map definitions that libbpf 1.0 and newer don't read.
const LEGACY_MAPS: &str = "maps";
/// Bytes before the name of an extern in libbpf's message that it has no type.
const UNTYPED_EXTERN: &str = "failed to find BTF for extern '";

const INSTRUCTION_BYTES: u64 = 8;
const CALL: u8 = 0x85;
const LOAD_64: u8 = 0x18;
/// Source registers of calls of functions, and of addresses of functions.
const OTHER_FUNCTION: u8 = 1;
const FUNCTION_ADDRESS: u8 = 4;

/// Bytes of a symbol (`Elf64_Sym`), and the byte with its type and its binding.
const SYMBOL_BYTES: usize = 24;
const INFO_AT: usize = 4;

/// Reasons for which libbpf can't open a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Not an ELF file for the machine BPF.
    NotBpf,
    /// Compiled for machines of the other byte order.
    BigEndian,
    /// Without a symbol table.
    Stripped,
    /// With maps that have no types.
    LegacyMaps,
    /// With a function in a section of its own.
    FunctionSection(String),
    /// With an extern that has no type.
    UntypedExtern(String),
    /// Something that libbpf's messages name.
    Other,
}

impl Defect {
    /// The defect of a file that libbpf could not open, from its bytes and libbpf's messages.
    pub fn find(bytes: &[u8], messages: &str) -> Self {
        let Ok(file) = File::parse(bytes) else {
            return Defect::NotBpf;
        };
        // Older compilers name no machine.
        let is_bpf = matches!(file.architecture(), object::Architecture::Bpf)
            || bytes.get(18..20) == Some(&[0, 0]);
        if !is_bpf || !file.is_64() || file.kind() != object::ObjectKind::Relocatable {
            return Defect::NotBpf;
        }
        if !file.is_little_endian() {
            return Defect::BigEndian;
        }
        if file.symbols().next().is_none() {
            return Defect::Stripped;
        }
        if file.section_by_name(LEGACY_MAPS).is_some() {
            return Defect::LegacyMaps;
        }
        if let Some((_, rest)) = messages.split_once(UNTYPED_EXTERN) {
            let name = rest.split('\'').next().unwrap_or_default();
            return Defect::UntypedExtern(name.to_owned());
        }
        let own = file.sections().find(|section| {
            let name = section.name().unwrap_or_default();
            section.kind() == SectionKind::Text && name.starts_with(FUNCTION_SECTIONS)
        });
        match own.map(|section| section.name().unwrap_or_default().to_owned()) {
            Some(name) => Defect::FunctionSection(name),
            None => Defect::Other,
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::NotBpf => f.write_str(
                "it is not a BPF object\n  Compile one with: clang -O2 -g -target bpf -c NAME.bpf.c",
            ),
            Defect::BigEndian => f.write_str(
                "it was compiled for big-endian machines, and this one is little-endian\n  Compile it with -target bpf, \
                 not bpfeb",
            ),
            Defect::Stripped => f.write_str(
                "it has no symbol table, without which its programs and maps can't be located\n  Compile it again; \
                 to remove debug information alone: llvm-strip -g FILE.bpf.o",
            ),
            Defect::LegacyMaps => f.write_str(
                "it defines maps in the section `maps`, which libbpf has not read since version 1.0\n  Define them with \
                 types in the section .maps: struct { __uint(type, BPF_MAP_TYPE_ARRAY); … } NAME SEC(\".maps\")",
            ),
            Defect::FunctionSection(section) => write!(
                f,
                "it has a function in the section {section}, and programs can call only functions in {FUNCTIONS}\n  \
                 Make the function static or __always_inline (templates and inline functions of C++ are neither), and \
                 compile without -ffunction-sections"
            ),
            Defect::UntypedExtern(name) => write!(
                f,
                "its extern {name} has no type (BTF)\n  Compile it with -g; if another file defines {name}, link both: \
                 bpftool gen object LINKED.bpf.o FILE.bpf.o OTHER.bpf.o"
            ),
            Defect::Other => f.write_str(
                "libbpf can't take it, and says why below\n  If it has a loader of its own, run that one",
            ),
        }
    }
}

/// Returns whether a file is an object for big-endian machines, which libbpf opens, and does not load.
pub fn is_big_endian(bytes: &[u8]) -> bool {
    File::parse(bytes).is_ok_and(|file| !file.is_little_endian())
}

/// The same object, with static programs made global: libbpf takes no static ones, and other loaders do.
pub fn with_global_programs(mut bytes: Vec<u8>) -> Vec<u8> {
    for at in static_programs(&bytes).unwrap_or_default() {
        if let Some(info) = bytes.get_mut(at) {
            *info = elf::STB_GLOBAL << 4 | *info & 0xf;
        }
    }
    bytes
}

/// Returns where the bindings of static functions are that stand in sections of programs.
fn static_programs(bytes: &[u8]) -> Option<Vec<usize>> {
    let file = File::parse(bytes).ok()?;
    let (start, length) = file.section_by_name(".symtab")?.file_range()?;
    let end = start.checked_add(length)?;
    let is_program = |symbol: &Symbol<'_, '_>| {
        let section = symbol.section_index();
        let section = section.and_then(|index| file.section_by_index(index).ok());
        section.is_some_and(|section| {
            let name = section.name().unwrap_or_default();
            let is_called = name == FUNCTIONS || name.starts_with(FUNCTION_SECTIONS);
            section.kind() == SectionKind::Text && !is_called
        })
    };
    let symbols = file.symbols().filter(|symbol| {
        symbol.kind() == SymbolKind::Text && symbol.is_local() && is_program(symbol)
    });
    let info = |symbol: Symbol<'_, '_>| {
        let at = start as usize + symbol.index().0 * SYMBOL_BYTES + INFO_AT;
        ((at as u64) < end).then_some(at)
    };
    symbols.map(info).collect()
}

/// The code that a program reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReachedCode {
    /// The instructions of all functions that it calls, or that it gives to helpers.
    pub functions: Vec<u8>,
    /// Kernel functions and variables that it or they name.
    pub externs: BTreeSet<String>,
}

/// A function, by the number of its section and its place there.
type FunctionPlace = (usize, u64);

/// The code that a program reaches, by the name of its function; nothing if there is none.
pub fn reached_code(bytes: &[u8], program: &str) -> ReachedCode {
    let mut reached = ReachedCode::default();
    let Ok(file) = File::parse(bytes) else {
        return reached;
    };
    let functions: BTreeMap<FunctionPlace, u64> = file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text)
        .filter_map(|symbol| Some(((symbol.section_index()?.0, symbol.address()), symbol.size())))
        .collect();
    let mut symbols = file.symbols();
    let own = symbols.find(|one| one.kind() == SymbolKind::Text && one.name() == Ok(program));
    let own = own.and_then(|one| Some((one.section_index()?.0, one.address())));
    let mut known: BTreeSet<FunctionPlace> = own.into_iter().collect();
    let mut open: Vec<FunctionPlace> = own.into_iter().collect();
    while let Some(place) = open.pop() {
        let Some(code) = code(&file, place, functions.get(&place).copied()) else {
            continue;
        };
        if Some(place) != own {
            reached.functions.extend_from_slice(code);
        }
        for target in targets(&file, place, code) {
            match target {
                Target::Extern(name) => {
                    reached.externs.insert(name);
                }
                Target::Code(section, address) => {
                    // The function that it is in.
                    let before = functions.range(..=(section, address)).next_back();
                    let inside = before.filter(|((other, start), bytes)| {
                        *other == section && address < start + *bytes
                    });
                    if let Some((&place, _)) = inside
                        && known.insert(place)
                    {
                        open.push(place);
                    }
                }
            }
        }
    }
    reached
}

/// Something that an instruction names.
enum Target {
    Extern(String),
    Code(usize, u64),
}

/// The instructions of a function.
fn code<'a>(
    file: &File<'a>,
    (section, start): FunctionPlace,
    bytes: Option<u64>,
) -> Option<&'a [u8]> {
    let data = file
        .section_by_index(SectionIndex(section))
        .ok()?
        .data()
        .ok()?;
    let end = start.checked_add(bytes?)?;
    data.get(start as usize..end as usize)
}

/// Returns what the instructions of a function name.
fn targets(file: &File<'_>, (index, start): FunctionPlace, code: &[u8]) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut relocated = BTreeSet::new();
    let section = file.section_by_index(SectionIndex(index));
    let relocations = section.iter().flat_map(object::ObjectSection::relocations);
    for (at, relocation) in relocations {
        let place = at.checked_sub(start).map(|place| place as usize);
        let Some(Instruction { code, value, .. }) =
            place.and_then(|place| Instruction::at(code, place))
        else {
            continue;
        };
        relocated.insert(at);
        let RelocationTarget::Symbol(symbol) = relocation.target() else {
            continue;
        };
        let Ok(symbol) = file.symbol_by_index(symbol) else {
            continue;
        };
        let Some(section) = symbol.section_index() else {
            targets.extend(
                symbol
                    .name()
                    .ok()
                    .map(|name| Target::Extern(name.to_owned())),
            );
            continue;
        };
        let offset = match code {
            CALL => distance(value),
            LOAD_64 => i64::from(value),
            _ => continue,
        };
        let address = symbol.address().wrapping_add_signed(offset);
        targets.push(Target::Code(section.0, address));
    }
    // What is in the same section needs no relocation.
    for place in (0..code.len()).step_by(INSTRUCTION_BYTES as usize) {
        let at = start + place as u64;
        let Some(one) = Instruction::at(code, place) else {
            continue;
        };
        let names_function = (one.code == CALL && one.source == OTHER_FUNCTION)
            || (one.code == LOAD_64 && one.source == FUNCTION_ADDRESS);
        if names_function && !relocated.contains(&at) {
            let address = at.wrapping_add_signed(distance(one.value));
            targets.push(Target::Code(index, address));
        }
    }
    targets
}

/// Bytes from an instruction to the function that it names, by a number of instructions behind it.
fn distance(value: i32) -> i64 {
    (i64::from(value) + 1) * INSTRUCTION_BYTES as i64
}

/// The parts of an instruction that name a function.
struct Instruction {
    code: u8,
    source: u8,
    value: i32,
}

impl Instruction {
    fn at(code: &[u8], place: usize) -> Option<Self> {
        let bytes = code.get(place..)?.first_chunk::<8>()?;
        let &[code, registers, _, _, value @ ..] = bytes;
        Some(Instruction {
            code,
            source: registers >> 4,
            value: i32::from_le_bytes(value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_no_objects() {
        let own = std::fs::read("/proc/self/exe").expect("this test");
        for bytes in [&b"text"[..], &[], &own] {
            assert_eq!(Defect::find(bytes, ""), Defect::NotBpf);
            assert_eq!(reached_code(bytes, "main"), ReachedCode::default());
        }
        assert_eq!(with_global_programs(b"text".to_vec()), b"text");
    }
}
