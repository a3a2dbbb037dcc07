//! The program that a guest runs: this one, as a file of its initramfs, with the libraries that it has loaded here. A static
//! program has none.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use object::{
    Endianness,
    elf::{DT_SONAME, DT_STRTAB, FileHeader64, PT_DYNAMIC, PT_INTERP, PT_LOAD, ProgramHeader64},
    read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _},
};
use procfs::process::{MMPermissions, MMapPath, Process};

/// This program, even where its file was replaced meanwhile.
pub(crate) const MYSELF: &str = "/proc/self/exe";

/// Path of this program in a guest. Programs are known by the name of their file.
pub const IN_GUEST: &str = "/run/program/bpfcost";

/// The folder of its libraries there, and the variable of the environment that has the loader search it.
pub(crate) const LIBRARIES: &str = "/run/program/lib";
pub(crate) const SEARCH: &str = "LD_LIBRARY_PATH";

/// A file that the program needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeededFile {
    /// Path in the guest.
    pub(crate) path: PathBuf,
    /// File on this machine.
    pub(crate) from: PathBuf,
}

/// The program, its loader and its libraries.
pub(crate) fn files() -> io::Result<Vec<NeededFile>> {
    let mut files = vec![NeededFile {
        path: IN_GUEST.into(),
        from: MYSELF.into(),
    }];
    let program = fs::read(MYSELF)?;
    let Some(loader) = elf(&program).and_then(|program| program.interpreter) else {
        return Ok(files);
    };
    files.push(NeededFile {
        from: fs::canonicalize(&loader)?,
        path: loader.into(),
    });
    for from in mapped()? {
        let bytes = fs::read(&from)?;
        if let Some(name) = elf(&bytes).and_then(|library| library.name) {
            let path = Path::new(LIBRARIES).join(name);
            files.push(NeededFile { path, from });
        }
    }
    Ok(files)
}

/// Files on this machine that [`files`] are made of.
pub(crate) fn sources() -> io::Result<Vec<PathBuf>> {
    let mut sources = vec![PathBuf::from(MYSELF)];
    sources.extend(mapped()?);
    Ok(sources)
}

/// Files whose code this process has mapped, but for its own.
fn mapped() -> io::Result<BTreeSet<PathBuf>> {
    let itself = fs::read_link(MYSELF)?;
    let maps = Process::myself()
        .and_then(|process| process.maps())
        .map_err(io::Error::other)?;
    let code = maps
        .into_iter()
        .filter(|map| map.perms.contains(MMPermissions::EXECUTE));
    let paths = code.filter_map(|map| match map.pathname {
        MMapPath::Path(path) => Some(path),
        _ => None,
    });
    Ok(paths.filter(|path| *path != itself).collect())
}

/// Loading of an ELF file, by its own account.
struct Loading {
    /// The loader, for a program that is not static.
    interpreter: Option<String>,
    /// The name by which others ask for it, for a library.
    name: Option<String>,
}

/// `None` for a file of another kind.
fn elf(bytes: &[u8]) -> Option<Loading> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let text =
        |at: &[u8]| Some(String::from_utf8_lossy(at.split(|byte| *byte == 0).next()?).into_owned());
    let interpreter = segments
        .iter()
        .find(|segment| segment.p_type(endian) == PT_INTERP)
        .and_then(|segment| text(segment.data(endian, bytes).ok()?));
    let name = || {
        let dynamic = segments
            .iter()
            .find(|segment| segment.p_type(endian) == PT_DYNAMIC)?;
        let entries = dynamic.dynamic(endian, bytes).ok()??;
        let entry = |tag: i64| {
            let entry = entries.iter().find(|entry| entry.d_tag(endian) == tag);
            entry.map(|entry| entry.d_val(endian))
        };
        let at = entry(DT_STRTAB)?.checked_add(entry(DT_SONAME)?)?;
        // An address, which lies in one of the parts that are loaded.
        let loaded = |segment: &&ProgramHeader64<Endianness>| {
            let begin = segment.p_vaddr(endian);
            segment.p_type(endian) == PT_LOAD
                && (begin..begin.saturating_add(segment.p_filesz(endian))).contains(&at)
        };
        let segment = segments.iter().find(loaded)?;
        let offset = at - segment.p_vaddr(endian) + segment.p_offset(endian);
        text(bytes.get(usize::try_from(offset).ok()?..)?)
    };
    Some(Loading {
        name: name(),
        interpreter,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_programs_own_files_are_found() {
        let files = files().expect("files");
        assert_eq!(files[0].path, Path::new(IN_GUEST));
        let names: Vec<_> = files
            .iter()
            .map(|file| file.path.display().to_string())
            .collect();
        let named = |text: &str| names.iter().filter(|name| name.contains(text)).count();
        if elf(&fs::read(MYSELF).expect("it is there")).is_some_and(|own| own.interpreter.is_some())
        {
            assert_eq!(named("/libc.so"), 1, "{names:?}");
            assert!(named("ld-linux") >= 1, "{names:?}");
        } else {
            assert_eq!(files.len(), 1, "{names:?}");
        }
        for file in &files {
            assert!(file.from.is_file(), "{file:?}");
        }
    }

    #[test]
    fn other_files_are_no_libraries() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01\x01"] {
            assert!(elf(bytes).is_none(), "{bytes:?}");
        }
    }
}
