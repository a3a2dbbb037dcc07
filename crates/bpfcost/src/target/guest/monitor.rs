//! QEMU's monitor, by the QEMU Machine Protocol: one JSON value a line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// The socket's name in the guest's folder, which is where QEMU runs.
pub(super) const SOCKET: &str = "monitor";

/// How long it is waited for, and how long each of its answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(10);

/// A connection to it.
#[derive(Debug)]
pub(super) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    /// Connects to the monitor in this folder, once it is there; gives up when `ended`.
    pub(super) fn connect(folder: &Path, mut ended: impl FnMut() -> bool) -> io::Result<Self> {
        // A socket's path may have 107 bytes, and the folder's may be longer.
        let folder = File::open(folder)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(error) if ended() || begun.elapsed() > PATIENCE => return Err(error),
                Err(_) => sleep(LOOK),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut monitor = Monitor(BufReader::new(stream));
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// What it answers to a command.
    pub(super) fn ask(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{line}")?;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut message: Value = serde_json::from_str(&line)?;
            if let Some(error) = message.get("error") {
                return Err(io::Error::other(format!("{command}: {error}")));
            }
            // Everything else is its greeting, or an event.
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }

    /// Asks until `field` of the answer is none of these, and returns it.
    pub(super) fn ask_until_not(
        &mut self,
        command: &str,
        field: &str,
        passing: &[&str],
    ) -> io::Result<String> {
        let begun = Instant::now();
        loop {
            let answer = self.ask(command, json!({}))?;
            let state = answer
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default();
            if !passing.contains(&state) {
                return Ok(state.to_owned());
            }
            if begun.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sleep(LOOK);
        }
    }
}
