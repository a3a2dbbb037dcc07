//! The server of a workload: started, ready, and gone when it is dropped.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{Process, Scene, ServerSpec, process::told};

/// How often a server is asked whether it is ready.
const LOOK: Duration = Duration::from_millis(5);
/// How long a port may be closed between two windows.
const REOPENING: Duration = Duration::from_secs(10);
/// Bytes of its output that an error shows.
const SHOWN: usize = 600;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    process: Process,
    /// The port at which it must listen before each window, where it is known to close it meanwhile.
    listens: Option<u16>,
}

/// A port of 127.0.0.1 that nobody has at the moment.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

impl Server {
    /// Starts it and waits until it is ready.
    pub fn start(spec: &ServerSpec, scene: &Scene) -> Result<Self> {
        let command = scene.command(&spec.command)?;
        let env: Vec<(String, String)> = spec
            .env
            .iter()
            .map(|(name, value)| Ok((name.clone(), scene.fill(value)?)))
            .collect::<Result<_>>()?;
        let mut process = Process::start(&command, &scene.server_cpus, &env)?;
        let program = command.join(" ");
        let Some(ready) = &spec.ready else {
            return Ok(Server {
                process,
                listens: None,
            });
        };
        let port = |text: &Option<String>| -> Result<Option<u16>> {
            let port = text.as_deref().map(|port| scene.fill(port)).transpose()?;
            port.map(|port| port.parse().with_context(|| format!("{port} is no port")))
                .transpose()
        };
        let (connects, listens) = (port(&ready.tcp)?, port(&ready.listen)?);
        let begun = Instant::now();
        loop {
            if let Some(status) = process.ended()? {
                bail!(
                    "the server {program} {}\n{}",
                    told(status),
                    tail(&process.printed()?)
                );
            }
            let connected = match connects {
                Some(port) => TcpStream::connect((scene.address, port)).is_ok(),
                None => true,
            };
            let listening = match listens {
                Some(port) => is_listening(port)?,
                None => true,
            };
            let printed = match &ready.output {
                Some(pattern) => process.printed()?.contains(pattern),
                None => true,
            };
            if connected && listening && printed {
                return Ok(Server { process, listens });
            }
            if begun.elapsed().as_secs_f64() > ready.within_s {
                bail!(
                    "the server {program} is not ready after {} s\n{}",
                    ready.within_s,
                    tail(&process.printed()?)
                );
            }
            sleep(LOOK);
        }
    }

    /// Waits until it listens, where it has to before each window.
    pub fn await_port(&mut self) -> Result<()> {
        let Some(port) = self.listens else {
            return Ok(());
        };
        let begun = Instant::now();
        while !is_listening(port)? {
            if let Some(status) = self.process.ended()? {
                bail!(
                    "the server {} between two windows\n{}",
                    told(status),
                    tail(&self.process.printed()?)
                );
            }
            if begun.elapsed() > REOPENING {
                bail!(
                    "the server has closed port {port}, and not opened it again within {} s\n{}",
                    REOPENING.as_secs(),
                    tail(&self.process.printed()?)
                );
            }
            sleep(LOOK);
        }
        Ok(())
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.process.id()];
        let mut next = 0;
        while let Some(pid) = pids.get(next) {
            let children =
                fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            pids.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
            next += 1;
        }
        pids
    }
}

/// Whether somebody listens at a port of the calling thread's network. Nobody connects to it.
fn is_listening(port: u16) -> Result<bool> {
    const SOCKETS: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    let tell = |path: &&str| fs::read_to_string(path).ok();
    let told: Vec<String> = SOCKETS.iter().filter_map(tell).collect();
    if told.is_empty() {
        bail!("can't read {}", SOCKETS[0]);
    }
    Ok(told.iter().any(|text| listens_in(text, port)))
}

/// Whether one of these sockets of proc_net_tcp(5) is in state LISTEN at that port.
fn listens_in(sockets: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(&port));
        local && words.nth(1) == Some(LISTEN)
    })
}

/// The last of what a program printed.
pub(crate) fn tail(printed: &str) -> String {
    let from = printed.len().saturating_sub(SHOWN);
    let from = (from..printed.len())
        .find(|at| printed.is_char_boundary(*at))
        .unwrap_or(0);
    printed[from..]
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_seen_without_a_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        assert!(is_listening(port).expect("sockets"));
        listener.set_nonblocking(true).expect("a listener");
        assert!(listener.accept().is_err(), "somebody has connected");
        drop(listener);
        assert!(!is_listening(port).expect("sockets"));
    }

    #[test]
    fn a_connection_is_no_listener() {
        const SOCKETS: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:B0D1 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:B0D2 0100007F:B0D1 01 00000000:00000000 00:00000000 00000000     0        0 2 1
";
        assert!(listens_in(SOCKETS, 0xb0d1));
        assert!(!listens_in(SOCKETS, 0xb0d2));
        assert!(!listens_in(SOCKETS, 0x00d1));
    }
}
