//! A probe on a workload: a built-in one, or one that a file describes.

use crate::builtin::workload::Workload;
use anyhow::Result;

use crate::{
    builtin::workload,
    cli::{
        exit::usage,
        select::{self, DEFINITION},
    },
};
use bpfcost_model::Experiment as _;
use bpfcost_text::suggest;
use bpfcost_workload::Definition;

/// Refuses the name of a workload where a probe is expected.
pub(super) fn none_among(probes: &[String]) -> Result<()> {
    let names = names();
    let workload = |probe: &&String| names.contains(probe) || probe.ends_with(DEFINITION);
    match probes.iter().find(workload) {
        None => Ok(()),
        Some(name) => Err(usage(format!(
            "{name} is a workload, not a probe\n  Write: --workload {name}"
        ))),
    }
}

/// The names of the built-in workloads.
fn names() -> Vec<String> {
    workload::built_in()
        .map(|one| one.description().name)
        .collect()
}

/// The workload of that name or file, with the first value of each factor.
pub(super) fn definition(name: &str) -> Result<Definition> {
    let experiment = select::experiment(name)?;
    let description = experiment.description();
    let Some(mut definition) = Workload::definition_of(&description.subject)? else {
        let names = names();
        return Err(usage(format!(
            "{name} is not a workload{}\n  Workloads: {}, or your FILE.toml\n  \
             To measure a command: bpfcost overhead PROBE -- {name} …",
            suggest(name, names.iter().map(String::as_str)),
            names.join(", ")
        )));
    };
    for factor in &mut definition.factors {
        factor.values = if factor.quick.is_empty() {
            factor.values.drain(..).take(1).collect()
        } else {
            std::mem::take(&mut factor.quick)
        };
    }
    definition.clients.truncate(1);
    for client in &mut definition.clients {
        client.repeat = !client.command.iter().any(|word| word.contains("{seconds}"));
    }
    Ok(definition)
}
