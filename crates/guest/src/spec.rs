//! Properties of a guest that its user chooses.

use std::{net::Ipv4Addr, path::PathBuf};

use super::{Acceleration, Arch};

/// A kernel that a guest can boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The release, as `uname -r` prints it in the guest, e.g. `6.12.107+deb13-amd64`.
    pub release: String,
    /// The image: a bzImage or vmlinuz.
    pub image: PathBuf,
    /// The modules: a folder like `/lib/modules/RELEASE`; `None` for a kernel that has all in its image.
    pub modules: Option<PathBuf>,
}

/// A network card of a guest, and the only way to it: a port of this machine's 127.0.0.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortForward {
    /// The port on this machine, for TCP and UDP.
    pub port: u16,
    /// The card's address.
    pub mac: [u8; 6],
    /// The guest's address in QEMU's user-mode network.
    pub address: Ipv4Addr,
    /// The port in the guest.
    pub inside: u16,
}

/// A guest as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestSpec {
    /// The kernel that it boots.
    pub kernel: Kernel,
    /// The architecture.
    pub arch: Arch,
    /// Number of its CPUs.
    pub cpus: u32,
    /// True if its clock counts instructions: one is one nanosecond.
    pub exact: bool,
    /// True if its instructions can be recorded, if QEMU takes plugins.
    pub traced: bool,
    /// True if it has this machine's files, read-only, as its root; else it has this program and nothing else.
    pub host_files: bool,
    /// The network; `None` for none.
    pub forward: Option<PortForward>,
    /// The executor of its instructions.
    pub acceleration: Acceleration,
    /// Memory in MiB; `None` for [the default](super::MEMORY_MIB).
    pub memory_mib: Option<u32>,
    /// More words of the kernel's command line.
    pub kernel_words: Option<String>,
}
