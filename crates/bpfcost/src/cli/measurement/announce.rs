//! Printed before a workload runs: what is measured, how long it takes, what it can detect, what `--quick` leaves out.

use crate::{
    cli::output::note,
    experiment::{Case, Experiment},
    measure::{Plan, forecast},
    report::number::{duration, plural, round_percent},
};

/// Names of cases in a line before it says "…".
const MOST_NAMES: usize = 6;

/// Announces a plan that measures a workload; silent for others.
pub(super) fn announce(experiment: &dyn Experiment, plan: &Plan) {
    let Some(definition) = plan.subject.workload() else {
        return;
    };
    let expected = forecast(&experiment.description(), plan);
    let effect = expected.detectable.map_or(String::new(), |effect| {
        format!(
            "; it would detect a difference of {} in CPU time per {} in three of four runs",
            round_percent(effect),
            definition.operation
        )
    });
    let windows = definition.period_ms.map_or(String::new(), |period_ms| {
        let ms = definition.trial_ms();
        let periods = plural((ms / period_ms) as usize, "period");
        format!("; windows of {}, {periods} each", duration(ms as f64 / 1e3))
    });
    note!(
        "{} on {}: {}, about {} ({} of {}{windows}){effect}",
        plan.experiment,
        plan.target,
        plural(expected.cases, "case"),
        duration(expected.seconds),
        plural(expected.epochs, "epoch"),
        duration(expected.epoch_s),
    );
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

/// The cases that are not part of a quick plan.
fn left_out<'a>(all: &'a [Case], plan: &Plan) -> Vec<&'a str> {
    let runs = |name: &str| plan.cases.iter().any(|case| case.name == name);
    let names = all.iter().map(|case| case.name.as_str());
    names.filter(|name| plan.quick && !runs(name)).collect()
}

/// The first of these names.
fn some(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_NAMES).copied();
    let more = (names.len() > MOST_NAMES).then_some("…");
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
