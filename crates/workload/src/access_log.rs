//! A server's access log: one line per operation, with numbers that are summed over a window.
//!
//! It is more exact than the client's count: when a client stops at a given time, operations are under way that the
//! server works on and the probe sees, but the client does not count.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use procfs::{
    net::{self, TcpState},
    process::FDTarget,
};

use super::{AccessLog, Reading};
use bpfcost_process::{Process, RunContext, holds, wait_for};

/// How long a server may take to notice that its clients are gone, and to open its log anew.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked at meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Lines and sums of a log.
#[derive(Debug, PartialEq)]
pub struct LogTotals {
    /// Operations: lines.
    ops: u64,
    /// What the numbers on them come to, by name.
    sums: BTreeMap<String, f64>,
}

impl AccessLog {
    /// Waits until the server has no connections left: what was begun is logged then.
    pub fn settle(&self, context: &RunContext) -> Result<()> {
        wait(
            context,
            "connections to the server are still open after its client has ended",
            || {
                let sockets = net::tcp().context("cannot read /proc/net/tcp")?;
                Ok(!sockets
                    .iter()
                    .any(|one| busy(one.local_address, &one.state, context.port)))
            },
        )
    }

    /// Forgets what was logged so far.
    pub fn forget(&self, context: &RunContext) -> Result<()> {
        self.account(context).map(|_| ())
    }

    /// Puts what was logged since then in the place of what the client counted; `unfinished` is what it did not
    /// wait for.
    pub fn amend(&self, context: &RunContext, reading: &mut Reading) -> Result<()> {
        let account = self.account(context)?;
        let Some(unfinished) = account.ops.checked_sub(reading.ops) else {
            bail!(
                "the client counted {} operations, and the log of the server has only {}",
                reading.ops,
                account.ops
            );
        };
        reading.ops = account.ops;
        reading.counts.extend(account.sums);
        let unfinished = ("unfinished".to_owned(), unfinished as f64);
        reading.counts.extend([unfinished]);
        Ok(())
    }

    /// What was logged since this was last asked. The log is moved away and opened anew by the server, by
    /// which it gives out what it had not written yet; the old one is whole when no process has it open.
    fn account(&self, context: &RunContext) -> Result<LogTotals> {
        let log = PathBuf::from(context.fill(&self.log)?);
        let log = context.dir.join(log);
        // The name by which the kernel knows it, too.
        let log = log
            .canonicalize()
            .with_context(|| format!("the server has no log {}", log.display()))?;
        let old = log.with_extension("old");
        fs::rename(&log, &old).with_context(|| format!("cannot move {}", log.display()))?;
        let command = context.command(&self.reopen)?;
        let mut process = Process::start(&command, &context.client_cpus, &[])?;
        if !process.wait(TIMEOUT)?.success() {
            bail!("{} failed\n{}", command.join(" "), process.tail());
        }
        let moved = FDTarget::Path(old.clone());
        wait(context, "the server does not reopen its log", || {
            Ok(log.exists() && !context.pids.iter().any(|pid| holds(*pid, &moved)))
        })?;
        let text = fs::read_to_string(&old);
        let text = text.with_context(|| format!("cannot read {}", old.display()))?;
        fs::remove_file(&old)?;
        read(&self.sums, &text).with_context(|| format!("reading the log {}", log.display()))
    }
}

/// Waits for something that the server of a context does.
fn wait(
    context: &RunContext,
    otherwise: &str,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let mut outcome = Ok(false);
    wait_for(&context.pids, TIMEOUT, POLL_INTERVAL, || {
        outcome = done();
        !matches!(outcome, Ok(false))
    });
    if !outcome? {
        bail!("{otherwise}, {} s later", TIMEOUT.as_secs());
    }
    Ok(())
}

/// Whether a socket is at that port and connected, so that a server may still work for it.
fn busy(local: SocketAddr, state: &TcpState, port: u16) -> bool {
    local.port() == port && matches!(state, TcpState::Established | TcpState::CloseWait)
}

/// Sums the columns of a log.
pub fn read(names: &[String], text: &str) -> Result<LogTotals> {
    let mut account = LogTotals {
        ops: 0,
        sums: names.iter().map(|name| (name.clone(), 0.0)).collect(),
    };
    for line in text.lines() {
        let numbers: Vec<f64> = line
            .split_whitespace()
            .map(|word| word.parse())
            .collect::<Result<_, _>>()
            .ok()
            .filter(|numbers: &Vec<f64>| numbers.len() == names.len())
            .with_context(|| format!("expected a line with {}, got: {line}", names.join(" ")))?;
        account.ops += 1;
        for (name, number) in names.iter().zip(numbers) {
            *account.sums.entry(name.clone()).or_default() += number;
        }
    }
    Ok(account)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn columns_are_summed_by_name() {
        let names = ["bytes_in".to_owned(), "bytes_out".to_owned()];
        let account = read(&names, "42 1278\n44 262402\n").expect("a log");
        assert_eq!(account.ops, 2);
        let sums: Vec<f64> = account.sums.into_values().collect();
        assert_eq!(sums, [86.0, 263_680.0]);
        for text in ["42\n", "42 -\n", "42 1278 3\n", "42 1278\n4"] {
            let error = format!("{:#}", read(&names, text).expect_err(text));
            assert!(error.contains("bytes_in bytes_out"), "{error}");
        }
    }

    #[test]
    fn a_server_is_busy_while_its_end_of_a_connection_is_open() {
        for (local, state, expected) in [
            (0x480b, TcpState::Established, true),
            (0x480b, TcpState::CloseWait, true),
            (0x480b, TcpState::Listen, false),
            (0x480b, TcpState::TimeWait, false),
            (0xc000, TcpState::Established, false),
        ] {
            let local = SocketAddr::from((Ipv4Addr::LOCALHOST, local));
            assert_eq!(busy(local, &state, 0x480b), expected, "{state:?}");
        }
    }
}
