//! Records as one Markdown document. Of an experiment whose cases span a grid, an atlas: what it says, how
//! it was made, what each way costs on each kernel, and beside it what hardware takes.
//!
//! The same records give the same document: nothing in it but what they hold.

mod kernels;
mod made;
mod says;

use std::fmt::Write;

use crate::{
    record::{Across, Record},
    report::{
        markdown::escape,
        matrix::{self, Part},
        number,
        section::Detail,
        target, text,
        view::grid::Sheet,
        words,
    },
};

/// The records of one experiment, by what their numbers are.
struct Atlas<'a> {
    experiment: String,
    /// Counted, by the versions of their kernels.
    kernels: Vec<&'a Record>,
    /// Timed by real clocks.
    clocks: Vec<&'a Record>,
    /// Timed by an emulator's, which say little.
    emulated: Vec<&'a Record>,
}

/// The document; records that no atlas holds as `show` has them.
pub fn render(records: &[Record], show: impl Fn(&Record) -> String) -> String {
    let mut out = String::new();
    for part in matrix::parts(records) {
        let (Part::Matrix(_, records) | Part::Alone(records)) = &part;
        match (Atlas::new(records), &part) {
            (Some(atlas), _) => out.push_str(&atlas.render()),
            (None, Part::Matrix(matrix, records)) => {
                out.push_str(&matrix::markdown(matrix));
                out.extend(records.iter().map(|record| show(record)));
            }
            (None, Part::Alone(records)) => {
                out.extend(records.iter().map(|record| show(record)));
            }
        }
    }
    number::plain_spaces(&out)
}

impl<'a> Atlas<'a> {
    /// `None` where no record has a grid.
    fn new(records: &[&'a Record]) -> Option<Self> {
        // Of several sessions on one target the last.
        let columns = Across::new(records).columns;
        let latest: Vec<&Record> = columns.iter().map(|column| column.record).collect();
        let first = latest.iter().find(|record| record.cells().is_some())?;
        let of = |wanted: &dyn Fn(&Record) -> bool| -> Vec<&'a Record> {
            let latest = latest.iter().copied();
            latest.filter(|record| wanted(record)).collect()
        };
        let mut kernels = of(&|record| record.unit.is_counted());
        kernels.sort_by_key(|record| version(&record.machine.kernel));
        Some(Atlas {
            experiment: text::line(&first.experiment),
            kernels,
            clocks: of(&|record| !record.unit.is_counted() && !target::is_emulated(record)),
            emulated: of(&target::is_emulated),
        })
    }

    fn render(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "# Atlas of {}\n", escape(&self.experiment));
        paragraph(&mut out, &self.about());
        out.push_str("## What it says\n\n");
        for sentence in self.says() {
            let _ = writeln!(out, "- {}", escape(&sentence));
        }
        out.push_str("\n## How it was made\n\n");
        self.made(&mut out);
        if !self.kernels.is_empty() {
            self.counted(&mut out);
        }
        if !self.clocks.is_empty() {
            self.timed(&mut out);
        }
        out
    }

    fn about(&self) -> String {
        let mut parts = Vec::new();
        if !self.kernels.is_empty() {
            let kernels = number::plural(self.kernels.len(), "kernel");
            parts.push(format!("counted in instructions on {kernels}"));
        }
        if !self.clocks.is_empty() {
            let clocks = number::plural(self.clocks.len(), "machine");
            parts.push(format!("timed in nanoseconds on {clocks}"));
        }
        format!(
            "What an event costs with a program attached, less what the same event costs without: {}. Written \
             by `bpfcost report` from records alone; change nothing here by hand.",
            parts.join(", ")
        )
    }

    /// The tables of what was counted.
    fn counted(&self, out: &mut String) {
        out.push_str("## In instructions\n\n");
        paragraph(
            out,
            "insn are not ns: an instruction counts the same whatever it waits for. Caches, branches and TLBs \
             are not modelled. A count tells one kernel from another, and one way from another with care.",
        );
        // The newest kernel has the most rows, so its caption holds for all.
        let sheets = self
            .kernels
            .iter()
            .rev()
            .filter_map(|record| Sheet::new(record));
        if let Some(sheet) = sheets.into_iter().next() {
            notes(out, std::iter::once(sheet.caption()));
        }
        self.by_kernel(out);
        for record in &self.kernels {
            let title = format!(
                "All of {}: {}",
                target::label(record),
                target::kernel(record)
            );
            let _ = writeln!(out, "### {}\n", escape(&title));
            sheet_of(out, record, None);
        }
    }

    /// The tables of what was timed.
    fn timed(&self, out: &mut String) {
        out.push_str("## In nanoseconds\n\n");
        paragraph(
            out,
            "Instructions are no nanoseconds. These are times by real clocks, of whatever the machine allows: \
             hold their order against that of the counts before you read one for the other.",
        );
        for record in &self.clocks {
            let title = format!("{}: {}", target::label(record), target::kernel(record));
            let _ = writeln!(out, "### {}\n", escape(&title));
            sheet_of(out, record, words::session_caption(record));
        }
    }
}

/// All cells of a record, and what to know of its intervals where it has some.
fn sheet_of(out: &mut String, record: &Record, sessions: Option<String>) {
    let Some(sheet) = Sheet::new(record) else {
        paragraph(out, "No case of this record has a place in a table.");
        return;
    };
    let mut block = sheet.block(Detail::Document);
    block.notes.clear();
    block.markdown(out);
    let captions = sessions.map(|sessions| [sheet.caption(), sessions]);
    notes(
        out,
        sheet
            .notes()
            .into_iter()
            .chain(captions.into_iter().flatten()),
    );
}

/// A paragraph with an empty line behind it.
fn paragraph(out: &mut String, words: &str) {
    // Backticks here are meant; nothing of a record comes this way.
    let _ = writeln!(out, "{words}\n");
}

/// Lines below a table.
fn notes(out: &mut String, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.map(|line| escape(&line)).collect();
    if !lines.is_empty() {
        let _ = writeln!(out, "{}\n", lines.join("  \n"));
    }
}

/// A release as numbers, so that 6.8 stands before 6.12.
fn version(release: &str) -> Vec<u64> {
    let parts = release.split(|c: char| !c.is_ascii_digit());
    parts.map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_sort_as_numbers() {
        assert!(version("6.8.0-1-amd64") < version("6.12.107+deb13-amd64"));
        assert!(version("6.12.107+deb13-amd64") < version("7.2.13"));
        assert_eq!(version(""), [0; 0]);
    }
}
