//! `--dry-run`: what would run, how long it would take, and what it could show.

use anyhow::Result;

use crate::cli::{output::say, place};
use bpfcost_measure::{Plan, forecast, time_option};
use bpfcost_model::Experiment;
use bpfcost_target::Host;
use bpfcost_text::number::{duration, plural};

/// Shows all of it for one plan.
pub(super) fn show(experiment: &dyn Experiment, plan: &Plan, host: &Host) -> Result<()> {
    let described = experiment.description();
    let forecast = forecast(&described, plan);
    say!(
        "{} on {}: {} cases",
        plan.experiment,
        plan.target,
        forecast.cases
    )?;
    if let Ok(target) = plan.target.parse()
        && let Some(kernel) = place::kernel(&target)?
    {
        say!(
            "in a guest with Linux {} ({})",
            kernel.release,
            kernel.image.display()
        )?;
    }
    for case in &plan.cases {
        say!("  {:22} {}", case.name, case.about)?;
    }
    say!("{}", plural(plan.pairs.len(), "comparison"))?;
    for pair in &plan.pairs {
        say!("  {} against {}", pair.case, pair.baseline)?;
    }
    if plan.counts() {
        say!(
            "\nexpected: {}, {} loads of {}, and the guest's boot\nit would detect a difference \
             of one instruction where loads agree",
            duration(forecast.seconds),
            forecast.epochs,
            duration(forecast.epoch_s)
        )?;
        return Ok(());
    }
    say!(
        "\non a machine at rest: at most {}, {} epochs of {} (first look after {} epochs, {})\nwhat it can detect depends \
         on how much epochs scatter here: the result says it",
        duration(forecast.seconds),
        forecast.epochs,
        duration(forecast.epoch_s),
        forecast.first_look,
        duration(forecast.first_look_s)
    )?;
    if let Some(seconds) = plan.seconds
        && !plan.patient
        && seconds < forecast.first_look_s
    {
        say!(
            "{} is probably too short: give --time {}, or fewer cases",
            duration(seconds),
            time_option(forecast.first_look_s)
        )?;
    }
    let missing = host.missing_capabilities();
    if plan.target == "host" && described.privileged && !missing.is_empty() {
        say!(
            "measuring needs {}, which this user lacks: run it with sudo",
            missing.join(", ")
        )?;
    }
    Ok(())
}
