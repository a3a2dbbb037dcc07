//! Memory. Allocations are so large that the C library maps and unmaps them one by one.

use std::{hint::black_box, io::IoSliceMut};

use nix::{
    sys::{
        mman::{MlockAllFlags, mlockall, munlockall},
        uio::{RemoteIoVec, process_vm_readv},
    },
    unistd::Pid,
};
use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};

use crate::{
    error::Result,
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

/// More than the largest size that glibc keeps on its heap (`DEFAULT_MMAP_THRESHOLD_MAX`, 32 MiB).
const SIZE: usize = 33 << 20;
const FAULTS: usize = 16;
/// At least the size of a page on every architecture that bpfcost supports.
const STRIDE: usize = 64 << 10;

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new("mmap", "mmap of 33 MiB, munmap", map),
    Stimulus::new(
        "page-fault",
        "prctl ×2 (huge pages off), mmap of 33 MiB, 16 page faults, munmap, prctl",
        fault,
    ),
    Stimulus::new(
        "mlock",
        "mlockall (MCL_CURRENT, MCL_ONFAULT), munlockall",
        lock,
    ),
    Stimulus::new(
        "process-vm",
        "getpid, process_vm_readv of 64 bytes of this process",
        read_process,
    ),
];

fn map(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        black_box(vec![0_u8; SIZE]);
        Ok(())
    }))
}

fn fault(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        // One huge page would take the place of all faults.
        let disabled = transparent_huge_pages_are_disabled()?;
        disable_transparent_huge_pages(true)?;
        let mut memory = black_box(vec![0_u8; SIZE]);
        for page in 1..=FAULTS {
            memory[page * STRIDE] = 1;
        }
        drop(black_box(memory));
        disable_transparent_huge_pages(disabled)?;
        Ok(())
    }))
}

fn lock(_: &Context) -> Result<Prepared> {
    // Of linux/mman.h; nix does not have it. Without it, the kernel would load all of the process's memory.
    const ON_FAULT: MlockAllFlags = MlockAllFlags::from_bits_retain(4);
    Ok(Prepared::new(|| {
        mlockall(MlockAllFlags::MCL_CURRENT | ON_FAULT)?;
        munlockall()?;
        Ok(())
    }))
}

fn read_process(_: &Context) -> Result<Prepared> {
    // A page of the program: one of the heap may be huge, and huge ones are read another way.
    static SOURCE: [u8; 64] = [1; 64];
    Ok(Prepared::new(|| {
        let mut bytes = [0; 64];
        let mut local = [IoSliceMut::new(&mut bytes)];
        let remote = [RemoteIoVec {
            base: SOURCE.as_ptr().expose_provenance(),
            len: SOURCE.len(),
        }];
        expect_bytes(process_vm_readv(Pid::this(), &mut local, &remote)?, 64)
    }))
}
