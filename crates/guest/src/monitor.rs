//! QEMU's monitor, by the QEMU Machine Protocol: one JSON value a line.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};

use super::limit::{GuestLimit, GuestWait};

/// The socket's name in the guest's folder, which is where QEMU runs.
pub(crate) const SOCKET: &str = "monitor";

/// CPU time of QEMU until the monitor is there, and until each of its answers.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A connection to it.
#[derive(Debug)]
pub struct Monitor {
    stream: BufReader<UnixStream>,
    limit: MonitorLimit,
}

/// Limits how long QEMU is waited for. An interrupt ends every wait.
#[derive(Debug)]
struct MonitorLimit {
    qemu: u32,
    interrupt: Arc<AtomicBool>,
}

impl MonitorLimit {
    fn begin(&self) -> GuestWait {
        GuestWait::begin(self.qemu)
    }

    /// Fails where the wait is over.
    fn check(&self, wait: &mut GuestWait) -> io::Result<()> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted"));
        }
        match wait.over(GuestLimit::new(TIMEOUT, None)) {
            Some(time) => Err(io::Error::other(format!(
                "QEMU's monitor has not answered for {time}"
            ))),
            None => Ok(()),
        }
    }
}

impl Monitor {
    /// Connects to the monitor in this folder, once it is there; gives up when `ended`.
    pub fn connect(
        folder: &Path,
        qemu: u32,
        interrupt: Arc<AtomicBool>,
        mut ended: impl FnMut() -> bool,
    ) -> io::Result<Self> {
        // A socket's path may have 107 bytes, and the folder's may be longer.
        let folder = File::open(folder)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
        let limit = MonitorLimit { qemu, interrupt };
        let mut wait = limit.begin();
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(error) if ended() => return Err(error),
                Err(_) => limit.check(&mut wait)?,
            }
            sleep(POLL_INTERVAL);
        };
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        let mut monitor = Monitor {
            stream: BufReader::new(stream),
            limit,
        };
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Sends a command and returns the answer.
    pub fn ask(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream.get_mut(), "{line}")?;
        let mut wait = self.limit.begin();
        loop {
            let mut message: Value = serde_json::from_slice(&self.line(&mut wait)?)?;
            if let Some(error) = message.get("error") {
                return Err(io::Error::other(format!("{command}: {error}")));
            }
            // Everything else is its greeting, or an event.
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }

    /// The next line of it.
    fn line(&mut self, wait: &mut GuestWait) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            match self.stream.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => return Ok(line),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.limit.check(wait)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks until `field` of the answer is none of these, and returns it.
    pub fn ask_until_not(
        &mut self,
        command: &str,
        field: &str,
        passing: &[&str],
    ) -> io::Result<String> {
        let mut wait = self.limit.begin();
        loop {
            let answer = self.ask(command, json!({}))?;
            let state = answer
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default();
            if !passing.contains(&state) {
                return Ok(state.to_owned());
            }
            self.limit.check(&mut wait)?;
            sleep(POLL_INTERVAL);
        }
    }
}
