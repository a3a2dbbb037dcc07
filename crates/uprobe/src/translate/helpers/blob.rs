//! The compiled helpers: laid out and relocated for an address of the target.

use std::collections::{BTreeSet, HashMap};

use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget,
    SectionIndex, SectionKind, SymbolKind,
};

use super::{Environment, HelperTable, helper_id};

/// `blob/helpers.c`, compiled.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/helpers.o"));

/// Sections of helpers of a kind, as `blob/types.h` names them.
const QUIET: &str = ".text.quiet";
const READERS: &str = ".text.reads";
const LOUD_READERS: &str = ".text.loud_reads";

/// Sections begin at multiples of this.
const ALIGNMENT: usize = 64;

/// The helpers as machine code for one address.
#[derive(Clone, Debug)]
pub struct Blob {
    /// The bytes: code, and read-only data behind it.
    pub bytes: Vec<u8>,
    /// Number of the bytes that are code.
    pub code_bytes: usize,
    /// The helpers' addresses.
    pub helpers: HelperTable,
    /// The helpers that make no system call there.
    pub quiet: BTreeSet<u32>,
    /// The helpers that read memory which may not be there.
    pub readers: BTreeSet<u32>,
    /// The address of the function that runs a program with the values of a CPU (`blob/turn.h`).
    pub run_in_turn: u64,
    /// Offset in the bytes of the word that holds [`Environment::vdso_copy`], 0 where there is none.
    pub vdso_copy: usize,
}

impl Blob {
    /// The helpers for the address `at`, a multiple of 64.
    ///
    /// # Panics
    ///
    /// If `blob/helpers.c` was compiled to something else than expected, which the tests would show.
    pub fn at(at: u64, environment: Environment) -> Self {
        let file = object::File::parse(OBJECT).expect("the compiler wrote an object");
        let mut bytes = Vec::new();
        let mut starts: HashMap<SectionIndex, usize> = HashMap::new();
        let mut code_bytes = 0;
        for wanted in [true, false] {
            for section in file.sections() {
                let is_code = section.kind() == SectionKind::Text;
                let is_data = matches!(
                    section.kind(),
                    SectionKind::ReadOnlyData | SectionKind::ReadOnlyString
                );
                if section.size() == 0 || is_code != wanted || !(is_code || is_data) {
                    continue;
                }
                starts.insert(section.index(), bytes.len());
                bytes.extend_from_slice(section.data().expect("the section is in the object"));
                if is_code {
                    code_bytes = bytes.len();
                }
                bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
            }
        }
        let place = |section: SectionIndex, address: u64| {
            let start = starts.get(&section).expect("a section that was laid out");
            start + usize::try_from(address).expect("offsets are small")
        };
        relocate(&file, &mut bytes, &place);
        let mut helpers = HelperTable::new();
        let (mut quiet, mut readers) = (BTreeSet::new(), BTreeSet::new());
        let (mut vdso_copy, mut run_in_turn) = (None, None);
        for symbol in file.symbols() {
            let (Ok(name), Some(section)) = (symbol.name(), symbol.section_index()) else {
                continue;
            };
            if name == "environment" {
                let start = place(section, symbol.address());
                let value = environment.to_bytes();
                bytes[start..start + value.len()].copy_from_slice(&value);
                vdso_copy = Some(start + 8 * Environment::VDSO_COPY);
            }
            if name == "run_in_turn" {
                run_in_turn = Some(at + place(section, symbol.address()) as u64);
            }
            let id = name.strip_prefix("bpf_").and_then(helper_id);
            if let (SymbolKind::Text, Some(id)) = (symbol.kind(), id) {
                helpers.insert(id, at + place(section, symbol.address()) as u64);
                let section = file.section_by_index(section);
                match section.and_then(|section| section.name()) {
                    Ok(QUIET) => drop(quiet.insert(id)),
                    Ok(READERS) => {
                        readers.insert(id);
                        if environment.vdso_copy.is_some() {
                            quiet.insert(id);
                        }
                    }
                    Ok(LOUD_READERS) => drop(readers.insert(id)),
                    _ => {}
                }
            }
        }
        Blob {
            bytes,
            code_bytes,
            helpers,
            quiet,
            readers,
            run_in_turn: run_in_turn.expect("the helpers have it"),
            vdso_copy: vdso_copy.expect("the helpers have an environment"),
        }
    }
}

/// Fills in the distances between sections. The code is position-independent, so that there is no other kind.
fn relocate(
    file: &object::File<'_>,
    bytes: &mut [u8],
    place: &impl Fn(SectionIndex, u64) -> usize,
) {
    for section in file.sections() {
        if section.kind() != SectionKind::Text {
            continue;
        }
        for (offset, relocation) in section.relocations() {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                unreachable!("the object is ELF");
            };
            let is_relative = matches!(
                r_type,
                object::elf::R_X86_64_PC32 | object::elf::R_X86_64_PLT32
            );
            assert!(is_relative, "a relocation of the type {r_type}");
            let target = match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let symbol = file.symbol_by_index(index).expect("the symbol is there");
                    let section = symbol.section_index().expect("nothing is undefined");
                    place(section, symbol.address())
                }
                RelocationTarget::Section(index) => place(index, 0),
                _ => unreachable!("other targets are of other kinds of relocation"),
            };
            let at = place(section.index(), offset);
            let distance = target as i64 + relocation.addend() - at as i64;
            let distance = i32::try_from(distance).expect("the blob is small");
            bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
    }
}
