//! Printed before a workload runs: what is measured, in how many epochs at least, what `--quick` leaves out. How long that
//! takes, and what it can detect, only the first epochs show ([`Estimate`]).
//!
//! [`Estimate`]: crate::cli::estimate::Estimate

use crate::builtin::workload::Workload;
use bpfcost_stats::looks::first_look;

use crate::{builtin::workload::learning_time, cli::output::note};
use bpfcost_measure::{FIRST_EPOCHS, Plan};
use bpfcost_model::{Case, Experiment};
use bpfcost_text::number::{duration, plural};
use bpfcost_workload::Definition;

/// Names of cases in a line before it says "…".
const MAX_NAMES: usize = 6;

/// Announces a plan that measures a workload; silent for others.
pub(super) fn announce(experiment: &dyn Experiment, plan: &Plan) {
    let Ok(Some(definition)) = Workload::definition_of(&plan.subject) else {
        return;
    };
    let windows = definition.period_ms.map_or(String::new(), |period_ms| {
        let ms = definition.trial_ms();
        let periods = plural((ms / period_ms) as usize, "period");
        format!("; windows of {}, {periods} each", duration(ms as f64 / 1e3))
    });
    note!(
        "{} on {}: {}, at least {}{windows}; how long that takes here is known after {FIRST_EPOCHS}",
        plan.experiment,
        plan.target,
        plural(plan.cases.len(), "case"),
        plural(first_look(plan.comparisons()), "epoch"),
    );
    note_guard(&definition);
    let cases = experiment.cases();
    let out = left_out(&cases, plan);
    if !out.is_empty() {
        note!(
            "--quick left out {} of {}: {}",
            out.len(),
            plural(out.len() + plan.cases.len(), "case"),
            some(&out)
        );
    }
}

/// Says how long the service is watched first, where it has a limit.
fn note_guard(definition: &Definition) {
    if let Some(time) = learning_time(definition) {
        note!(
            "first {} without a probe, to learn how much the service's cost moves by itself (--abort-above)",
            duration(time.as_secs_f64())
        );
    }
}

/// The cases that are not part of a quick plan.
fn left_out<'a>(all: &'a [Case], plan: &Plan) -> Vec<&'a str> {
    let runs = |name: &str| plan.cases.iter().any(|case| case.name == name);
    let names = all.iter().map(|case| case.name.as_str());
    names.filter(|name| plan.quick && !runs(name)).collect()
}

/// The first of these names.
fn some(names: &[&str]) -> String {
    let shown = names.iter().take(MAX_NAMES).copied();
    let more = (names.len() > MAX_NAMES).then_some("…");
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_end_early() {
        assert_eq!(some(&["a", "b"]), "a, b");
        assert_eq!(some(&["a"; 9]), "a, a, a, a, a, a, …");
    }
}
