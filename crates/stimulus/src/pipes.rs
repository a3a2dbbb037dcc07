//! Pipes, and file descriptors of them.

use rustix::{
    fd::AsFd,
    io::{dup, fcntl_dupfd_cloexec, read, write},
    pipe::{PipeFlags, SpliceFlags, pipe_with, splice, tee},
};

use crate::{
    error::{Result, Step},
    helper::Helper,
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new("pipe", "pipe2, write and read of 64 bytes, close ×2", pipe),
    Stimulus::new(
        "splice",
        "write of 64 bytes, tee, splice, read ×2",
        splice_pipes,
    ),
    Stimulus::new(
        "dup",
        "dup, close, fcntl (F_DUPFD_CLOEXEC), close",
        duplicate,
    ),
    Stimulus::new(
        "context-switch",
        "write, read; in another thread read, write",
        switch,
    ),
];

fn pipe(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC)?;
        expect_bytes(write(&input, &[1; 64])?, 64)?;
        expect_bytes(read(&output, &mut [0; 64])?, 64)
    }))
}

fn splice_pipes(_: &Context) -> Result<Prepared> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).step("make a pipe");
    let (a, b) = (pipe()?, pipe()?);
    Ok(Prepared::new(move || {
        let none = SpliceFlags::empty();
        expect_bytes(write(&a.1, &[1; 64])?, 64)?;
        expect_bytes(tee(&a.0, &b.1, 64, none)?, 64)?;
        expect_bytes(splice(&a.0, None, &b.1, None, 64, none)?, 64)?;
        expect_bytes(read(&b.0, &mut [0; 64])?, 64)?;
        expect_bytes(read(&b.0, &mut [0; 64])?, 64)
    }))
}

fn duplicate(_: &Context) -> Result<Prepared> {
    let (end, _) = pipe_with(PipeFlags::CLOEXEC).step("make a pipe")?;
    Ok(Prepared::new(move || {
        dup(&end)?;
        fcntl_dupfd_cloexec(end.as_fd(), 0)?;
        Ok(())
    }))
}

fn switch(_: &Context) -> Result<Prepared> {
    let helper = Helper::start(|| Ok(|| Ok(())))?;
    Ok(Prepared::new(move || helper.operate()))
}
