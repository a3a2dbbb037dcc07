//! Beginning of a file's own code in each process that executes it.

use super::error::{Error, Result};
use object::{
    Endianness,
    elf::{self, FileHeader64},
    read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _},
};
use std::{fs, io, path::Path};

/// The offset in a file of the instruction that a process executes first of it. In a program it is the entry point:
/// what the dynamic linker does comes before. In a library it is the first function that the dynamic linker calls,
/// when it has mapped and relocated all of them.
pub(super) fn start_point(path: &Path) -> Result<u64> {
    let wrong = |reason: &str| Error::Elf {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let data = fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => wrong("there is no such file\n  check the path"),
        _ => Error::system(path.display().to_string(), error),
    })?;
    if data.starts_with(b"#!") {
        return Err(wrong(
            "it is a script\n  name the program that executes it, which its first line says",
        ));
    }
    let is_elf = data.starts_with(&elf::ELFMAG);
    let header = FileHeader64::<Endianness>::parse(&*data);
    let header = header.map_err(|_| {
        wrong(if is_elf {
            "it is not a 64-bit program or library\n  use a kernel uprobe for it"
        } else {
            "it is no program and no library (no ELF file)\n  check the path"
        })
    })?;
    let parse = |error: object::read::Error| wrong(&error.to_string());
    let endian = header.endian().map_err(parse)?;
    let kind = header.e_type(endian);
    if header.e_machine(endian) != elf::EM_X86_64 || !matches!(kind, elf::ET_EXEC | elf::ET_DYN) {
        return Err(wrong(
            "it is not a 64-bit x86 program or library\n  use a kernel uprobe for it",
        ));
    }
    let file = Elf {
        header,
        endian,
        data: &data,
    };
    let address = match file.dynamic(elf::DT_SONAME).map_err(parse)? {
        None if kind == elf::ET_EXEC || file.is_program().map_err(parse)? => header.e_entry(endian),
        _ => match file.dynamic(elf::DT_INIT).map_err(parse)? {
            Some(address) => address,
            None => file.first_constructor().map_err(parse)?.ok_or_else(|| {
                wrong(
                    "the dynamic linker calls no function of it, so that its start is not seen\n  \
                     name a program that uses it",
                )
            })?,
        },
    };
    file.offset(address)
        .map_err(parse)?
        .ok_or_else(|| wrong("its entry point lies outside of its code"))
}

struct Elf<'a> {
    header: &'a FileHeader64<Endianness>,
    endian: Endianness,
    data: &'a [u8],
}

impl Elf<'_> {
    /// A number of the dynamic section.
    fn dynamic(&self, tag: i64) -> object::read::Result<Option<u64>> {
        for segment in self.header.program_headers(self.endian, self.data)? {
            for entry in segment
                .dynamic(self.endian, self.data)?
                .into_iter()
                .flatten()
            {
                if entry.d_tag(self.endian) == tag {
                    return Ok(Some(entry.d_val(self.endian)));
                }
            }
        }
        Ok(None)
    }

    /// Returns whether a file that can lie anywhere is a program: it names a dynamic linker, or says so.
    fn is_program(&self) -> object::read::Result<bool> {
        let mut segments = self.header.program_headers(self.endian, self.data)?.iter();
        let has_linker = segments.any(|one| one.p_type(self.endian) == elf::PT_INTERP);
        let flags = self.dynamic(elf::DT_FLAGS_1)?.unwrap_or_default();
        Ok(has_linker || flags & u64::from(elf::DF_1_PIE) != 0)
    }

    /// The first function that its list of constructors holds, by the file itself or by a relocation.
    fn first_constructor(&self) -> object::read::Result<Option<u64>> {
        let Some(list) = self.dynamic(elf::DT_INIT_ARRAY)? else {
            return Ok(None);
        };
        let sections = self.header.sections(self.endian, self.data)?;
        for section in sections.iter() {
            let Some((relocations, _)) = section.rela(self.endian, self.data)? else {
                continue;
            };
            for one in relocations {
                let kind = one.r_type(self.endian, false);
                if one.r_offset(self.endian) == list && kind == elf::R_X86_64_RELATIVE {
                    return Ok(Some(one.r_addend(self.endian).cast_unsigned()));
                }
            }
        }
        let offset = self.offset(list)?.unwrap_or(u64::MAX) as usize;
        let bytes = self.data.get(offset..offset.saturating_add(8));
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        Ok(bytes.map(number).filter(|&address| address != 0))
    }

    /// Returns where in the file an address is.
    fn offset(&self, address: u64) -> object::read::Result<Option<u64>> {
        let segments = self.header.program_headers(self.endian, self.data)?;
        Ok(segments.iter().find_map(|segment| {
            let start = segment.p_vaddr(self.endian);
            let is_loaded = segment.p_type(self.endian) == elf::PT_LOAD;
            let inside = start..start + segment.p_filesz(self.endian);
            (is_loaded && inside.contains(&address))
                .then(|| segment.p_offset(self.endian) + (address - start))
        }))
    }
}
