//! Programs that are measured at their own hooks.

use std::path::Path;

use anyhow::{Context as _, Error, Result};
use bpfcost_bpf::program::ObjectFile;
use bpfcost_process::program::find;

use super::{Args, Objects, loader, setup, usage};
use crate::{
    builtin::hook::menu,
    cli::{flame, output::note},
};
use bpfcost_model::EventFacts;
use bpfcost_program::{HookedPrograms, StimulusSource};
use bpfcost_record::Record;
use bpfcost_text::suggest;

/// Programs that the command line names, to be measured at their hooks; `None` if it names none.
pub(super) fn subject(args: &Args, objects: &Objects) -> Result<Option<HookedPrograms>> {
    if objects.hooked.is_empty() {
        let given = [
            ("--at", !args.targets.is_empty()),
            ("--stimulus", !args.stimuli.is_empty()),
            ("--svg", args.svg.is_some()),
        ];
        return match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(usage(nothing_hooked(option, args))),
            None => Ok(None),
        };
    }
    let target = |words: &String| {
        let (program, hook) = words.split_once('=').ok_or_else(|| {
            usage(format!(
                "--at {words}: write PROGRAM=HOOK, such as --at handle_open=vfs_open"
            ))
        })?;
        if !objects.hooked.iter().any(|name| name == program) {
            return Err(usage(format!(
                "--at {words}: {program} is not among the programs that are measured at hooks: {}",
                objects.hooked.join(", ")
            )));
        }
        Ok((program.to_owned(), hook.to_owned()))
    };
    let targets: Result<Vec<(String, String)>> = args.targets.iter().map(target).collect();
    let subject = HookedPrograms {
        targets: targets?,
        stimuli: stimuli(args)?,
        hot_spots: args.hot_spots,
        calls: args.svg.is_some(),
        settings: objects.settings(args)?,
        setup: setup(args)?,
        objects: objects.files.clone(),
        programs: objects.hooked.clone(),
    };
    // A target of another form is an error before anything boots.
    for object in 0..subject.objects.len() {
        subject
            .hooks(object)
            .map_err(|error| usage(format!("--at: {error}")))?;
    }
    Ok(Some(subject))
}

/// The stimuli that are named, each by another name.
fn stimuli(args: &Args) -> Result<Vec<StimulusSource>> {
    let stimuli = args.stimuli.iter().map(|words| stimulus(args, words));
    let stimuli: Vec<StimulusSource> = stimuli.collect::<Result<_>>()?;
    let names = stimuli.iter().map(|one| one.name().to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(usage(format!(
            "--stimulus: two of them are called {}, by which their cases would be known\n  Name it once, or put a command into a script of another name",
            pair[0]
        ))),
        None => Ok(stimuli),
    }
}

/// A stimulus of the menu, or a command, whose program is here: a guest has this machine's files.
fn stimulus(args: &Args, words: &str) -> Result<StimulusSource> {
    if menu::find(words).is_some() {
        return Ok(StimulusSource::Menu(words.to_owned()));
    }
    let command = loader("--stimulus", words, &args.options.on)?;
    let program = command.command.first().context("a command has a name")?;
    find(program).map_err(|missing| {
        let alike = suggest(words, menu::all().map(|stimulus| stimulus.name));
        usage(format!(
            "--stimulus {words}: it is no stimulus of the menu{alike}, and as a command: {missing}\n  See the menu: bpfcost list --stimuli"
        ))
    })?;
    Ok(StimulusSource::Command(command))
}

fn nothing_hooked(option: &str, args: &Args) -> String {
    let advice = if !args.can_attach() {
        "Programs are attached where instructions are counted: --on exact:6.12"
    } else if args.targets.is_empty() {
        "Name one with --program; of XDP and cgroup_skb programs, name the hook: --at NAME=lo, --at NAME=/"
    } else {
        "Of programs that can be run in a loop, those for XDP, cgroup_skb and raw tracepoints can be attached"
    };
    format!("{option} is for programs that are measured at their hooks, and none is\n  {advice}")
}

/// The error where programs are to be attached on targets that don't count.
pub(super) fn not_here(object: &ObjectFile, program: &str, why: &str) -> Error {
    let file = object.path().display();
    usage(format!(
        "{why}\n  To count its instructions at its hook: bpfcost program {file} --program {program} --on exact:6.12"
    ))
}

/// Refuses options for programs in a loop, where there is none.
pub(super) fn nothing_looped(args: &Args) -> Result<()> {
    let given = [
        ("--input", !args.inputs.is_empty()),
        ("--context", !args.contexts.is_empty()),
        ("--mix", args.mix),
        ("--expect", !args.expected.is_empty()),
        ("--record-expected", args.record_expected.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(usage(format!(
            "{option} is for programs that run in a loop on packets, and none of these does\n  Leave it out"
        ))),
        None => Ok(()),
    }
}

/// Draws the calls of an event of each program.
pub(super) fn draw(file: &Path, object: &Path, records: &[Record]) -> Result<()> {
    let several = records.len() > 1;
    let mut lines = Vec::new();
    for record in records {
        for case in &record.cases {
            let facts = case.observed.clone().map(serde_json::from_value);
            let facts: EventFacts = facts.and_then(Result::ok).unwrap_or_default();
            let case = match several {
                true => format!("{} on {}", case.name, record.target),
                false => case.name.clone(),
            };
            let folded = facts.stacks.iter();
            lines.extend(
                folded.map(|stack| format!("{case};{} {}", stack.functions, stack.instructions)),
            );
        }
    }
    if lines.is_empty() {
        note!("no program has a result, so no flame graph was written");
        return Ok(());
    }
    let name = object.file_name().unwrap_or_default().to_string_lossy();
    let title = format!("An event of each program of {name}");
    flame::write(file, bpfcost_text::line(&title), "instructions", &lines)
}
