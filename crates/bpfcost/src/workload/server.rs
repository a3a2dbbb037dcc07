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
/// Bytes of its output that an error shows.
const SHOWN: usize = 600;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    process: Process,
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
            return Ok(Server { process });
        };
        let port = ready
            .tcp
            .as_deref()
            .map(|port| scene.fill(port))
            .transpose()?;
        let begun = Instant::now();
        loop {
            if let Some(status) = process.ended()? {
                bail!(
                    "the server {program} {}\n{}",
                    told(status),
                    tail(&process.printed()?)
                );
            }
            let listens = match &port {
                Some(port) => TcpStream::connect(("127.0.0.1", port.parse()?)).is_ok(),
                None => true,
            };
            let printed = match &ready.output {
                Some(pattern) => process.printed()?.contains(pattern),
                None => true,
            };
            if listens && printed {
                return Ok(Server { process });
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
