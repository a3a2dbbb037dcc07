//! The folder of a workload's session, and the ports of its servers. Whatever is prepared in it once is kept for
//! all servers. The folder is removed with the session, however that ends.

use std::{env, fs, time::Duration};

use anyhow::{Context, Result};

use super::{
    Definition, Error,
    server::{PortTaken, free_port},
};
use bpfcost_process::{Process, RunContext, program, reaper::Scratch};

/// How long a command that prepares a session may take: a compiler on a small machine.
const PREPARATION: Duration = Duration::from_secs(300);
/// How often a server is started on another port, if another process took the free one first.
const PORTS: usize = 3;

/// A session's own folder.
#[derive(Debug)]
pub struct Base(Scratch);

impl Base {
    /// Makes the folder, and runs the one-time preparation in it.
    pub fn open(definition: &Definition) -> Result<Self> {
        definition
            .programs()
            .try_for_each(|program| program::find(program).map(drop))?;
        let scratch =
            // Servers that give up their privileges have to get in.
            Scratch::make_in(&env::temp_dir(), 0o755).context("cannot make a folder for the \
                workload's files")?;
        let base = Base(scratch);
        let context = base.context(definition, free_port()?)?;
        write(definition, &context)?;
        // A compiler that is killed leaves its temporary files: here they are removed with the folder. Not in the folder
        // itself, where go would ignore a go.mod.
        let temporary = context.dir.join("tmp");
        fs::create_dir_all(&temporary)
            .with_context(|| format!("cannot make the folder {}", temporary.display()))?;
        let temporary = ("TMPDIR".to_owned(), temporary.display().to_string());
        for command in &definition.prepare {
            let command = context.command(command)?;
            let env = std::slice::from_ref(&temporary);
            let mut process = Process::start_in(Some(&context.dir), &command, &[], env)?;
            let preparing = || format!("preparing the workload: {}", command.join(" "));
            if !process.wait(PREPARATION).with_context(preparing)?.success() {
                return Err(
                    Error::Server(format!("{} failed\n{}", preparing(), process.tail())).into(),
                );
            }
        }
        Ok(base)
    }

    /// Starts something on a port that is free, with the definition's files written for it; on another one where
    /// another process took it first. `given` is the one port that will do, where there is such.
    pub fn on_a_port<T>(
        &self,
        definition: &Definition,
        given: Option<u16>,
        start: impl Fn(&RunContext) -> Result<T>,
    ) -> Result<T> {
        let mut tries = 1;
        loop {
            let port = given.map_or_else(free_port, Ok)?;
            let context = self.context(definition, port)?;
            write(definition, &context)?;
            let error = match start(&context) {
                Ok(started) => return Ok(started),
                Err(error) => error,
            };
            let taken = error.downcast_ref::<PortTaken>();
            if tries == PORTS
                || given.is_some()
                || taken.is_none_or(|taken| taken.port != context.port)
            {
                return Err(error);
            }
            tries += 1;
        }
    }

    /// A context with that port.
    fn context(&self, definition: &Definition, port: u16) -> Result<RunContext> {
        let cpus = bpfcost_bpf::allowed_cpus();
        let server_cpus = definition.server.as_ref().map_or(0, |server| server.cpus);
        let (server_cpus, client_cpus) = if server_cpus > 0 && cpus.len() > server_cpus {
            (cpus[..server_cpus].to_vec(), cpus[server_cpus..].to_vec())
        } else {
            (Vec::new(), Vec::new())
        };
        Ok(RunContext {
            dir: self.0.path().to_owned(),
            port,
            server_cpus,
            client_cpus,
            window_ms: definition.window_ms,
            ..RunContext::default()
        })
    }
}

/// Writes the definition's files.
fn write(definition: &Definition, context: &RunContext) -> Result<()> {
    for (name, text) in &definition.files {
        let path = context.dir.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, context.fill(text)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
