//! The crate's one error type.

use std::{io, path::PathBuf};

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong between here and the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel took an object's maps or programs not.
    #[error("the kernel does not load {object}: {source}{}", tail(.log))]
    Load {
        /// The object's name, e.g. `xdp_lb`.
        object: &'static str,
        /// The kernel's answer.
        source: libbpf_rs::Error,
        /// The last lines that libbpf and the verifier said.
        log: String,
    },
    /// Somebody's object can't be loaded or attached.
    #[error("{}: {words}", path.display())]
    Foreign {
        /// Its file.
        path: PathBuf,
        /// Why, and what can be done; the last lines that libbpf and the verifier said.
        words: String,
    },
    /// A map operation failed.
    #[error("map {map}: {action}: {source}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        source: libbpf_rs::Error,
    },
    /// A program could not be attached, or what it needs for that not be made.
    #[error("{what}: {action}: {source:#}")]
    Attach {
        /// The attach type, or the thing that it needs.
        what: String,
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        source: libbpf_rs::Error,
    },
    /// A program could not be attached, for a reason that is known.
    #[error("{attach}: {words}")]
    Unattachable {
        /// The attach type.
        attach: &'static str,
        /// Why, and what can be done.
        words: String,
    },
    /// A driver was asked to attach what is not of its family.
    #[error("{attach} is not attached to events of {driver}")]
    Stranger {
        /// The attach type.
        attach: &'static str,
        /// The driver.
        driver: &'static str,
    },
    /// A driver is written in another machine's language.
    #[error(
        "{driver} calls functions written for x86-64, and this machine is {}",
        std::env::consts::ARCH
    )]
    Architecture {
        /// The driver.
        driver: &'static str,
    },
    /// Packets of a driver did not all come to the end of their way.
    #[error(
        "{driver}: of {sent} packets, {arrived} came to the other end of the veth in time; the machine \
         may be too busy for its softirqs. Try again, or with fewer events"
    )]
    Lost {
        /// The driver.
        driver: &'static str,
        /// Packets since it started.
        sent: u64,
        /// Those that came.
        arrived: u64,
    },
    /// A program was asked for that is not part of what was loaded.
    #[error("{0} is not loaded")]
    NotLoaded(String),
    /// A test run failed.
    #[error("running {program} on CPU {cpu}: {source}")]
    Run {
        /// The program's name.
        program: String,
        /// Where it should have run.
        cpu: u32,
        /// The kernel's answer.
        source: libbpf_rs::Error,
    },
    /// An object has no global variables, where those of timing.bpf.h should be.
    #[error("{object} has no global variables to time with; it was built without timing.bpf.h")]
    NoArea {
        /// The object's name.
        object: &'static str,
    },
    /// An object was asked for something that it does not define.
    #[error("{object} has no {what}")]
    Lacks {
        /// The object's name.
        object: &'static str,
        /// The kind and the name of what it lacks, e.g. `map flow_table`.
        what: String,
    },
    /// A batch needs one packet for each of its CPUs.
    #[error("a batch on {cpus} CPUs needs as many packets, and was given {packets}")]
    Packets {
        /// CPUs of the request.
        cpus: usize,
        /// Packets that came with it.
        packets: usize,
    },
    /// The kernel lacks something, or does not allow it.
    #[error("{0}")]
    Missing(String),
    /// Whether the kernel has something could not be told.
    #[error("whether this kernel has {feature} can't be told: {words}")]
    Probe {
        /// What.
        feature: &'static str,
        /// The kernel's answer.
        words: String,
    },
    /// A CPU can't be used.
    #[error("CPU {cpu} can't be used: {source}")]
    Cpu {
        /// The CPU's number.
        cpu: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A CPU's number is beyond what the programs keep samples for.
    #[error("CPU {cpu} is beyond the {most} CPUs that this program can time")]
    CpuNumber {
        /// The CPU's number.
        cpu: u32,
        /// How many there may be.
        most: u32,
    },
}

fn tail(log: &str) -> String {
    if log.is_empty() {
        String::new()
    } else {
        format!("\n{log}")
    }
}
