//! Section on how the atlas was made: the commands, the machines and the versions.

use super::Atlas;
use bpfcost_record::Record;
use bpfcost_report::{
    table::{Cell, Head, Table},
    target,
};
use bpfcost_text::{self, number};

impl Atlas<'_> {
    /// A row for each record.
    pub(super) fn made(&self) -> Table {
        let shown = |text: &Option<String>| {
            text.as_deref()
                .map_or(number::MISSING.to_owned(), bpfcost_text::line)
        };
        let numbers = |record: &Record| {
            if record.unit.is_counted() {
                format!("counted in {}", shown(&record.machine.emulator))
            } else {
                format!("timed on {}", bpfcost_text::line(&record.machine.cpu))
            }
        };
        type ColumnText<'a> = &'a dyn Fn(&Record) -> String;
        let words: [(&str, ColumnText<'_>); 6] = [
            ("target", &target::label),
            ("kernel", &|record| {
                bpfcost_text::line(&record.machine.kernel)
            }),
            ("its build", &|record| {
                bpfcost_text::line(&record.machine.kernel_build)
            }),
            ("numbers are", &numbers),
            ("programs", &|record| shown(&record.machine.programs)),
            ("started", &|record| bpfcost_text::line(&record.started)),
        ];
        let columns = words.into_iter().map(|(head, text_of)| {
            Head::words(head).cells(move |record: &&Record| Cell::words(text_of(record)))
        });
        let cases = Head::number("cases")
            .cells(|record: &&Record| Cell::words(number::count(record.cases.len() as u64)));
        let emulated = self.emulated.iter().map(|record| target::label(record));
        let emulated: Vec<String> = emulated.collect();
        let left_out = (!emulated.is_empty()).then(|| {
            format!(
                "Left out: {}. Times of an emulator are neither counts nor hardware times.",
                emulated.join(", ")
            )
        });
        Table {
            captions: left_out.into_iter().collect(),
            ..Table::new(
                columns.chain([cases]).collect(),
                self.kernels.iter().chain(&self.clocks),
            )
        }
    }

    /// Returns the commands that make these records again. Targets with the same options share one command.
    pub(super) fn commands(&self) -> Vec<String> {
        let mut commands: Vec<(String, String)> = Vec::new();
        for record in self.kernels.iter().chain(&self.clocks) {
            let quick = if record.asked.quick { " --quick" } else { "" };
            let asked = format!("{quick} --seed {}", record.seed);
            let on = format!(" --on {}", bpfcost_text::line(&record.target));
            match commands.iter_mut().find(|command| command.1 == asked) {
                Some((targets, _)) => targets.push_str(&on),
                None => commands.push((on, asked)),
            }
        }
        let run = |(on, asked)| format!("bpfcost run {}{on}{asked} --out FOLDER", self.experiment);
        let report = "bpfcost report FOLDER -o FILE.md".to_owned();
        let commands = commands.into_iter().map(run).chain([report]);
        // Text from a record must not close the code block.
        commands.map(|command| command.replace('`', "'")).collect()
    }
}
