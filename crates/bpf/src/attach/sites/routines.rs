//! Functions of a process, in a file without a name that this process maps: `nop; ret`, each in a cache line.

#![allow(unsafe_code)]

use std::{
    fs::File,
    io::Write as _,
    mem,
    os::fd::{AsRawFd as _, OwnedFd},
    path::PathBuf,
    ptr::{self, NonNull},
};

use libbpf_rs::UprobeMultiOpts;
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

use super::{
    Family, Mechanism, SiteLink,
    programs::{Counted, SitePrograms},
};
use crate::error::{Result, failed, unattachable};

const NOP: u8 = 0x90;
const RET: u8 = 0xc3;
const INT3: u8 = 0xcc;

/// Bytes from one function to the next, as many as one of a real program may have.
const STRIDE: usize = 64;

/// Every process that maps the file.
const EVERYONE: i32 = -1;

pub(super) struct Routines {
    mechanism: Mechanism,
    count: usize,
    file: OwnedFd,
    code: Mapped,
    counted: Counted,
}

impl Routines {
    /// Writes them into a file, and maps it.
    pub(super) fn map(mechanism: Mechanism, count: usize) -> Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            let words = "its functions are written for x86-64, and this machine is another one";
            return Err(unattachable(mechanism.name(), words));
        }
        const WHAT: &str = "a file of functions";
        let file = executable_file().map_err(failed(WHAT, "making it in memory"))?;
        let mut code = [INT3; STRIDE];
        code[..2].copy_from_slice(&[NOP, RET]);
        let mut file = File::from(file);
        file.write_all(&code.repeat(count))
            .map_err(failed(WHAT, "writing it"))?;
        let file = OwnedFd::from(file);
        let code = Mapped::map(&file, count * STRIDE).map_err(failed(WHAT, "mapping it"))?;
        Ok(Routines {
            mechanism,
            count,
            file,
            code,
            counted: Counted::here()?,
        })
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    fn offsets(&self) -> impl Iterator<Item = usize> {
        (0..self.count).map(|site| site * STRIDE)
    }
}

impl Family for Routines {
    fn load(&self) -> Result<SitePrograms> {
        let mut programs = SitePrograms::load(self.mechanism, None)?;
        programs.count(self.counted)?;
        Ok(programs)
    }

    fn attach(&self, programs: &SitePrograms, links: &mut Vec<SiteLink>) -> Result<()> {
        let program = programs.program()?;
        let path = self.path();
        let refused = || failed(self.mechanism.name(), "attaching it");
        if self.mechanism == Mechanism::UprobeMulti {
            let options = UprobeMultiOpts {
                offsets: self.offsets().collect(),
                ..Default::default()
            };
            let link = program.attach_uprobe_multi_with_opts(EVERYONE, &path, "", options);
            links.push(SiteLink::Libbpf(link.map_err(refused())?));
        } else {
            for offset in self.offsets() {
                let link = program.attach_uprobe(false, EVERYONE, &path, offset);
                links.push(SiteLink::Libbpf(link.map_err(refused())?));
            }
        }
        Ok(())
    }

    /// Counts by the code: sites where no `nop` stands any more.
    fn shown(&self, _: &SitePrograms) -> Result<u64> {
        let changed = self.offsets().filter(|&site| self.code.byte(site) != NOP);
        Ok(changed.count() as u64)
    }

    /// Calls each function once.
    fn fire(&self, _: &SitePrograms, _: bool) -> Result<u64> {
        self.offsets().for_each(|site| self.code.call(site));
        Ok(self.count as u64)
    }
}

/// Kernels before 6.3 do not know the flag, and make every file executable.
fn executable_file() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC;
    match memfd_create("bpfcost-functions", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create("bpfcost-functions", flags),
        made => made,
    }
}

/// Code of a file, for this process to run.
struct Mapped {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    /// Private: the kernel places no uprobe in memory that is shared.
    fn map(file: &OwnedFd, bytes: usize) -> rustix::io::Result<Self> {
        let rights = ProtFlags::READ | ProtFlags::EXEC;
        // SAFETY: a new mapping where the kernel chooses; it is unmapped in `drop` alone.
        let start = unsafe { mmap(ptr::null_mut(), bytes, rights, MapFlags::PRIVATE, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapped { start, bytes })
    }

    fn place(&self, offset: usize) -> *const u8 {
        debug_assert!(offset < self.bytes);
        self.start.as_ptr().wrapping_add(offset)
    }

    /// Reads the byte there just now; the kernel changes it.
    fn byte(&self, offset: usize) -> u8 {
        // SAFETY: within the mapping, which can be read as long as this lives.
        unsafe { ptr::read_volatile(self.place(offset)) }
    }

    /// Calls the function that begins there.
    fn call(&self, offset: usize) {
        // SAFETY: each multiple of STRIDE within the mapping is a function that takes and returns nothing; a uprobe on its
        // first instruction has the kernel do that instruction's work.
        unsafe { mem::transmute::<*const u8, extern "C" fn()>(self.place(offset))() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
