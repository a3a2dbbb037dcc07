//! Builds a record from the events of a run. It is pure, so a record can be built again from a journal.

use bpfcost_stats::undisturbed::MIN_EPOCHS;

use crate::{
    Asked, CaseRecord, Machine, Record, SCHEMA, headline::with_machine_headline, run_data::RunData,
};
use bpfcost_measure::{Measurements, PROPORTIONALITY, Plan, Stop, Warning};

impl Record {
    /// Builds the record of a run, whole or interrupted. `started` is RFC 3339 in UTC. What other sessions of the
    /// machine show is the history's to add.
    pub fn build(plan: &Plan, measured: &Measurements, started: &str, machine: Machine) -> Record {
        let led = with_machine_headline(plan, measured, &machine);
        let (plan, measured) = led
            .as_ref()
            .map_or((plan, measured), |led| (&led.0, &led.1));
        let (seen, dropped) = RunData::from_measurements(plan, measured);
        let emulated = machine.emulates_time();
        let speechless = plan.contends && emulated;
        let cases: Vec<CaseRecord> = (0..plan.cases.len())
            .map(|index| seen.case(plan, index))
            .collect();
        let (comparisons, metrics) = seen.quantities(plan, measured, &cases, speechless);
        Record {
            schema: SCHEMA,
            bpfcost: env!("CARGO_PKG_VERSION").to_owned(),
            experiment: plan.experiment.clone(),
            target: plan.target.clone(),
            unit: plan.unit,
            started: started.to_owned(),
            seconds: measured.seconds(),
            seed: plan.seed,
            stop: measured.stop.unwrap_or(Stop::Interrupted),
            asked: Asked {
                precision: plan.precision,
                seconds: plan.seconds,
                quick: plan.quick,
                cpus: plan.cpus.clone(),
                budget: plan.budget,
                margin: plan.margin,
            },
            machine: Machine {
                kernel_bytes: machine.kernel_bytes.max(measured.kernel_bytes),
                ..machine
            },
            warnings: warnings(plan, measured, dropped, emulated),
            layout: plan.layout.clone(),
            contends: plan.contends,
            waivers: plan.waivers.clone(),
            comparisons,
            metrics,
            spread: seen.spread(plan, measured),
            cases,
        }
        .budget_of_probes()
    }
}

/// The run's warnings, each once, because a resumed run warns again. `emulated`: times are those of an emulator.
fn warnings(plan: &Plan, measured: &Measurements, dropped: usize, emulated: bool) -> Vec<Warning> {
    let speechless = plan.contends && emulated;
    let mut kept: Vec<Warning> = Vec::new();
    for warning in &measured.warnings {
        // Times that mean nothing need not be proportional either.
        let moot = speechless && warning.code == PROPORTIONALITY;
        if !moot && !kept.contains(warning) {
            kept.push(warning.clone());
        }
    }
    if speechless {
        kept.push(Warning::new(
            "no-verdict",
            "there are no comparisons: these costs come from cache-line contention, which an emulated machine does \
             not have. Run it on hardware, or in a guest with KVM",
        ));
    }
    // An emulator never comes to rest, and its warning says more.
    let cut = measured.cases.iter().any(|case| !case.slices.is_empty());
    let enough = measured.anchor_batches() >= MIN_EPOCHS;
    if cut && enough && !measured.came_to_rest(plan) && !emulated {
        let seen = measured.anchor_undisturbed().zip(plan.anchor);
        let how = match seen {
            Some((seen, before)) => {
                let more = 100.0 * (seen / before - 1.0);
                format!("took at least {more:.0} % longer than in earlier sessions")
            }
            None => "took longer at one moment than at the next, throughout".to_owned(),
        };
        kept.push(Warning::new(
            "never-at-rest",
            format!(
                "this machine never came to rest: the anchor, which anything else on its core slows, {how}. So no cost \
                 is known undisturbed, and all are as found. Run it again when the machine is less busy"
            ),
        ));
    }
    if dropped > 0 {
        kept.push(Warning::new(
            "not-finite",
            format!(
                "{dropped} values were not finite numbers and are left out; this is a bug in the experiment, \
                 please report it"
            ),
        ));
    }
    kept
}
