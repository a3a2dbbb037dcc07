//! How the atlas was made: the commands, and what was measured with what.

use std::fmt::Write;

use super::{Atlas, notes};
use crate::{
    record::Record,
    report::{markdown::escape, number, target, text},
};

impl Atlas<'_> {
    /// The commands, and a row for each record.
    pub(super) fn made(&self, out: &mut String) {
        out.push_str("```sh\n");
        for command in self.commands() {
            // What a record holds must not end the block.
            let _ = writeln!(out, "{}", command.replace('`', "'"));
        }
        out.push_str("```\n\n");
        out.push_str(
            "| target | kernel | its build | numbers are | programs | started | cases |\n",
        );
        out.push_str("|:--|:--|:--|:--|:--|:--|--:|\n");
        for record in self.kernels.iter().chain(&self.clocks) {
            let machine = &record.machine;
            let told = |text: &Option<String>| {
                text.as_deref()
                    .map_or(number::MISSING.to_owned(), text::line)
            };
            let numbers = match record.unit.is_counted() {
                true => format!("counted in {}", told(&machine.emulator)),
                false => format!("timed on {}", text::line(&machine.cpu)),
            };
            let cells = [
                target::label(record),
                text::line(&machine.kernel),
                text::line(&machine.kernel_build),
                numbers,
                told(&machine.programs),
                text::line(&record.started),
                number::count(record.cases.len() as u64),
            ];
            let cells = cells.map(|cell| escape(&cell));
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
        out.push('\n');
        let emulated: Vec<String> = self
            .emulated
            .iter()
            .map(|record| target::label(record))
            .collect();
        if !emulated.is_empty() {
            let line = format!(
                "Left out: {}. Times of an emulator are neither counts nor those of hardware.",
                emulated.join(", ")
            );
            notes(out, std::iter::once(line));
        }
    }

    /// What makes these records again: those that were asked alike in one command.
    fn commands(&self) -> Vec<String> {
        let mut commands: Vec<(String, Vec<String>)> = Vec::new();
        for record in self.kernels.iter().chain(&self.clocks) {
            let asked = asked(record);
            let target = text::line(&record.target);
            match commands.iter_mut().find(|command| command.0 == asked) {
                Some((_, targets)) => targets.push(target),
                None => commands.push((asked, vec![target])),
            }
        }
        let run = |(asked, targets): (String, Vec<String>)| {
            let on: Vec<String> = targets
                .iter()
                .map(|target| format!("--on {target}"))
                .collect();
            format!(
                "bpfcost run {} {}{asked} --out FOLDER",
                self.experiment,
                on.join(" ")
            )
        };
        let report = "bpfcost report FOLDER -o FILE.md".to_owned();
        commands.into_iter().map(run).chain([report]).collect()
    }
}

/// The options that a run was given.
fn asked(record: &Record) -> String {
    let quick = if record.asked.quick { " --quick" } else { "" };
    format!("{quick} --seed {}", record.seed)
}
