//! Runs a program once on a chosen CPU (`BPF_PROG_TEST_RUN`).

#![allow(unsafe_code)]

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use libbpf_rs::{ProgramMut, libbpf_sys};

use crate::{
    cpu::{self, CpuPin, OutsideTime, current_cpu},
    error::{Result, failed},
};

/// Room for what a program adds to its packet: an skb has no more.
const ADDED_BYTES: usize = 1 << 16;

/// A loaded program; unlike libbpf-rs's own type, threads can share it.
#[derive(Debug)]
pub struct SharedProgram {
    name: String,
    fd: OwnedFd,
    /// True where the program gets its input as its context.
    takes_context: bool,
    beside: BesidePacket,
}

/// The context of a packet, beside its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct BesidePacket {
    /// Bytes of the context; none: as the kernel makes it.
    pub(crate) bytes: Vec<u8>,
    /// Offset of the packet's length in the context.
    pub(crate) length_at: Option<usize>,
}

impl BesidePacket {
    /// The context of a packet of so many bytes.
    fn context(&self, packet_bytes: usize) -> Vec<u8> {
        let mut context = self.bytes.clone();
        if let Some(at) = self.length_at {
            context[at..at + 4].copy_from_slice(&(packet_bytes as u32).to_ne_bytes());
        }
        context
    }
}

impl SharedProgram {
    /// One of libbpf-rs's, which it outlives.
    pub fn new(program: &ProgramMut<'_>) -> Result<Self> {
        let name = program.name().to_string_lossy().into_owned();
        let fd = program.as_fd().try_clone_to_owned();
        let fd = fd.map_err(failed(&*name, "keeping a descriptor of it"))?;
        Ok(SharedProgram::of_fd(&name, fd))
    }

    /// One that was loaded without libbpf's object.
    pub(crate) fn of_fd(name: &str, fd: OwnedFd) -> Self {
        SharedProgram {
            name: name.to_owned(),
            fd,
            takes_context: false,
            beside: BesidePacket::default(),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The same, with its input as its context, not as a packet.
    pub(crate) fn taking_context(self, takes_context: bool) -> Self {
        SharedProgram {
            takes_context,
            ..self
        }
    }

    /// The same, with packets that have this context.
    pub(crate) fn beside(self, beside: BesidePacket) -> Self {
        SharedProgram { beside, ..self }
    }
}

/// The outcome of one run of a program.
#[derive(Clone, Debug)]
pub struct TestRun {
    /// The program's return value.
    pub code: u32,
    /// The packet or the context that it left.
    pub output: Vec<u8>,
    /// The run as the calling thread saw it.
    pub outside: OutsideTime,
}

/// Runs a program once on `cpu`: an XDP program on a packet, one of type `syscall` on none (an empty one), or on what it
/// takes as its context.
pub fn on_cpu(program: &SharedProgram, cpu: u32, packet: &[u8]) -> Result<TestRun> {
    let mut runs = 0..1;
    on_cpu_while(program, cpu, packet, || Ok(runs.next().is_some()))
}

/// Runs it there for as long as `again` says, which is asked before each run; what the last one did.
pub(crate) fn on_cpu_while(
    program: &SharedProgram,
    cpu: u32,
    packet: &[u8],
    mut again: impl FnMut() -> Result<bool>,
) -> Result<TestRun> {
    let _pinned = CpuPin::to(cpu)?;
    debug_assert_eq!(current_cpu(), cpu);
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ..Default::default()
    };
    // The kernel writes a context back to where it was read.
    let mut output = packet.to_vec();
    let mut context = program.beside.context(packet.len());
    // Programs of type `syscall` have no packet, and the kernel refuses to be given a place for one.
    if program.takes_context {
        options.ctx_in = output.as_mut_ptr().cast();
        options.ctx_size_in = output.len() as u32;
    } else if !packet.is_empty() {
        // Room that nobody writes before the kernel does: what is written now would be in the caches of what is timed.
        output = Vec::with_capacity(packet.len() + ADDED_BYTES);
        options.data_in = packet.as_ptr().cast();
        options.data_size_in = packet.len() as u32;
        options.data_out = output.as_mut_ptr().cast();
        // With more, the kernel rebuilds the XDP dispatcher before and after.
        options.repeat = 1;
        if !context.is_empty() {
            options.ctx_in = context.as_mut_ptr().cast();
            options.ctx_size_in = context.len() as u32;
        }
    }
    let ((), outside) = cpu::outside(|| {
        while again()? {
            if program.takes_context {
                output.copy_from_slice(packet);
            } else if !packet.is_empty() {
                options.data_size_out = (packet.len() + ADDED_BYTES) as u32;
            }
            // SAFETY: the buffers outlive the call and have the sizes that are named beside them.
            let failure =
                unsafe { libbpf_sys::bpf_prog_test_run_opts(program.fd.as_raw_fd(), &mut options) };
            if failure < 0 {
                let answer = libbpf_rs::Error::from_raw_os_error(-failure);
                let what = format!("{} on CPU {cpu}", program.name);
                return Err(failed(what, "running it")(answer));
            }
        }
        Ok(())
    })?;
    if !program.takes_context {
        // SAFETY: a run that did not fail has written as many bytes of the room as it says; with no packet, none.
        unsafe { output.set_len(options.data_size_out as usize) };
    }
    Ok(TestRun {
        code: options.retval,
        output,
        outside,
    })
}
