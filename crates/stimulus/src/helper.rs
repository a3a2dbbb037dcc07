//! A thread that performs operations on request, for those that must not change the caller's thread.

use std::{
    io,
    os::fd::OwnedFd,
    sync::mpsc,
    thread::{Builder, JoinHandle},
};

use rustix::{
    io::{read, retry_on_intr, write},
    pipe::{PipeFlags, pipe_with},
};

use crate::error::{Error, Result, Step};

/// A helper thread. Dropping it ends the thread.
pub(crate) struct Helper {
    requests: Option<OwnedFd>,
    answers: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts the thread, which calls `setup` and then performs the operation that it returned.
    pub(crate) fn start<F: FnMut() -> io::Result<()>>(
        setup: impl FnOnce() -> Result<F> + Send + 'static,
    ) -> Result<Self> {
        let (requested, requests) = pipe_with(PipeFlags::CLOEXEC).step("make a pipe")?;
        let (answers, answer) = pipe_with(PipeFlags::CLOEXEC).step("make a pipe")?;
        let (ready, is_ready) = mpsc::channel();
        let serve = move || match setup() {
            Ok(operation) => {
                let _ = ready.send(Ok(()));
                serve(&requested, &answer, operation);
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        };
        let thread = Builder::new()
            .name("stimulus".to_owned())
            .spawn(serve)
            .step("start a thread")?;
        let helper = Self {
            requests: Some(requests),
            answers,
            thread: Some(thread),
        };
        is_ready
            .recv()
            .unwrap_or_else(|_| Err(Error::Operation(ended())))?;
        Ok(helper)
    }

    /// Has the thread perform one operation: one write and one read in each thread.
    pub(crate) fn operate(&self) -> io::Result<()> {
        let Some(requests) = &self.requests else {
            return Err(ended());
        };
        write(requests, &[0])?;
        let mut answer = [0; 4];
        match retry_on_intr(|| read(&self.answers, &mut answer))? {
            0 => Err(ended()),
            _ => match i32::from_ne_bytes(answer) {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            },
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Performs an operation for each byte, until the other end is closed.
fn serve(requested: &OwnedFd, answer: &OwnedFd, mut operation: impl FnMut() -> io::Result<()>) {
    let mut request = [0];
    while matches!(retry_on_intr(|| read(requested, &mut request)), Ok(1)) {
        let errno = match operation() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(UNKNOWN),
        };
        if write(answer, &errno.to_ne_bytes()).is_err() {
            return;
        }
    }
}

/// `EIO`, for errors without a number.
const UNKNOWN: i32 = 5;

fn ended() -> io::Error {
    io::Error::other("the helper thread ended")
}
