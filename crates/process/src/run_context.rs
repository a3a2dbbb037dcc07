//! The context of a run for its commands and probes: port, folder, processes, factor values. Replaces `{port}` and
//! the like in commands.

use std::{collections::BTreeMap, env, net::Ipv4Addr, path::PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Where a workload runs, and with which factor values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunContext {
    /// The folder of the session.
    pub dir: PathBuf,
    /// Where the server is reached.
    pub address: Ipv4Addr,
    /// Its port there.
    pub port: u16,
    /// The processes of the server; empty before it runs.
    pub pids: Vec<u32>,
    /// The processes of the probe, while it is attached.
    pub tool: Vec<u32>,
    /// CPUs of the server; empty where it has any.
    pub server_cpus: Vec<u32>,
    /// CPUs of the client; empty where it has any.
    pub client_cpus: Vec<u32>,
    /// Milliseconds of a window.
    pub window_ms: u64,
    /// Factor values of the case.
    pub factors: BTreeMap<String, String>,
}

impl Default for RunContext {
    fn default() -> Self {
        RunContext {
            dir: PathBuf::new(),
            address: Ipv4Addr::LOCALHOST,
            port: 0,
            pids: Vec::new(),
            tool: Vec::new(),
            server_cpus: Vec::new(),
            client_cpus: Vec::new(),
            window_ms: 0,
            factors: BTreeMap::new(),
        }
    }
}

impl RunContext {
    /// The same with these processes of a probe.
    pub fn with_tool(&self, tool: Vec<u32>) -> Self {
        RunContext {
            tool,
            ..self.clone()
        }
    }

    /// Replaces each `{name}` by its value.
    pub fn fill(&self, text: &str) -> Result<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let name = after.split_once('}').map(|(name, _)| name);
            let word = |name: &str| {
                name.chars()
                    .all(|c| c.is_ascii_lowercase() || c == '-' || c == '_')
            };
            match name {
                Some(name) if !name.is_empty() && word(name) => {
                    filled.push_str(&self.value(name)?);
                    rest = &after[name.len() + 1..];
                }
                _ => {
                    filled.push('{');
                    rest = after;
                }
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// The same of each word of a command.
    pub fn command(&self, words: &[String]) -> Result<Vec<String>> {
        words.iter().map(|word| self.fill(word)).collect()
    }

    fn value(&self, name: &str) -> Result<String> {
        Ok(match name {
            "address" => self.address.to_string(),
            "port" => self.port.to_string(),
            "pid" => match self.pids.first() {
                Some(pid) => pid.to_string(),
                None => bail!("{{pid}} is the server's process, and there is none yet"),
            },
            "dir" => self.dir.display().to_string(),
            "cpus" => self.server_cpus.len().max(1).to_string(),
            "bpfcost" => env::current_exe()
                .context("cannot find bpfcost's own executable")?
                .display()
                .to_string(),
            "seconds" => (self.window_ms as f64 / 1000.0).to_string(),
            _ => match self.factors.get(name) {
                Some(value) => value.clone(),
                None => bail!(
                    "unknown placeholder {{{name}}}: there are {{address}}, {{port}}, {{pid}}, {{dir}}, \
                     {{cpus}}, {{seconds}}, {{bpfcost}} and the factors"
                ),
            },
        })
    }
}
