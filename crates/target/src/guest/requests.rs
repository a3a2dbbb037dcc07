//! The guest's side of requests: it asks the host for something by a numbered message, and waits for the file with the
//! answer.

use std::{
    cell::{Cell, RefCell},
    fs, io,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use bpfcost_process::wait_until;
use serde::de::DeserializeOwned;

use super::{GuestChannel, Message, channel::answer_name};

/// Interval at which the guest looks for an answer. Each look is a message to the host and takes CPU time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl GuestChannel {
    /// Requests to the host, sent over this channel.
    pub fn requests(&self) -> io::Result<Requests> {
        Requests::open(&self.folder)
    }
}

/// Sends requests to the host.
#[derive(Debug)]
pub struct Requests {
    channel: RefCell<GuestChannel>,
    folder: PathBuf,
    sent: Cell<u32>,
}

impl Requests {
    /// By the shared folder, as the guest sees it.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Requests {
            channel: RefCell::new(GuestChannel::open(folder)?),
            folder: folder.to_owned(),
            sent: Cell::new(0),
        })
    }

    /// Asks by the message that `message` makes of a number, does not look for `quiet`, and then waits for the answer
    /// for `timeout`. `wanted` says what was asked for.
    pub(super) fn ask<A: DeserializeOwned>(
        &self,
        wanted: &str,
        message: impl FnOnce(u32) -> Message,
        quiet: Duration,
        timeout: Duration,
    ) -> Result<A> {
        let number = self.sent.get();
        self.sent.set(number.wrapping_add(1));
        self.channel
            .borrow_mut()
            .say(&message(number))
            .with_context(|| format!("cannot ask the host for {wanted}"))?;
        let file = self.folder.join(answer_name(number));
        let begun = Instant::now();
        sleep(quiet);
        if !wait_until(timeout, POLL_INTERVAL, || file.exists()) {
            let s = begun.elapsed().as_secs();
            bail!("the host was asked for {wanted} {s} s ago, and has not answered");
        }
        let answer = fs::read(&file).context("cannot read the host's answer")?;
        serde_json::from_slice(&answer).context("cannot read the host's answer")
    }
}
