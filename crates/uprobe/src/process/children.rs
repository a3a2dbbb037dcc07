//! Forked children of a probed process that run its probes too.
//!
//! A child has its parent's code and its jumps. Its state is wiped, and the slots are shared, so that its threads must
//! not count in them. In the process there is memory for slots of many children, shared by all that descend from it.
//! At the first probe that it hits, a child takes the next slots there, and maps them in place of its parent's: one
//! system call, without the tool. So every call of a child is seen from its first one, nothing has to stop it, and a
//! fork costs nothing. A child's children do the same.
//!
//! The tool finds descendants by this memory, of which no other process has a mapping of that size, and restores their
//! functions when it restores those of the process.

use super::{
    area::{open_mapped, take},
    error::{Error, Result},
    layout::{
        AREA, CHILD, CHILD_AREAS, CHILDREN, CHILDREN_BYTES, CHILDREN_CLOSED, CHILDREN_HEAD, SLOT,
    },
    maps::{Mapping, mappings},
    memory::Memory,
    queue::Queue,
    session::Session,
};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
};
use std::{
    collections::BTreeSet,
    fs::{File, TryLockError},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// The name of the memory in `/proc/PID/maps`.
const NAME: &[u8] = b"uprobe-children\0";
pub(super) const MAPPED: &str = "/memfd:uprobe-children (deleted)";

/// Slots of children that ended are given to others where no more than this are left: to find them takes a look at all
/// processes.
const FEW: u64 = CHILDREN / 2;
/// Time until the next look where few are left all the same, as a multiple of that for the last one.
const PAUSE: u32 = 10;

/// The memory for the children of one process.
#[derive(Debug)]
pub(super) struct Children {
    file: File,
    queue: Queue,
    /// Time before which no slots are looked for.
    next_look: Mutex<Option<Instant>>,
    /// Inode of the memory, by which mappings of it are known.
    pub(super) inode: u64,
    /// True if this tool closed it.
    is_closed: bool,
}

impl Children {
    /// Makes it in a process, and returns its address there. `scratch` is where system calls find their arguments.
    pub(super) fn create(
        session: &Session,
        pid: i32,
        memory: &Memory,
        scratch: u64,
    ) -> Result<(u64, Self)> {
        memory.write(scratch, NAME)?;
        let flags = u64::from(libc::MFD_CLOEXEC);
        let create = [scratch, flags, 0, 0, 0, 0];
        let file = session.call("memfd_create", libc::SYS_memfd_create, create)?;
        let made = (|| {
            let size = [file, CHILDREN_BYTES, 0, 0, 0, 0];
            session.call("ftruncate", libc::SYS_ftruncate, size)?;
            let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE) as u64;
            let map = [0, CHILDREN_BYTES, access, flags, file, 0];
            let at = session.call("mmap", libc::SYS_mmap, map)?;
            Ok((at, Self::from_file(open_again(&take(pid, file as i32)?)?)?))
        })();
        session.call("close", libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
        made
    }

    /// That which an earlier tool made. If one closed it that is gone, children get slots again.
    pub(super) fn adopt(pid: i32, all: &[Mapping], at: u64) -> Option<Result<Self>> {
        let mapping = all.iter().find(|mapping| mapping.start == at)?;
        let children = open_mapped(pid, mapping).and_then(Self::from_file);
        Some(children.and_then(|children| children.reopen().map(|()| children)))
    }

    pub(super) fn from_file(file: File) -> Result<Self> {
        let metadata = file.metadata();
        Ok(Children {
            inode: metadata.map_err(failed)?.ino(),
            queue: Queue::map(&file)?,
            next_look: Mutex::new(None),
            file,
            is_closed: false,
        })
    }

    /// Returns how many slots children have or had.
    pub(super) fn number(&self) -> u64 {
        self.queue.used()
    }

    /// Gives the slots of children that ended to others, where few are left. `release` releases what they have locked,
    /// before another child is known by the same numbers.
    pub(super) fn reuse(&self, release: impl FnOnce()) -> Result<()> {
        let begun = Instant::now();
        let mut next_look = self
            .next_look
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.queue.left() > FEW || next_look.is_some_and(|next| begun < next) {
            return Ok(());
        }
        // Another tool that does it leaves nothing to do.
        let Some(_locked) = Locked::take(open_again(&self.file)?)? else {
            return Ok(());
        };
        let mut ended = self.queue.unmapped(&self.mapped());
        self.queue.withdraw(&ended);
        release();
        let mapped = self.mapped();
        ended.retain(|slot| !mapped.contains(slot));
        ended.into_iter().for_each(|slot| self.queue.add(slot));
        let is_scarce = self.queue.left() <= FEW;
        *next_look = is_scarce.then(|| Instant::now() + PAUSE * begun.elapsed());
        Ok(())
    }

    /// Slots that processes have in place of their parent's.
    fn mapped(&self) -> BTreeSet<u64> {
        let slot = |mapping: Mapping| {
            let offset = mapping.offset.checked_sub(CHILDREN_HEAD)?;
            (mapping.inode == self.inode && mapping.name == MAPPED).then_some(offset / CHILD)
        };
        let all = processes().filter_map(|pid| mappings(pid).ok());
        all.flatten().filter_map(slot).collect()
    }

    /// Gives no more children slots while this is there: their calls are missed. What says that it is there is a lock on
    /// the file, which the kernel takes away from a tool that is killed.
    pub(super) fn close(&mut self) -> Result<()> {
        self.file.lock_shared().map_err(failed)?;
        self.is_closed = true;
        self.set_closed(1)
    }

    /// Gives children slots again, unless another tool has closed it.
    fn reopen(&self) -> Result<()> {
        let reopened = match self.file.try_lock() {
            Ok(()) => self.set_closed(0),
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        };
        // Whoever was forked meanwhile has the same lock, which closing the file would leave.
        self.file.unlock().map_err(failed)?;
        reopened
    }

    fn set_closed(&self, is_closed: u64) -> Result<()> {
        let bytes = is_closed.to_le_bytes();
        let written = self.file.write_all_at(&bytes, CHILDREN_CLOSED);
        written.map_err(failed)
    }

    /// Bytes of each area of each child. Reading the file makes no pages, as reading a mapping would.
    pub(super) fn read(&self, offset: u64, bytes: usize) -> impl Iterator<Item = Vec<u8>> {
        let children = (0..self.number()).map(|child| CHILDREN_HEAD + child * CHILD);
        let areas =
            children.flat_map(|child| (0..CHILD_AREAS).map(move |area| child + area * AREA));
        areas.map(move |area| {
            let mut into = vec![0; bytes];
            let _ = self.file.read_exact_at(&mut into, area + offset);
            into
        })
    }

    /// The sum over all of the numbers of a slot: hits, and missed.
    pub(super) fn count(&self, slot: u64) -> (u64, u64) {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        self.read(slot * SLOT, SLOT as usize)
            .fold((0, 0), |(hits, missed), pair| {
                (hits + number(&pair[..8]), missed + number(&pair[8..]))
            })
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        if self.is_closed {
            // After an error, the next tool does it.
            let _ = self.reopen();
        }
    }
}

/// Opens a file once more: what was taken from the process is what its mapping keeps open, with any lock on it.
fn open_again(file: &impl AsRawFd) -> Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = File::options().read(true).write(true).open(&path);
    opened.map_err(|error| Error::system(path, error))
}

/// The file, locked for the tool that reuses slots: not as `close` does, whose lock stays.
struct Locked(File);

impl Locked {
    /// `None` where another one has the lock.
    fn take(file: File) -> Result<Option<Self>> {
        match set_lock(&file, libc::F_WRLCK) {
            Ok(()) => Ok(Some(Locked(file))),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Whoever was forked meanwhile has the same lock, which closing the file would leave.
        let _ = set_lock(&self.0, libc::F_UNLCK);
    }
}

fn set_lock(file: &File, kind: i32) -> nix::Result<()> {
    let whole = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole)).map(drop)
}

pub(super) fn failed(error: io::Error) -> Error {
    Error::system("memory of children", error)
}

/// The numbers of all processes.
fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The processes that have a mapping of the memory with this inode, but for one of them.
pub(super) fn descendants(inode: u64, except: i32) -> Vec<i32> {
    processes()
        .filter(|&pid| pid != except)
        .filter(|&pid| mappings(pid).is_ok_and(|all| is_descendant(inode, &all)))
        .collect()
}

/// Returns whether a process with these mappings has one of the memory with this inode.
pub(super) fn is_descendant(inode: u64, all: &[Mapping]) -> bool {
    let mut mapped = all.iter().filter(|mapping| mapping.name == MAPPED);
    // Tools have the queue alone.
    mapped.any(|mapping| mapping.inode == inode && mapping.end - mapping.start >= CHILD)
}
