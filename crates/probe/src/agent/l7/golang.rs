//! Functions of a Go program, and where they return. Every Go program carries a table of its functions, for
//! its own stack traces (`.gopclntab`), also one without symbols (`-ldflags "-s -w"`).
//!
//! The table: Go's src/internal/abi and src/debug/gosym, in the format since Go 1.18. Until Go 1.25 it holds the
//! start of Go's code; since then the runtime's data about a program does (`moduledata` of
//! src/runtime/symtab.go).

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail};
use bpfcost_bpf::l7::{GoFunction, ServerFunctions};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::{
    Architecture, Object as _, ObjectSection as _, ObjectSegment as _,
    read::elf::{ElfFile64, ElfSection64},
};

const READ: &str = "crypto/tls.(*Conn).Read";
const WRITE: &str = "crypto/tls.(*Conn).Write";
const CLOSE: &str = "crypto/tls.(*Conn).Close";
const STATUS: &str = "runtime.casgstatus";

/// Sections that hold the table: in programs at a fixed address, and in others.
const TABLES: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// Magic numbers of the table, since Go 1.18 and since Go 1.20: the same for what is read here.
const BEGINNINGS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// Bytes before the words of the table's head.
const BEFORE_WORDS: usize = 8;
/// Offset in the table of the address at which the code begins, in bytes.
const START_IN_TABLE: usize = BEFORE_WORDS + 2 * size_of::<u64>();
/// The section of the runtime's data, and where in it the same stands.
const MODULE: &str = ".go.module";
const START_IN_MODULE: usize = 22 * size_of::<u64>();

/// Finds the functions that an agent watches.
pub(super) fn places(file: &Path) -> Result<ServerFunctions> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let program = fs::read_link(file).unwrap_or_else(|_| file.to_owned());
    find(&bytes).with_context(|| format!("looking for Go functions in {}", program.display()))
}

fn find(bytes: &[u8]) -> Result<ServerFunctions> {
    let file: ElfFile64<'_> = ElfFile64::parse(bytes).context("it is not a 64-bit ELF program")?;
    if file.architecture() != Architecture::X86_64 {
        bail!(
            "it is a program for {:?}; only x86-64 is supported",
            file.architecture()
        );
    }
    let functions = functions(&file)?;
    let place = |name: &str| {
        let function = functions.get(name);
        let function = function.with_context(|| {
            format!("it has no function {name}; builtin:l7:kernel does not need it")
        })?;
        let (offset, code) = code(&file, function)?;
        let returns = returns(code).with_context(|| format!("decoding {name}"))?;
        Ok::<_, anyhow::Error>(GoFunction {
            name: name.to_owned(),
            offset,
            bytes: code.len(),
            returns: returns.into_iter().map(|at| offset + at).collect(),
        })
    };
    Ok(ServerFunctions {
        read: place(READ)?,
        write: place(WRITE)?,
        close: place(CLOSE)?,
        status: place(STATUS)?,
    })
}

/// Addresses of a function: its first, and the one behind it.
type Range = std::ops::Range<u64>;

/// All functions, by name.
fn functions<'a>(file: &ElfFile64<'a>) -> Result<BTreeMap<&'a str, Range>> {
    let table = TABLES.iter().find_map(|name| file.section_by_name(name));
    let table = table.context(
        "it is not a Go program, or its sections were removed: it has no table of functions \
         (.gopclntab)",
    )?;
    let start = start(file, &table);
    let table = table
        .data()
        .context("its table of functions cannot be read")?;
    let supported = number(table, 0).is_some_and(|first| BEGINNINGS.contains(&first));
    if !supported {
        bail!("its table of functions is not in the format of Go 1.18 and later");
    }
    let start = start.context("the start of its code is unknown: it has no section .go.module")?;
    read(table, start).context("its table of functions is damaged")
}

/// Start address of Go's code. Not that of `.text`: C code that is linked with it may come first.
fn start(file: &ElfFile64<'_>, table: &ElfSection64<'_, '_>) -> Option<u64> {
    let module = || loaded(file, &file.section_by_name(MODULE)?, START_IN_MODULE);
    loaded(file, table, START_IN_TABLE).or_else(module)
}

/// The address stored at this offset of a section, as it is once the program is loaded: a position-independent
/// program has it in its relocations. `None` where there is none.
fn loaded(file: &ElfFile64<'_>, section: &ElfSection64<'_, '_>, offset: usize) -> Option<u64> {
    let place = section.address() + offset as u64;
    let mut relocations = file.dynamic_relocations().into_iter().flatten();
    let moved = relocations.find(|(at, _)| *at == place);
    let moved = moved.map(|(_, relocation)| relocation.addend().cast_unsigned());
    let word = || {
        let word = section
            .data()
            .ok()?
            .get(offset..offset + size_of::<u64>())?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    };
    moved.or_else(word).filter(|address| *address != 0)
}

/// Reads the table of a program whose code begins there. `None` where it leads out of itself.
fn read(table: &[u8], start: u64) -> Option<BTreeMap<&str, Range>> {
    let word = |index: usize| {
        let at = BEFORE_WORDS + index * size_of::<u64>();
        let word = table.get(at..at + size_of::<u64>())?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    };
    let count = usize::try_from(word(0)?).ok()?;
    let names = table.get(usize::try_from(word(3)?).ok()?..)?;
    let list = table.get(usize::try_from(word(7)?).ok()?..)?;
    // Pairs: where a function begins, behind the start; where more is said of it, in this list. The last
    // begins where the code ends.
    let begins = |index: usize| number(list, index * 8).map(|at| start + u64::from(at));
    let mut functions = BTreeMap::new();
    for index in 0..count {
        let more = number(list, index * 8 + 4)? as usize;
        let name = names.get(number(list, more + 4)? as usize..)?;
        let name = name.split(|byte| *byte == 0).next()?;
        if let Ok(name) = std::str::from_utf8(name) {
            functions.insert(name, begins(index)?..begins(index + 1)?);
        }
    }
    Some(functions)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let number = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(number.try_into().ok()?))
}

/// A function's offset in the file, and its code.
fn code<'a>(file: &ElfFile64<'a>, range: &Range) -> Result<(usize, &'a [u8])> {
    let mut segments = file.segments();
    let segment = segments.find(|segment| {
        let all = segment.address()..segment.address() + segment.size();
        all.contains(&range.start)
            && segment
                .data_range(range.start, range.end - range.start)
                .is_ok_and(|data| data.is_some())
    });
    let segment = segment.context("its code is not in the file")?;
    let data = segment.data_range(range.start, range.end - range.start)?;
    let offset = segment.file_range().0 + (range.start - segment.address());
    Ok((
        offset as usize,
        data.context("its code is not in the file")?,
    ))
}

/// Return instructions, in bytes from the start. Go has nothing but code between a function's first and last
/// instruction.
fn returns(code: &[u8]) -> Result<Vec<usize>> {
    let decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut returns = Vec::new();
    for instruction in decoder {
        if instruction.is_invalid() {
            bail!("there is no instruction at byte {}", instruction.ip());
        }
        if instruction.mnemonic() == Mnemonic::Ret {
            returns.push(instruction.ip() as usize);
        }
    }
    if returns.is_empty() {
        bail!("it never returns");
    }
    Ok(returns)
}

#[cfg(test)]
mod tests {
    use std::env;

    use object::ObjectSymbol as _;

    use super::*;
    use crate::require;

    #[test]
    fn returns_are_found_by_decoding_and_not_by_their_byte() {
        // mov eax, 0xc3c3c3c3; ret; nop; ret; int3
        let code = [0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0x90, 0xc3, 0xcc];
        assert_eq!(returns(&code).expect("code"), [5, 7]);
        assert!(returns(&[0x90, 0xcc]).is_err(), "none");
        assert!(returns(&[0x06]).is_err(), "no instruction of 64 bits");
    }

    #[test]
    fn what_is_no_go_program_is_told() {
        let own = fs::read("/proc/self/exe").expect("this test");
        let error = format!("{:#}", find(&own).expect_err("Rust"));
        assert!(error.contains("it is not a Go program"), "{error}");
        let error = format!("{:#}", find(b"#!/bin/sh\n").expect_err("a script"));
        assert!(error.contains("ELF"), "{error}");
    }

    /// Go's own `go`, which is a Go program, where it is installed.
    fn go() -> Option<Vec<u8>> {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut files = env::split_paths(&path).map(|folder| folder.join("go"));
        let Some(go) = files.find(|file| file.is_file()) else {
            require::skip("go is not installed");
            return None;
        };
        Some(fs::read(go).expect("it can be read"))
    }

    #[test]
    fn a_program_whose_sections_were_removed_is_told() {
        let Some(mut bytes) = go() else {
            return;
        };
        // Where the table of sections is, and how large (e_shoff; e_shentsize, e_shnum, e_shstrndx).
        bytes[40..48].fill(0);
        bytes[58..64].fill(0);
        let error = format!("{:#}", find(&bytes).expect_err("no sections"));
        assert!(error.contains("its sections were removed"), "{error}");
    }

    #[test]
    fn the_table_says_what_symbols_say() {
        let Some(bytes) = go() else {
            return;
        };
        let file: ElfFile64<'_> = ElfFile64::parse(&*bytes).expect("a program");
        let functions = functions(&file).expect("a Go program");
        let text = |symbol: &object::read::elf::ElfSymbol64<'_, '_>| {
            symbol.kind() == object::SymbolKind::Text && symbol.size() > 0
        };
        let mut agreed = 0;
        for symbol in file.symbols().filter(text) {
            // Symbols of assembly functions carry a suffix.
            let name = symbol.name().unwrap_or_default().trim_end_matches(".abi0");
            let Some(range) = functions.get(name) else {
                continue;
            };
            agreed += u32::from(range.start == symbol.address());
        }
        let told = file.symbols().filter(text).count();
        // What is inlined everywhere, or is of the linker, is in one of them alone; two forms have one name.
        assert!(agreed as usize > told * 9 / 10, "{agreed} of {told}");
        assert!(told == 0 || agreed > 1000, "{agreed} of {told}");
    }

    /// Two functions, `a` and `bc`, of 16 and 32 bytes behind 0x1000.
    fn table() -> Vec<u8> {
        let mut table = BEGINNINGS[1].to_le_bytes().to_vec();
        table.extend([0, 0, 1, 8]);
        let (names, list) = (72, 80);
        for word in [2, 0, 0, names, 0, 0, 0, list] {
            table.extend(u64::to_le_bytes(word));
        }
        table.extend(b"\0a\0bc\0\0\0");
        let (first, second) = (24u32, 32u32);
        for number in [0, first, 16, second, 48, 0, 0, 1, 16, 3] {
            table.extend(number.to_le_bytes());
        }
        table
    }

    #[test]
    fn the_table_tells_where_functions_begin_and_end() {
        let functions = read(&table(), 0x1000).map(|all| {
            all.into_iter()
                .map(|(name, range)| (name.to_owned(), range))
                .collect::<Vec<_>>()
        });
        let expected = [
            ("a".to_owned(), 0x1000..0x1010),
            ("bc".to_owned(), 0x1010..0x1030),
        ];
        assert_eq!(functions.as_deref(), Some(&expected[..]));
        let cut = &table()[..100];
        assert!(read(cut, 0x1000).is_none());
    }
}
