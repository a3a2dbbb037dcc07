//! Identity, privileges and limits of this process.

use rustix::{
    process::{Resource, getegid, geteuid, getgid, getpid, getppid, getrlimit, getuid, setrlimit},
    system::{sysinfo, uname},
    thread::{
        capabilities, gettid, name, no_new_privs, set_capabilities, set_name, set_thread_gid,
        set_thread_uid,
    },
};

use crate::{
    error::{Result, Step},
    stimulus::{Context, Prepared, Stimulus},
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "getpid",
        "getpid, getppid, gettid, getpgid, getsid",
        process_ids,
    ),
    Stimulus::new("getuid", "getuid, geteuid, getgid, getegid", user_ids),
    Stimulus::new(
        "setuid",
        "getgid, setgid, getuid, setuid: to the same ones",
        set_user,
    ),
    Stimulus::new("capabilities", "capget, capset: the same ones", set_same),
    Stimulus::new(
        "prctl",
        "prctl ×3: get and set the thread's name, no_new_privs",
        control,
    ),
    Stimulus::new("rlimit", "prlimit64 ×2: get and set the same", limits),
    Stimulus::new("uname", "uname, sysinfo", system),
];

fn process_ids(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        let _ = (getpid(), getppid(), gettid());
        // Of a group or session that began outside the namespace, the kernel says 0, which rustix takes for impossible.
        nix::unistd::getpgid(None)?;
        nix::unistd::getsid(None)?;
        Ok(())
    }))
}

fn user_ids(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        let _ = (getuid(), geteuid(), getgid(), getegid());
        Ok(())
    }))
}

fn set_user(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        set_thread_gid(getgid())?;
        set_thread_uid(getuid())?;
        Ok(())
    }))
}

fn set_same(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        set_capabilities(None, capabilities(None)?)?;
        Ok(())
    }))
}

fn control(_: &Context) -> Result<Prepared> {
    name().step("read the thread's name")?;
    Ok(Prepared::new(|| {
        set_name(&name()?)?;
        no_new_privs()?;
        Ok(())
    }))
}

fn limits(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        setrlimit(Resource::Core, getrlimit(Resource::Core))?;
        Ok(())
    }))
}

fn system(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        uname();
        sysinfo();
        Ok(())
    }))
}
