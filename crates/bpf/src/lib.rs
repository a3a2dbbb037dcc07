//! BPF programs that time themselves, and the one place of bpfcost that speaks libbpf.
//!
//! [`timing`] is the Rust half of `bpf/timing.bpf.h`, open to outside programs too; [`lb`] is the
//! load-balancer datapath, [`ladder`] a set of known costs, [`attach`] every way to attach a program and
//! the events for it, [`feature`] what the kernel has. What they measure and what is not in
//! the number stands at the head of each `bpf/*.bpf.c`.

pub mod attach;
pub mod cgroup;
mod cpu;
mod error;
pub mod feature;
pub mod idle;
pub mod l7;
pub mod ladder;
pub mod lb;
mod links;
mod lockdown;
mod mapping;
mod mount;
pub mod net;
mod object;
mod percpu;
mod plain;
mod programs;
mod routine;
pub mod run;
pub mod sslsniff;
pub mod stats;
pub mod syscount;
mod table;
pub mod timing;

pub use cpu::{Pinned, allowed_cpus, current_cpu, real_time};
pub use error::{Error, Result};
pub use feature::Feature;
pub use programs::{
    Account, LoadedProgram, accounts, loaded_maps, loaded_programs, pins, program_of,
};

/// Tells one build of the BPF programs from another: a hash of their sources and their compiler.
pub const BUILD: &str = env!("BPFCOST_BPF_BUILD");

#[cfg(test)]
#[path = "../tests/require/mod.rs"]
mod require;

/// Generated skeletons, one module per `bpf/*.bpf.c`. The generator's code is held to none of the
/// workspace's lints.
mod skel {
    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod counter {
        include!(concat!(env!("OUT_DIR"), "/counter.skel.rs"));
    }

    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod driver {
        include!(concat!(env!("OUT_DIR"), "/driver.skel.rs"));
    }

    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod feeder {
        include!(concat!(env!("OUT_DIR"), "/feeder.skel.rs"));
    }

    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod l7 {
        include!(concat!(env!("OUT_DIR"), "/l7.skel.rs"));
    }

    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod ladder {
        include!(concat!(env!("OUT_DIR"), "/ladder.skel.rs"));
    }

    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod probe {
        include!(concat!(env!("OUT_DIR"), "/probe.skel.rs"));
    }

    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod sslsniff {
        include!(concat!(env!("OUT_DIR"), "/sslsniff.skel.rs"));
    }

    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod syscount {
        include!(concat!(env!("OUT_DIR"), "/syscount.skel.rs"));
    }

    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod tally {
        include!(concat!(env!("OUT_DIR"), "/tally.skel.rs"));
    }

    #[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub(crate) mod xdp_lb {
        include!(concat!(env!("OUT_DIR"), "/xdp_lb.skel.rs"));
    }
}
