//! The initramfs of a guest: this program, its libraries, the modules that it loads, and empty folders to mount on. The
//! kernel unpacks it into memory.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use cpio::{NewcBuilder, newc::trailer};

use super::{GuestError, GuestSpec, command::INITRAMFS, first, modules, program};

/// The first file that the kernel starts.
const INIT: &str = "init";

/// Kinds of files in the mode of an entry.
const FOLDER: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

/// Writes it into the folder of a guest.
pub(crate) fn write(spec: &GuestSpec, folder: &Path) -> Result<(), GuestError> {
    let path = folder.join(INITRAMFS);
    let modules = match &spec.kernel.modules {
        Some(modules) => modules::wanted(modules, spec.traced)?,
        None => Vec::new(),
    };
    let files = program::files().map_err(GuestError::io("finding the files of this program"))?;
    let write = || {
        let mut archive = Archive::begin(File::create(&path)?);
        for folder in first::FOLDERS {
            archive.folder(Path::new(folder))?;
        }
        // The kernel gives it to the first process, before that has mounted anything.
        archive.console()?;
        archive.link(INIT, program::IN_GUEST)?;
        for file in &files {
            let mut from = File::open(&file.from)?;
            let length = from.metadata()?.len();
            archive.file(&file.path, length, &mut from)?;
        }
        for (number, module) in modules.iter().enumerate() {
            let name = format!("{}/{number:02}-{}.ko", first::MODULES, module.name);
            let length = module.bytes.len() as u64;
            archive.file(Path::new(&name), length, &mut module.bytes.as_slice())?;
        }
        archive.end()
    };
    write().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::StorageFull => GuestError::no_room(folder),
        _ => GuestError::io(format!("writing {}", path.display()))(error),
    })
}

/// Writes one with nothing in it, for a guest that goes on where another one was, which has unpacked its own.
pub(crate) fn write_empty(folder: &Path) -> io::Result<()> {
    Archive::begin(File::create(folder.join(INITRAMFS))?).end()
}

/// A cpio archive that is being written.
struct Archive {
    out: BufWriter<File>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    fn begin(file: File) -> Self {
        Archive {
            out: BufWriter::new(file),
            folders: BTreeSet::new(),
            entries: 0,
        }
    }

    fn entry(&mut self, name: &str, mode: u32) -> NewcBuilder {
        // The kernel takes two entries with the same number for one file.
        self.entries += 1;
        NewcBuilder::new(name).ino(self.entries).mode(mode)
    }

    fn folder(&mut self, path: &Path) -> io::Result<()> {
        let Some(name) = name(path) else {
            return Ok(());
        };
        if self.folders.contains(name) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.folder(parent)?;
        }
        self.folders.insert(name.to_owned());
        let entry = self.entry(name, FOLDER | 0o755);
        entry.write(&mut self.out, 0).finish().map(drop)
    }

    fn console(&mut self) -> io::Result<()> {
        let entry = self.entry("dev/console", CHARACTER | 0o600);
        let entry = entry.rdev_major(5).rdev_minor(1);
        entry.write(&mut self.out, 0).finish().map(drop)
    }

    fn link(&mut self, name: &str, to: &str) -> io::Result<()> {
        let entry = self.entry(name, LINK | 0o777);
        let mut writer = entry.write(&mut self.out, to.len() as u32);
        writer.write_all(to.as_bytes())?;
        writer.finish().map(drop)
    }

    /// A file that can be run, of that length.
    fn file(&mut self, path: &Path, length: u64, from: &mut dyn io::Read) -> io::Result<()> {
        let name = name(path).ok_or(io::ErrorKind::InvalidFilename)?;
        if let Some(parent) = path.parent() {
            self.folder(parent)?;
        }
        let length = u32::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let entry = self.entry(name, REGULAR | 0o755);
        let mut writer = entry.write(&mut self.out, length);
        io::copy(from, &mut writer)?;
        writer.finish().map(drop)
    }

    fn end(self) -> io::Result<()> {
        trailer(self.out)?.flush()
    }
}

/// The name of an entry: its path without the first slash.
fn name(path: &Path) -> Option<&str> {
    let path = path.strip_prefix("/").unwrap_or(path);
    path.to_str().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use cpio::NewcReader;
    use io::Read as _;

    use super::*;
    use crate::{Acceleration, Arch, Kernel};

    fn spec(modules: Option<&Path>) -> GuestSpec {
        GuestSpec {
            kernel: Kernel {
                release: "6.12.1".into(),
                image: "/k/vmlinuz".into(),
                modules: modules.map(Path::to_owned),
            },
            arch: Arch::X86_64,
            cpus: 1,
            exact: true,
            traced: false,
            host_files: false,
            forward: None,
            acceleration: Acceleration::Emulated,
            memory_mib: None,
            kernel_words: None,
        }
    }

    /// The entries of a guest's initramfs: name, mode, contents.
    fn entries(folder: &Path) -> Vec<(String, u32, Vec<u8>)> {
        let mut file = File::open(folder.join(INITRAMFS)).expect("it was written");
        let mut entries = Vec::new();
        loop {
            let mut reader = NewcReader::new(file).expect("an entry");
            let entry = reader.entry();
            if entry.is_trailer() {
                return entries;
            }
            let (name, mode) = (entry.name().to_owned(), entry.mode());
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).expect("its contents");
            entries.push((name, mode, bytes));
            file = reader.finish().expect("its end");
        }
    }

    #[test]
    fn an_initramfs_holds_this_program_and_what_the_kernel_looks_for() {
        let folder = tempfile::TempDir::new().expect("a folder");
        write(&spec(None), folder.path()).expect("an initramfs");
        let entries = entries(folder.path());
        let entry = |name: &str| {
            let found = entries.iter().find(|(one, ..)| one == name);
            found.unwrap_or_else(|| panic!("no {name}"))
        };
        let program = std::fs::read(program::MYSELF).expect("this program");
        assert_eq!(entry("run/program/bpfcost").2, program);
        assert_eq!(entry("init").2, b"/run/program/bpfcost");
        assert_eq!(entry("dev/console").1, CHARACTER | 0o600);
        // The kernel makes no folder by itself.
        for (number, (name, ..)) in entries.iter().enumerate() {
            let before = &entries[..number];
            let made = |parent: &Path| before.iter().any(|(one, ..)| Path::new(one) == parent);
            let parent = Path::new(name).parent().expect("a path");
            assert!(parent == Path::new("") || made(parent), "{name}");
        }
    }

    #[test]
    fn modules_are_kept_in_the_order_to_load_them() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let modules = crate::modules::tests::tree(folder.path());
        write(&spec(Some(&modules)), folder.path()).expect("an initramfs");
        let entries = entries(folder.path());
        let names = entries.iter().map(|(name, ..)| name.as_str());
        let names: Vec<_> = names.filter(|name| name.ends_with(".ko")).collect();
        assert_eq!(
            names,
            [
                "modules/00-9pnet.ko",
                "modules/01-9pnet_virtio.ko",
                "modules/02-netfs.ko",
                "modules/03-9p.ko"
            ]
        );
    }

    #[test]
    fn an_empty_one_is_whole() {
        let folder = tempfile::TempDir::new().expect("a folder");
        write_empty(folder.path()).expect("an initramfs");
        assert_eq!(entries(folder.path()), []);
    }
}
