//! The load of one window: a client that runs to its end, and what its output says.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Client, Process, Reading, Scene, process::told, server::tail};

/// How much longer than a window a client may take, before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of a workload.
#[derive(Debug)]
pub struct Load<'a> {
    client: &'a Client,
}

impl<'a> Load<'a> {
    /// That client.
    pub fn of(client: &'a Client) -> Self {
        Load { client }
    }

    /// Makes the load of one window; how long it took, and what came of it.
    pub fn run(&self, scene: &Scene) -> Result<(Duration, Reading)> {
        let command = scene.command(&self.client.command)?;
        let begun = Instant::now();
        let mut process = Process::start(&command, &scene.client_cpus, &[])?;
        let status = process.wait(Duration::from_millis(scene.window_ms) + PATIENCE)?;
        let took = begun.elapsed();
        let printed = process.printed()?;
        if !status.success() {
            bail!(
                "the client {} {}\n{}",
                command.join(" "),
                told(status),
                tail(&printed)
            );
        }
        let reading = Reading::of(self.client, &printed).with_context(|| {
            format!(
                "reading what {} printed:\n{}",
                command.join(" "),
                tail(&printed)
            )
        })?;
        Ok((took, reading))
    }
}
