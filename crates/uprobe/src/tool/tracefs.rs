//! The files of tracefs by which a tool could make uprobes of the kernel, past the supervisor: it can't write them.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::statfs,
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount},
};

use crate::mount::MountedFs;

/// The files; a line that is written to one of them makes an event.
const FILES: [&str; 2] = ["uprobe_events", "dynamic_events"];
const TRACEFS: &str = "tracefs";
const DEBUGFS: &str = "debugfs";
/// File systems in which tracefs may be mounted, and itself, with their magic numbers.
const KINDS: [(&str, u64); 3] = [
    (TRACEFS, 0x7472_6163),
    (DEBUGFS, 0x6462_6720),
    ("sysfs", 0x6265_6572),
];

/// A mount of this thread's namespace.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    kind: String,
    /// The folder of the file system that is mounted.
    root: PathBuf,
    point: PathBuf,
}

/// Makes the files read-only for this thread, which has a mount namespace of its own, and for what it starts. Other namespaces
/// see nothing of it, and mount nothing beside it later.
pub(super) fn protect() -> io::Result<()> {
    for mount in mounts()? {
        if is_of(&mount.kind, &mount.point) {
            mount_change(&mount.point, MountPropagationFlags::PRIVATE)?;
            if mount.kind == DEBUGFS {
                // Whoever first looks there has the kernel mount tracefs.
                let _ = fs::metadata(mount.point.join("tracing/."));
            }
        }
    }
    for mount in mounts()? {
        let of_tracefs = |path: &PathBuf| mount.kind == TRACEFS && is_of(TRACEFS, path);
        for path in mount.files().filter(of_tracefs) {
            mount_bind(&path, &path)?;
            mount_remount(&path, MountFlags::BIND | MountFlags::RDONLY, "")?;
        }
    }
    Ok(())
}

/// Returns whether a tool that mounts this kind of file system could make uprobes there.
pub(super) fn has_events(kind: &[u8]) -> bool {
    [TRACEFS, DEBUGFS].iter().any(|one| one.as_bytes() == kind)
}

/// The name of the uprobe that has this number as an event.
pub(super) fn uprobe(number: u64) -> io::Result<Option<String>> {
    let tracefs = match MountedFs::ask(TRACEFS) {
        Ok(tracefs) => tracefs,
        Err(Errno::NODEV) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let events = match fs::read_to_string(tracefs.path(FILES[0])) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        events => events?,
    };
    let names = events.lines().filter_map(name);
    let mut is_it = names.filter(|name| {
        let id = fs::read_to_string(tracefs.path(&format!("events/{name}/id")));
        id.is_ok_and(|id| id.trim().parse() == Ok(number))
    });
    Ok(is_it.next().map(str::to_owned))
}

/// The event's name in a line of `uprobe_events`, such as `p:uprobes/read /bin/bash:0x1234`.
fn name(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(':')?;
    rest.split(' ').next()
}

impl Mount {
    fn from_line(line: &str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut words = place.split(' ').skip(3);
        Some(Mount {
            root: unescaped(words.next()?),
            point: unescaped(words.next()?),
            kind: kind.split(' ').next()?.to_owned(),
        })
    }

    /// The paths of the files, if all of the file system or one of them is mounted here.
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let files = FILES.map(|name| {
            let path = Path::new("/").join(name);
            let inside = path.strip_prefix(&self.root).ok()?;
            // A path with an empty end would be that of a folder.
            let is_file = inside.as_os_str().is_empty();
            Some(if is_file {
                self.point.clone()
            } else {
                self.point.join(inside)
            })
        });
        files.into_iter().flatten()
    }
}

fn mounts() -> io::Result<Vec<Mount>> {
    // Not of `self`: that is the namespace of another thread.
    let all = fs::read_to_string("/proc/thread-self/mountinfo")?;
    let known = |mount: &Mount| KINDS.iter().any(|(kind, _)| *kind == mount.kind);
    Ok(all
        .lines()
        .filter_map(Mount::from_line)
        .filter(known)
        .collect())
}

/// Returns whether a path leads to a file system of a kind: something else may be mounted over it.
fn is_of(kind: &str, path: &Path) -> bool {
    let number = KINDS.iter().find(|(name, _)| *name == kind);
    statfs(path)
        .is_ok_and(|status| number.is_some_and(|(_, number)| status.f_type as u64 == *number))
}

/// A path as the kernel writes it, where spaces are numbers of 3 digits: `\040`.
fn unescaped(word: &str) -> PathBuf {
    let mut parts = word.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (number, rest) = part.split_at_checked(3).unwrap_or_default();
        bytes.extend(u8::from_str_radix(number, 8).ok());
        bytes.extend(rest.as_bytes());
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(line: &str) -> (Mount, Vec<PathBuf>) {
        let mount = Mount::from_line(line).unwrap();
        let files = mount.files().collect();
        (mount, files)
    }

    #[test]
    fn lines_of_mounts_lead_to_the_files() {
        let (all, files) =
            mount("46 23 0:12 / /a\\040b\\134c rw,nosuid shared:7 - tracefs tracefs rw");
        assert_eq!(
            (all.kind.as_str(), all.point.as_path()),
            ("tracefs", Path::new("/a b\\c"))
        );
        let expected = ["/a b\\c/uprobe_events", "/a b\\c/dynamic_events"];
        assert_eq!(files, expected.map(PathBuf::from));
        let (_, files) = mount("46 23 0:12 /uprobe_events /x rw - tracefs none rw");
        assert_eq!(files, [PathBuf::from("/x")]);
        let (_, files) = mount("46 23 0:12 /instances/a /x rw - tracefs none rw");
        assert!(files.is_empty(), "{files:?}");
        assert_eq!(Mount::from_line("46 23"), None);
    }

    #[test]
    fn lines_of_events_have_names() {
        assert_eq!(name("p:uprobes/read /bin/bash:0x12"), Some("uprobes/read"));
        assert_eq!(name("r2:mine/read /bin/a:b:0x12"), Some("mine/read"));
        assert_eq!(name(""), None);
    }
}
