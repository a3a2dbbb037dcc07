//! A network namespace without a name: it exists as long as its descriptor, or something in it.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, BorrowedFd},
};

use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Result, failed};

const WHAT: &str = "a network namespace";

/// A network namespace of this process alone.
#[derive(Debug)]
pub(crate) struct Namespace(File);

impl Namespace {
    /// Makes one, without IPv6, which would send its own packets.
    pub(crate) fn make() -> Result<Self> {
        let home = current().map_err(failed(WHAT, "opening the one that this is"))?;
        Namespace::here().map_err(failed(WHAT, "making one"))?;
        let made = current()
            .map(Namespace)
            .map_err(failed(WHAT, "opening the new one"));
        let quiet = without_ipv6().map_err(failed(WHAT, "switching IPv6 off in the new one"));
        enter(&home).map_err(failed(WHAT, "going back from the new one"))?;
        quiet.and(made)
    }

    /// Gives the calling thread a new one.
    pub(crate) fn here() -> io::Result<()> {
        Ok(unshare(CloneFlags::CLONE_NEWNET)?)
    }

    /// Does `work` with the calling thread in it.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let home = current().map_err(failed(WHAT, "opening the one that this is"))?;
        enter(&self.0).map_err(failed(WHAT, "entering one"))?;
        let done = work();
        enter(&home).map_err(failed(WHAT, "going back from one"))?;
        done
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// That of the calling thread.
fn current() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

fn enter(namespace: &File) -> io::Result<()> {
    Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
}

/// For interfaces that come later, in the calling thread's namespace. A kernel may have no IPv6.
fn without_ipv6() -> io::Result<()> {
    for which in ["all", "default"] {
        let switch = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        match fs::write(switch, "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
