//! `bpfcost check`: what can be measured here, and what will disturb it.

use std::fmt::{self, Write};

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use bpfcost_bpf::{Feature, feature::MissingFeature, timing::Loop};
use bpfcost_console::list::ListFormat;
use serde::Serialize;

use super::{
    exit::Exit,
    output::{answer, say},
};
use bpfcost_process::program::{self, Task};
use bpfcost_target::{
    Check, CheckState, Host, checks,
    guest::{KvmSupport, Tools},
};

/// Check what this machine can measure, and what will disturb it
///
/// Exits with 4 if nothing can be measured.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List the BPF features of this kernel, and why others are missing
    #[arg(long)]
    features: bool,
    /// Print the result in this format
    #[arg(long, value_enum, default_value_t)]
    format: ListFormat,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    if args.features {
        return list_features(args.format);
    }
    let host = Host::default();
    let mut checks = host.checks();
    if host.missing_capabilities().is_empty() {
        checks.push(timed_loop());
        checks.push(summary(&features()?));
    }
    checks.push(guests());
    checks.push(programs(
        "workloads",
        Task::Workloads,
        "servers, load generators and tracers are installed",
    ));
    let missing = checks
        .iter()
        .any(|check| check.state == CheckState::Missing);
    match args.format {
        ListFormat::Json => say!("{}", serde_json::to_string_pretty(&checks)?)?,
        ListFormat::Table => answer(format_args!("{}", table(&checks, missing)?))?,
    }
    Ok(if missing { Exit::Lacking } else { Exit::Done })
}

/// Whether a program that times itself loads, and how it loops: asked of the kernel, not guessed.
fn timed_loop() -> Check {
    let stand = match Loop::probe() {
        Ok(Loop::CanLoop) => checks::ok("timed programs load and loop with can_loop"),
        Ok(Loop::BpfLoop) => checks::warn(
            "timed programs loop with bpf_loop, about 8 ns per iteration",
            "net costs do not contain it; Linux 6.9 and later have a cheaper loop",
        ),
        Err(error) => checks::missing(
            error.to_string(),
            "see the kernel's message above; containers often forbid loading BPF programs",
        ),
    };
    Check::new("timed programs", stand)
}

/// A feature, and what is missing of it here.
#[derive(Serialize)]
struct FeatureEntry {
    name: &'static str,
    since: String,
    config: Option<&'static str>,
    missing: Option<String>,
}

/// Every feature, asked of the kernel.
fn features() -> Result<Vec<FeatureEntry>> {
    let entry = |feature: Feature| {
        Ok(FeatureEntry {
            name: feature.name(),
            since: feature.since().to_string(),
            config: feature.config(),
            missing: feature.missing()?.as_ref().map(MissingFeature::to_string),
        })
    };
    Feature::ALL.into_iter().map(entry).collect()
}

/// All features in a line. What is missing is never in the way of everything: `unsupported` cases tell.
fn summary(features: &[FeatureEntry]) -> Check {
    let missing: Vec<&str> = features
        .iter()
        .filter(|one| one.missing.is_some())
        .map(|one| one.name)
        .collect();
    let (all, there) = (features.len(), features.len() - missing.len());
    let (text, advice) = if missing.is_empty() {
        (format!("all {all} that experiments use are available"), "")
    } else {
        (
            format!(
                "{there} of {all} are available; missing: {}",
                missing.join(", ")
            ),
            "for the reasons: bpfcost check --features; guests can have other kernels: --on \
             exact:6.12",
        )
    };
    Check::new("BPF features", (CheckState::Ok, text, advice.into()))
}

/// What of BPF this kernel has.
fn list_features(format: ListFormat) -> Result<Exit> {
    let features = features()?;
    match format {
        ListFormat::Json => say!("{}", serde_json::to_string_pretty(&features)?)?,
        ListFormat::Table => answer(format_args!("{}", feature_table(&features)?))?,
    }
    Ok(Exit::Done)
}

fn feature_table(features: &[FeatureEntry]) -> Result<String, fmt::Error> {
    let width = features.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for one in features {
        let (word, color, why) = match &one.missing {
            None => ("there  ", AnsiColor::Green, ""),
            Some(why) => ("missing", AnsiColor::Yellow, why.as_str()),
        };
        let style = Style::new().fg_color(Some(color.into()));
        let line = format!(
            "{style}{word}{style:#}  {:width$}  Linux {:4}  {why}",
            one.name, one.since
        );
        writeln!(text, "{}", line.trim_end())?;
    }
    Ok(text)
}

/// Whether guests can be had, and what would run them. Never missing: the host is measured without.
fn guests() -> Check {
    let stand = match Tools::find() {
        Err(error) => {
            let text = error.to_string();
            let (what, advice) = text.split_once('\n').unwrap_or((&text, ""));
            checks::warn(what, advice.trim())
        }
        Ok(tools) => {
            let with = format!("QEMU {} is installed", tools.qemu_version);
            match KvmSupport::here(&tools) {
                KvmSupport::Usable => checks::ok(format!("{with}, KVM works")),
                KvmSupport::Untried => (
                    CheckState::Ok,
                    format!("{with}, KVM is present but not tried yet"),
                    "the first --on vm:KERNEL tries it".into(),
                ),
                KvmSupport::Unusable(why) => checks::warn(
                    format!("{with}, KVM does not work ({why})"),
                    "times of vm targets would be an emulator's; exact targets need no KVM",
                ),
            }
        }
    };
    Check::new("guests", stand)
}

/// Whether the programs that a task needs are there. Never missing: other experiments need none.
fn programs(name: &'static str, task: Task, there: &str) -> Check {
    let absent = task.missing();
    let names: Vec<&str> = absent.iter().map(|one| one.name).collect();
    let stand = if names.is_empty() {
        checks::ok(there)
    } else {
        checks::warn(
            format!("not installed: {}", names.join(", ")),
            format!(
                "{} (or scripts/setup.sh, which starts no service)",
                program::installing(absent.iter().map(|one| one.package))
            ),
        )
    };
    Check::new(name, stand)
}

fn table(checks: &[Check], missing: bool) -> Result<String, fmt::Error> {
    let width = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let (word, color) = match check.state {
            CheckState::Ok => ("ok     ", AnsiColor::Green),
            CheckState::Warn => ("warning", AnsiColor::Yellow),
            CheckState::Missing => ("missing", AnsiColor::Red),
        };
        let style = Style::new().fg_color(Some(color.into()));
        writeln!(
            text,
            "{style}{word}{style:#}  {:width$}  {}",
            check.name, check.text
        )?;
        if !check.advice.is_empty() {
            writeln!(text, "         {:width$}  {}", "", check.advice)?;
        }
    }
    let verdict = if missing {
        "Nothing can be measured here until the missing items are fixed."
    } else {
        "Ready: bpfcost run xdp-lb"
    };
    writeln!(text, "\n{verdict}")?;
    Ok(text)
}
