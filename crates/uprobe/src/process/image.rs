//! An executable file in a process: from a symbol to its code in the file, and to its address in memory.

mod around;
mod reach;
mod usdt;

use super::{
    error::{Error, Result},
    maps::{Mapping, mappings},
    permission,
};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolFlags, SymbolKind, elf,
};
pub use reach::TailJump;
use std::{
    fs::{self, File},
    io::{self, Read as _},
    ops::Range,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
pub use usdt::UsdtSite;
pub(super) use usdt::notes_are_whole;

/// Largest distance of a suggested name from the one that was asked for: edits, a third of its length.
const EDITS: usize = 3;

/// Bytes of an ELF file's header: its class, and the machine that it is for.
const CLASS: usize = 4;
const MACHINE: usize = 18;

/// An executable file that a process has mapped.
#[derive(Debug)]
pub struct Image {
    pid: i32,
    path: PathBuf,
    data: Vec<u8>,
    mappings: Vec<Mapping>,
}

/// A function of an image in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The symbol.
    pub name: String,
    /// The address at which the process executes it.
    pub address: u64,
    /// The machine code, as the file has it.
    pub code: Vec<u8>,
    /// The file's bytes between its end and the next function.
    pub padding: Vec<u8>,
    /// True if the Go toolchain compiled it, whose functions pass arguments in r11 and nothing in r12.
    pub is_go: bool,
    /// Addresses in it that code outside of it jumps to: the compiler's cold part of it, or hand-written code.
    pub entrances: Vec<u64>,
    /// True if its file says how to unwind it, or nothing of the kind about any function. Compilers describe what they
    /// write. Other code may be entered anywhere by computed jumps, and have arguments in flags: it is refused, unless the
    /// caller knows better and sets this.
    pub is_described: bool,
    /// Jumps to other functions by which it leaves. One that is not here has no probe at its return.
    pub tail_jumps: Vec<TailJump>,
}

impl Image {
    /// The program that the process runs.
    pub fn of_program(pid: i32) -> Result<Self> {
        let (path, from) = program(pid)?;
        Self::read(pid, path, from)
    }

    /// The first address at which the process executes its program. Of the file it reads the header alone: all of a large
    /// program would take as much memory, for each process that is attached to.
    pub(super) fn program_address(pid: i32) -> Result<u64> {
        let (path, from) = program(pid)?;
        let mappings = executable_mappings(pid, &path, &from)?;
        let mut header = [0; MACHINE + 2];
        let read = File::open(&from).and_then(|mut file| file.read_exact(&mut header));
        read.map_err(|error| Error::system(path.display().to_string(), error))?;
        let machine = u16::from_le_bytes([header[MACHINE], header[MACHINE + 1]]);
        if header[CLASS] != elf::ELFCLASS64 || machine != elf::EM_X86_64 {
            return Err(Error::Architecture { pid });
        }
        Ok(mappings[0].start)
    }

    /// A file that the process executes, by any name that leads to it from here, such as `/proc/PID/map_files/RANGE`.
    pub fn of_file(pid: i32, file: &Path) -> Result<Self> {
        let path = fs::read_link(file).unwrap_or_else(|_| file.to_owned());
        Self::read(pid, path, file.to_owned())
    }

    /// A file that the process executes: its program, or a shared library. `path` is as the process sees it.
    pub fn open(pid: i32, path: &Path) -> Result<Self> {
        let inside =
            Path::new(&format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(path));
        Self::read(pid, path.to_owned(), inside)
    }

    fn read(pid: i32, path: PathBuf, from: PathBuf) -> Result<Self> {
        let mappings = executable_mappings(pid, &path, &from)?;
        let data =
            fs::read(&from).map_err(|error| Error::system(path.display().to_string(), error))?;
        Image {
            pid,
            path,
            data,
            mappings,
        }
        .checked()
    }

    /// A file that no process executes, as if one did from the address 4 MiB on.
    pub(super) fn of_bytes(data: Vec<u8>) -> Result<Self> {
        let start = 0x40_0000;
        let mapping = Mapping {
            start,
            end: start + data.len() as u64,
            permissions: "r-xp".to_owned(),
            offset: 0,
            device: "00:00".to_owned(),
            inode: 1,
            name: String::new(),
        };
        Image {
            pid: 0,
            path: PathBuf::new(),
            data,
            mappings: vec![mapping],
        }
        .checked()
    }

    /// An error if its code is for other machines.
    fn checked(self) -> Result<Self> {
        let pid = self.pid;
        if self.elf()?.architecture() != object::Architecture::X86_64 {
            return Err(Error::Architecture { pid });
        }
        Ok(self)
    }

    /// The first address at which the process executes it.
    pub fn first_address(&self) -> u64 {
        self.mappings[0].start
    }

    /// The file, as the process sees it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The executable mapping that holds an address.
    pub fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.mappings
            .iter()
            .find(|mapping| mapping.contains(address))
    }

    /// The address in the process of a byte of the file, `None` where that byte isn't executable there.
    pub fn address(&self, file_offset: u64) -> Option<u64> {
        let mapping = self.mappings.iter().find(|mapping| {
            (mapping.offset..mapping.offset + (mapping.end - mapping.start)).contains(&file_offset)
        })?;
        Some(mapping.start + (file_offset - mapping.offset))
    }

    /// The function of a name. An error with similar names where there is none, with the addresses where there
    /// are several.
    pub fn function(&self, name: &str) -> Result<Function> {
        let file = self.elf()?;
        let mut found: Vec<(u64, u64, bool)> = Vec::new();
        let mut names = Vec::new();
        for symbol in file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(object::ObjectSymbol::is_definition)
        {
            let resolver = matches!(symbol.flags(), SymbolFlags::Elf { st_info, .. } if st_info & 15 == elf::STT_GNU_IFUNC);
            if symbol.kind() != SymbolKind::Text && !resolver {
                continue;
            }
            let Ok(one) = symbol.name() else { continue };
            if one == name {
                found.push((symbol.address(), symbol.size(), resolver));
            }
            names.push(one);
        }
        found.sort_unstable_by_key(|&(address, size, _)| (address, u64::MAX - size));
        found.dedup_by_key(|&mut (address, ..)| address);
        let (address, size) = match found[..] {
            [] => {
                return Err(Error::NoSymbol {
                    path: self.path.clone(),
                    symbol: name.to_owned(),
                    nearest: nearest(name, names),
                });
            }
            [(_, _, true)] => {
                let reason = "the dynamic linker chooses its implementation (an IFUNC)\n  probe the implementation";
                return Err(Error::Symbol {
                    symbol: name.to_owned(),
                    reason: reason.into(),
                });
            }
            [(address, size, false)] => (address, size),
            _ => {
                return Err(Error::Ambiguous {
                    path: self.path.clone(),
                    symbol: name.to_owned(),
                    addresses: found.iter().map(|&(address, ..)| address).collect(),
                });
            }
        };
        self.function_at(&file, name, address, size)
    }

    /// The function that holds an address of the process. An error where no symbol says so.
    pub fn function_around(&self, address: u64) -> Result<Function> {
        let file = self.elf()?;
        let virtual_address = address.wrapping_sub(self.bias(&file)?);
        let around = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
            .filter(|symbol| span(symbol.address(), symbol.size()).contains(&virtual_address))
            // The innermost, and of several names the first.
            .min_by_key(|symbol| (virtual_address - symbol.address(), symbol.name().ok()));
        let Some((name, symbol)) = around.and_then(|one| Some((one.name().ok()?, one))) else {
            let path = self.path.display();
            let reason = format!(
                "no symbol of {path} covers it, so the branches around it are unknown\n  \
                 install the file's unstripped version, or use a kernel uprobe"
            );
            let symbol = format!("{virtual_address:#x}");
            return Err(Error::Symbol { symbol, reason });
        };
        self.function_at(&file, name, symbol.address(), symbol.size())
    }

    /// Returns what is added to the file's virtual addresses in the process.
    fn bias(&self, file: &object::File<'_>) -> Result<u64> {
        let first = &self.mappings[0];
        let in_file = file.segments().find_map(|segment| {
            let (start, size) = segment.file_range();
            let offset = first.offset.max(start);
            let end = (first.offset + (first.end - first.start)).min(start.saturating_add(size));
            let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0);
            (is_code && offset < end).then(|| {
                let in_process = first.start + (offset - first.offset);
                in_process.wrapping_sub(segment.address().wrapping_add(offset - start))
            })
        });
        in_file.ok_or_else(|| Error::Elf {
            path: self.path.clone(),
            reason: "it has no executable segment".into(),
        })
    }

    /// A function by its virtual address in the file, and its size, 0 where the symbol has none.
    fn function_at(
        &self,
        file: &object::File<'_>,
        name: &str,
        address: u64,
        size: u64,
    ) -> Result<Function> {
        let outside = || Error::Symbol {
            symbol: name.to_owned(),
            reason: "it lies outside of the code".into(),
        };
        let section = file
            .sections()
            .find(|section| span(section.address(), section.size()).contains(&address))
            .ok_or_else(outside)?;
        let end = section.address().saturating_add(section.size());
        let next = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
            .map(|symbol| symbol.address())
            .filter(|&other| other > address && other <= end)
            .min()
            .unwrap_or(end);
        let size = if size == 0 { next - address } else { size };
        let code = span(address, size);
        let past = code.end.max(next).min(end);
        let offset = file
            .segments()
            .find(|segment| span(segment.address(), segment.size()).contains(&address))
            .and_then(|segment| {
                segment
                    .file_range()
                    .0
                    .checked_add(address - segment.address())
            })
            .ok_or_else(outside)?;
        let bytes = |from: u64, to: u64| {
            let place = |at: u64| usize::try_from(offset.checked_add(at - address)?).ok();
            self.data.get(place(from)?..place(to)?).map(<[u8]>::to_vec)
        };
        let is_go = is_go(file, address);
        let here = self.address(offset).ok_or_else(outside)?;
        // Go's functions are entered at their beginning.
        let (entrances, is_described) = if is_go {
            (Vec::new(), true)
        } else {
            let entrances = around::entrances(file, code.clone());
            (entrances, around::is_described(file, address))
        };
        let mut function = Function {
            name: name.to_owned(),
            address: here,
            code: bytes(address, code.end).ok_or_else(outside)?,
            padding: bytes(code.end, past).ok_or_else(outside)?,
            is_go,
            entrances: entrances.iter().map(|one| one - address + here).collect(),
            is_described,
            tail_jumps: Vec::new(),
        };
        function.tail_jumps = reach::tail_jumps(self, file, &function, address);
        Ok(function)
    }

    /// A function of Go by its place in the file, for programs without symbols: Go's own table of functions has it.
    pub fn go_function(&self, name: &str, file_offset: usize, bytes: usize) -> Result<Function> {
        let outside = || Error::Symbol {
            symbol: name.to_owned(),
            reason: "it lies outside of the code".into(),
        };
        let code = (self.data).get(file_offset..file_offset.saturating_add(bytes));
        Ok(Function {
            name: name.to_owned(),
            address: self.address(file_offset as u64).ok_or_else(outside)?,
            code: code.ok_or_else(outside)?.to_vec(),
            padding: Vec::new(),
            is_go: true,
            // Go's functions are entered at their beginning.
            entrances: Vec::new(),
            is_described: true,
            tail_jumps: Vec::new(),
        })
    }

    fn elf(&self) -> Result<object::File<'_>> {
        if self.data.get(CLASS) == Some(&elf::ELFCLASS32) {
            return Err(Error::Architecture { pid: self.pid });
        }
        object::File::parse(&*self.data).map_err(|error| Error::Elf {
            path: self.path.clone(),
            reason: error.to_string(),
        })
    }
}

/// The program of a process: its path, and a name that leads to it from here.
fn program(pid: i32) -> Result<(PathBuf, PathBuf)> {
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    let path = fs::read_link(&exe).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoProcess { pid },
        io::ErrorKind::PermissionDenied => permission::refused(pid),
        _ => Error::system(exe.display().to_string(), error),
    })?;
    Ok((path, exe))
}

/// The mappings of a file that the process executes, in the order of their addresses: at least one. `path` is as the
/// process sees it, and `from` leads to it from here.
fn executable_mappings(pid: i32, path: &Path, from: &Path) -> Result<Vec<Mapping>> {
    let all = mappings(pid)?;
    if all.is_empty() {
        return Err(Error::NoProcess { pid });
    }
    let metadata = fs::metadata(from).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NotMapped {
            pid,
            path: path.to_owned(),
        },
        io::ErrorKind::PermissionDenied => permission::refused(pid),
        _ => Error::system(path.display().to_string(), error),
    })?;
    // Overlay and btrfs report another device to stat than to maps: there, the path has to agree.
    let device = format!(
        "{:02x}:{:02x}",
        libc::major(metadata.dev()),
        libc::minor(metadata.dev())
    );
    let real = fs::canonicalize(from).unwrap_or_else(|_| path.to_owned());
    let is_name =
        |mapping: &&Mapping| Path::new(&mapping.name) == path || Path::new(&mapping.name) == real;
    let executable = || {
        all.iter()
            .filter(|mapping| mapping.is_executable() && mapping.inode != 0)
    };
    let mut chosen: Vec<_> = executable()
        .filter(|mapping| {
            mapping.inode == metadata.ino() && (mapping.device == device || is_name(mapping))
        })
        .cloned()
        .collect();
    if chosen.is_empty() {
        let deleted = format!("{} (deleted)", path.display());
        let was_there = executable().any(|mapping| is_name(&mapping) || mapping.name == deleted);
        return Err(if was_there {
            Error::Replaced {
                pid,
                path: path.to_owned(),
            }
        } else {
            Error::NotMapped {
                pid,
                path: path.to_owned(),
            }
        });
    }
    chosen.sort_by_key(|mapping| mapping.start);
    Ok(chosen)
}

impl Function {
    /// An error where the memory of an instruction of the function at this offset isn't the file's, or where the
    /// function has no such offset. The address otherwise.
    pub fn offset(&self, offset: u64) -> Result<u64> {
        if offset >= self.code.len() as u64 {
            let reason = format!(
                "it has {} bytes, and no offset {offset:#x}",
                self.code.len()
            );
            return Err(Error::Symbol {
                symbol: self.name.clone(),
                reason,
            });
        }
        Ok(self.address + offset)
    }
}

/// Addresses of this many bytes: a damaged file may have more than there are addresses.
fn span(start: u64, bytes: u64) -> Range<u64> {
    start..start.saturating_add(bytes)
}

/// Returns whether the Go toolchain compiled the code at an address. A Go program may have functions in C as well.
fn is_go(file: &object::File<'_>, address: u64) -> bool {
    let symbol = |name| file.symbol_by_name(name).map(|symbol| symbol.address());
    symbol("runtime.text").is_some_and(|start| address >= start)
        && symbol("runtime.etext").is_some_and(|end| address < end)
}

/// The names most like one, at most three.
fn nearest(name: &str, names: Vec<&str>) -> Vec<String> {
    let limit = (name.len() / 3).clamp(1, EDITS);
    let mut near: Vec<_> = names
        .into_iter()
        .filter(|other| {
            other.len().abs_diff(name.len()) <= limit || (name.len() > 3 && other.contains(name))
        })
        .map(|other| {
            (
                if other.contains(name) {
                    limit
                } else {
                    strsim::levenshtein(name, other)
                },
                other,
            )
        })
        .filter(|&(edits, _)| edits <= limit)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter()
        .take(3)
        .map(|(_, other)| other.to_owned())
        .collect()
}

#[cfg(test)]
mod tests;
