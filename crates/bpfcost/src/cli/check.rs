//! `bpfcost check`: what can be measured here, and what will disturb it.

use std::fmt::{self, Write};

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use bpfcost_bpf::timing::Loop;

use super::{
    exit::Exit,
    format::Format,
    output::{answer, say},
};
use crate::target::{
    Check, CheckState, Host,
    guest::{Known, Tools},
};

/// Tell what can be measured on this machine, and what will disturb it.
///
/// Exit code 4 where something is missing without which nothing can be measured.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How to answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    let host = Host::default();
    let mut checks = host.checks();
    if host.missing_capabilities().is_empty() {
        checks.push(timed_loop());
    }
    checks.push(guests());
    let missing = checks
        .iter()
        .any(|check| check.state == CheckState::Missing);
    match args.format {
        Format::Json => say!("{}", serde_json::to_string_pretty(&checks)?)?,
        Format::Table => answer(format_args!("{}", table(&checks, missing)?))?,
    }
    Ok(if missing { Exit::Lacking } else { Exit::Done })
}

/// Whether a program that times itself loads, and how it loops: asked of the kernel, not guessed.
fn timed_loop() -> Check {
    let (state, text, advice) = match Loop::probe() {
        Ok(Loop::CanLoop) => (
            CheckState::Ok,
            "timed programs load and loop with can_loop".into(),
            "",
        ),
        Ok(Loop::BpfLoop) => (
            CheckState::Warn,
            "timed programs loop with bpf_loop, which costs some 8 ns a turn".into(),
            "floors take it off; Linux 6.9 and later loop for less",
        ),
        Err(error) => (
            CheckState::Missing,
            error.to_string(),
            "see the kernel's words above; containers often forbid loading BPF programs",
        ),
    };
    Check {
        name: "timed programs".into(),
        state,
        text,
        advice: advice.into(),
    }
}

/// Whether guests can be had, and what would run them. Never missing: the host is measured without.
fn guests() -> Check {
    let (state, text, advice) = match Tools::find() {
        Err(error) => {
            let text = error.to_string();
            let (what, advice) = text.split_once('\n').unwrap_or((&text, ""));
            (CheckState::Warn, what.to_owned(), advice.trim().to_owned())
        }
        Ok(tools) => {
            let with = format!("QEMU {} and virtme-ng are there", tools.qemu_version);
            match Known::here(&tools) {
                Known::Usable => (CheckState::Ok, format!("{with}, KVM works"), String::new()),
                Known::Untried => (
                    CheckState::Ok,
                    format!("{with}, KVM is there and not tried yet"),
                    "the first --on vm:KERNEL tries it".into(),
                ),
                Known::Unusable(why) => (
                    CheckState::Warn,
                    format!("{with}, KVM can't be used ({why})"),
                    "times of vm targets are those of an emulator; exact targets need no KVM"
                        .into(),
                ),
            }
        }
    };
    Check {
        name: "guests".into(),
        state,
        text,
        advice,
    }
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
        "Nothing can be measured here until what is missing is there."
    } else {
        "Ready: bpfcost run xdp-lb"
    };
    writeln!(text, "\n{verdict}")?;
    Ok(text)
}
