//! Namespaces, of a helper thread.

use std::{fs::File, os::fd::AsFd};

use nix::sched::{CloneFlags, unshare};
use rustix::{
    system::{sethostname, uname},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::{
    error::{Result, Step},
    helper::Helper,
    stimulus::{Context, Prepared, Stimulus},
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "namespaces",
        "in another thread: unshare (CLONE_NEWUTS), setns (back)",
        leave_and_return,
    ),
    Stimulus::new(
        "hostname",
        "in another thread, which has a UTS namespace of its own: sethostname, uname",
        set_host_name,
    ),
];

fn leave_and_return(_: &Context) -> Result<Prepared> {
    let first = File::open("/proc/self/ns/uts").step("open the UTS namespace")?;
    let helper = Helper::start(move || {
        Ok(move || {
            unshare(CloneFlags::CLONE_NEWUTS)?;
            let kind = LinkNameSpaceType::HostNameAndNISDomainName;
            move_into_link_name_space(first.as_fd(), Some(kind))?;
            Ok(())
        })
    })?;
    Ok(Prepared::new(move || helper.operate()))
}

fn set_host_name(_: &Context) -> Result<Prepared> {
    let helper = Helper::start(|| {
        unshare(CloneFlags::CLONE_NEWUTS).step("make a UTS namespace")?;
        Ok(|| {
            sethostname(b"stimulus")?;
            uname();
            Ok(())
        })
    })?;
    Ok(Prepared::new(move || helper.operate()))
}
