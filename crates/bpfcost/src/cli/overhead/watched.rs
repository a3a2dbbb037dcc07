//! A probe on a service or a process that is running.

use anyhow::{Context, Result};

use super::{Args, command::metrics, empty};
use crate::cli::exit::usage;
use bpfcost_model::{Headline, SECOND};
use bpfcost_process::{
    process_name,
    restore::{started, systemctl},
};
use bpfcost_workload::{Definition, RunningServer, ServerSpec};

/// The service or process as a workload.
pub(super) fn definition(args: &Args, watched: &str) -> Result<Definition> {
    let metric = match metrics(&args.metric)?.as_slice() {
        [] => None,
        [(_, pattern)] => Some(pattern.clone()),
        _ => {
            return Err(usage(
                "--ops prints one number, and several --metric are given\n  Keep one",
            ));
        }
    };
    let (name, pids, unit) = match watched.parse::<u32>() {
        Ok(pid) => {
            started(pid).ok_or_else(|| {
                usage(format!(
                    "there is no process {pid}\n  Find its number: pidof NAME"
                ))
            })?;
            let name = process_name(pid)
                .with_context(|| format!("cannot read the name of process {pid}"))?;
            (name, vec![pid], None)
        }
        Err(_) => {
            let unit = if watched.contains('.') {
                watched.to_owned()
            } else {
                format!("{watched}.service")
            };
            let advice = "Name a running service (systemctl list-units --type service), or a process: \
                          --watch $(pidof -s NAME)";
            let state = systemctl(&["show", "--property", "ActiveState", "--value", &unit])
                .map_err(|error| usage(format!("--watch {watched}: {error:#}\n  {advice}")))?;
            if state.trim() != "active" {
                return Err(usage(format!("{unit} is not running\n  {advice}")));
            }
            (
                watched.trim_end_matches(".service").to_owned(),
                Vec::new(),
                Some(unit),
            )
        }
    };
    let ops = args.ops.as_ref();
    Ok(Definition {
        about: format!("what do probes cost {name}, which is running here?"),
        name,
        operation: if ops.is_some() { "operation" } else { SECOND }.to_owned(),
        headline: Headline::Server,
        server: Some(ServerSpec {
            watch: Some(RunningServer {
                pids,
                unit,
                ops: ops.map_or(Vec::new(), |ops| {
                    ["sh", "-c", ops].map(str::to_owned).to_vec()
                }),
                metric,
                abort_above: args.abort_above,
            }),
            ..ServerSpec::default()
        }),
        ..empty()
    })
}
