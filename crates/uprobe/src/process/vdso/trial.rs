//! Proof that the kernel ends faults of the copy: a forked child of this process tries it.

#![allow(
    unsafe_code,
    reason = "the copy is called, with addresses that can't be read"
)]

use super::{
    super::{
        child::Child,
        error::{Error, Result},
        maps::mappings,
        memory::Memory,
        stopped::Stopped,
    },
    code::Places,
};
use rustix::{
    fd::{AsFd as _, BorrowedFd},
    fs::{MemfdFlags, ftruncate, memfd_create},
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap},
    process::{Resource, Rlimit, setrlimit},
};
use std::{
    arch::asm,
    io::{self, Read as _, Write as _},
    mem,
    os::unix::net::UnixStream,
    ptr,
    sync::OnceLock,
    time::Duration,
};

/// Time that the child may take.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAGE: usize = 4096;
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
/// The child's answer where all was as expected.
const RIGHT: u8 = 1;
/// Bytes that are to be copied, and those that are not.
const THERE: u8 = 0x5a;
const UNTOUCHED: u8 = 0xee;
/// Addresses at which nothing can be read: the kernel's, and one that is not canonical.
const KERNEL: u64 = 0xffff_8880_0000_0000;
const NOT_CANONICAL: u64 = 0x8000_0000_0000_0000;

/// A vDSO in which the copy was tried.
#[derive(Debug)]
pub(super) struct Proved {
    /// The bytes without the copy.
    pub(super) image: Vec<u8>,
    /// Offsets of the copy.
    pub(super) places: Places,
}

/// The vDSO of this kernel, if it was proved there that faults of the copy end it. Tried once.
pub(super) fn proved() -> Option<&'static Proved> {
    static PROVED: OnceLock<Option<Proved>> = OnceLock::new();
    // An error, as of a kernel that lets no process write another's code, means that it can't be had.
    let attempt = || attempt().ok().flatten();
    PROVED.get_or_init(attempt).as_ref()
}

fn attempt() -> Result<Option<Proved>> {
    let pid = std::process::id() as i32;
    let all = mappings(pid)?;
    let Some(vdso) = all.iter().find(|mapping| mapping.name == "[vdso]") else {
        return Ok(None);
    };
    let length = (vdso.end - vdso.start) as usize;
    let image = Memory::open(pid)?.read_vec(vdso.start, length)?;
    let Some(places) = Places::find(&image) else {
        return Ok(None);
    };
    let is_right = is_right(places.in_vdso_at(vdso.start))?;
    Ok(is_right.then_some(Proved { image, places }))
}

/// Has a child try the copy.
fn is_right(places: Places) -> Result<bool> {
    let failed = |error| Error::system("trial of the copy in the vDSO", error);
    let (mut ours, theirs) = UnixStream::pair().map_err(failed)?;
    ours.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let child = Child::fork(&[theirs.as_fd()], || {
        // Without an answer, or with its end, it was wrong.
        let _ = serve(&theirs, places.copy);
    });
    let child = child.map_err(failed)?;
    drop(theirs);
    let answer = ask(&mut ours, child.pid(), places);
    child.kill();
    Ok(answer? == RIGHT)
}

/// Writes the copy into the child, and has it begin. Returns its answer.
fn ask(channel: &mut UnixStream, pid: i32, places: Places) -> Result<u8> {
    let failed = |error| Error::system("trial of the copy in the vDSO", error);
    let mut answer = [0];
    // It has closed the files that it inherited.
    channel.read_exact(&mut answer).map_err(failed)?;
    let stopped = Stopped::all(pid)?;
    let memory = Memory::open(pid)?;
    for write in places.writes() {
        memory.write(write.address, &write.bytes)?;
    }
    drop(stopped);
    channel.write_all(&answer).map_err(failed)?;
    channel.read_exact(&mut answer).map_err(failed)?;
    Ok(answer[0])
}

/// Work of the child.
fn serve(mut channel: &UnixStream, copy: u64) -> io::Result<()> {
    refuse_signals();
    let mut byte = [0];
    channel.write_all(&byte)?;
    channel.read_exact(&mut byte)?;
    let is_right = try_copy(copy)?;
    channel.write_all(&[if is_right { RIGHT } else { 0 }])
}

/// Has a fault that the kernel doesn't end be the end of this process, without a core file.
fn refuse_signals() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    // SAFETY: the default action needs no handler, and no thread waits for a signal.
    unsafe {
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut all = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, ptr::null_mut());
    }
}

/// Returns whether the copy gives the bytes that are there, and no more.
fn try_copy(copy: u64) -> io::Result<bool> {
    let memory = map(None, 3 * PAGE)?;
    // SAFETY: the mapping is this function's, and nothing else knows it.
    unsafe {
        ptr::write_bytes(memory, THERE, PAGE);
        mprotect(memory.add(PAGE).cast(), PAGE, MprotectFlags::empty())?;
        munmap(memory.add(2 * PAGE).cast(), PAGE)?;
    }
    let file = memfd_create("uprobe-trial", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, PAGE as u64)?;
    rustix::io::pwrite(&file, &[THERE; PAGE], 0)?;
    let file = map(Some(file.as_fd()), 2 * PAGE)? as u64;
    let (start, end) = (memory as u64, (memory as usize + PAGE) as u64);
    let tries = [
        // The address, number of bytes, and how many of them are there.
        (start, 1, 1),
        (start + 3, 16, 16),
        (start, PAGE, PAGE),
        (end - 16, 16, 16),
        (end - 5, 16, 5),
        (end - 100, PAGE, 100),
        (end, 16, 0),
        (end + PAGE as u64, 16, 0),
        (file + PAGE as u64 - 7, 16, 7),
        (file + PAGE as u64, 16, 0),
        (0, 16, 0),
        (8, 1, 0),
        (NOT_CANONICAL, 16, 0),
        (KERNEL, 16, 0),
        (u64::MAX - 7, 16, 0),
    ];
    let is_right = |&(from, bytes, expected): &(u64, usize, usize)| {
        let mut into = [UNTOUCHED; PAGE + 1];
        let left = call(copy, &mut into[..bytes], from);
        let (there, rest) = into.split_at(expected);
        left == (bytes - expected) as u64
            && there.iter().all(|&byte| byte == THERE)
            && rest.iter().all(|&byte| byte == UNTOUCHED)
    };
    Ok(tries.iter().all(is_right))
}

/// Maps memory: a file's, or that of none.
fn map(file: Option<BorrowedFd<'_>>, bytes: usize) -> io::Result<*mut u8> {
    let (null, flags) = (ptr::null_mut(), MapFlags::PRIVATE);
    // SAFETY: a new mapping, where the kernel likes.
    let mapped = unsafe {
        match file {
            Some(file) => mmap(null, bytes, READ_WRITE, flags, file, 0),
            None => mmap_anonymous(null, bytes, READ_WRITE, flags),
        }
    };
    Ok(mapped?.cast())
}

/// Calls the copy as helpers do. Returns how many bytes are left.
fn call(copy: u64, into: &mut [u8], from: u64) -> u64 {
    let mut left = into.len() as u64;
    // SAFETY: the copy writes at most so many bytes to `into`, and reads: of what can't be read, the kernel ends it. If
    // it doesn't, this process ends, which is for that.
    unsafe {
        asm!(
            "call {copy}",
            copy = in(reg) copy,
            inout("rdi") into.as_mut_ptr() => _,
            inout("rsi") from => _,
            inout("rcx") left,
            out("rdx") _,
        );
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_whose_faults_the_kernel_does_not_end_is_not_proved() {
        let page = map(None, PAGE).unwrap();
        // SAFETY: the mapping is this function's.
        unsafe { mprotect(page.cast(), PAGE, MprotectFlags::READ | MprotectFlags::EXEC) }.unwrap();
        let places = Places {
            copy: page as u64,
            fixup: page as u64 + 16,
        };
        assert!(!is_right(places).unwrap_or(false));
    }
}
