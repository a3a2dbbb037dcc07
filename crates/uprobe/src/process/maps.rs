//! Mappings of a process: `/proc/PID/maps`.

use super::{
    error::{Error, Result},
    permission,
};
use std::{fs, io};

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// `r`, `w`, `x`, `p` or `s`, as the kernel prints them.
    pub permissions: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The file's device, `major:minor` in hexadecimal.
    pub device: String,
    /// The file's inode, 0 where there is no file.
    pub inode: u64,
    /// The file's path or a name in brackets. Empty for anonymous memory.
    pub name: String,
}

#[cfg(test)]
impl Mapping {
    /// One with code, for tests.
    pub(super) fn for_test(start: u64, end: u64, name: &str) -> Self {
        Mapping {
            start,
            end,
            permissions: "r-xp".into(),
            offset: 0,
            device: "00:00".into(),
            inode: 0,
            name: name.into(),
        }
    }
}

impl Mapping {
    /// Returns whether the process may execute it.
    pub fn is_executable(&self) -> bool {
        self.permissions.as_bytes().get(2) == Some(&b'x')
    }

    /// Returns whether an address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// File and offset of the bytes at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Origin {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) offset: u64,
}

impl Origin {
    /// That of an address. `None` where nothing is mapped.
    pub(super) fn find(all: &[Mapping], address: u64) -> Option<Self> {
        let mapping = all.iter().find(|mapping| mapping.contains(address))?;
        let (major, minor) = mapping.device.split_once(':')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Origin {
            device: number(major)? << 32 | number(minor)?,
            inode: mapping.inode,
            offset: mapping.offset + (address - mapping.start),
        })
    }
}

/// The mappings of a process, by ascending address. An error where there is no such process, or none that this
/// user may see.
pub fn mappings(pid: i32) -> Result<Vec<Mapping>> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NoProcess { pid },
            io::ErrorKind::PermissionDenied => permission::refused(pid),
            _ if error.raw_os_error() == Some(libc::ESRCH) => Error::NoProcess { pid },
            _ => Error::system(format!("/proc/{pid}/maps"), error),
        })?;
    Ok(text.lines().filter_map(parse).collect())
}

/// Returns whether a forked child has the mapping that begins at an address too: `dc` says that it has not.
pub(super) fn is_copied(pid: i32, at: u64) -> Result<bool> {
    let path = format!("/proc/{pid}/smaps");
    let text = fs::read_to_string(&path).map_err(|error| Error::system(path, error))?;
    let mut lines = text.lines();
    let start = format!("{at:08x}-");
    let flags = lines
        .find(|line| line.starts_with(&start))
        .and_then(|_| lines.find_map(|line| line.strip_prefix("VmFlags:")));
    Ok(flags.is_some_and(|flags| !flags.split_ascii_whitespace().any(|flag| flag == "dc")))
}

fn parse(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let trimmed = rest.trim_start();
        let (one, more) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        rest = more;
        one
    };
    let (start, end) = field().split_once('-')?;
    let (permissions, offset, device, inode) = (field(), field(), field(), field());
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        permissions: permissions.to_owned(),
        offset: u64::from_str_radix(offset, 16).ok()?,
        device: device.to_owned(),
        inode: inode.parse().ok()?,
        name: rest.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_spaces() {
        let line = "7f0000001000-7f0000003000 r-xp 00001000 fd:01 42                         /tmp/a b  (deleted)";
        let mapping = parse(line).unwrap();
        assert_eq!(
            (mapping.start, mapping.end, mapping.offset),
            (0x7f00_0000_1000, 0x7f00_0000_3000, 0x1000)
        );
        assert_eq!((mapping.device.as_str(), mapping.inode), ("fd:01", 42));
        assert_eq!(mapping.name, "/tmp/a b  (deleted)");
        assert!(mapping.is_executable());
        let origin = Origin {
            device: 0xfd << 32 | 1,
            inode: 42,
            offset: 0x1008,
        };
        assert_eq!(Origin::find(&[mapping], 0x7f00_0000_1008), Some(origin));
    }

    #[test]
    fn anonymous_memory_has_no_name() {
        let mapping = parse("55d000000000-55d000021000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((mapping.inode, mapping.name.as_str()), (0, ""));
        assert!(!mapping.is_executable());
        assert!(mapping.contains(mapping.start) && !mapping.contains(mapping.end));
    }
}
