//! docs/ATLAS.md: records of `attach` as one document. How it was made, the cost of each way to attach on each
//! kernel in instructions, and its time on hardware.
//!
//! The same records give the same document: nothing in it but what they hold.

mod kernels;
mod made;

use std::fmt::Write;

use crate::{
    record::{CrossTarget, Record},
    report::{
        markdown::escape,
        matrix::{self, Matrix},
        number,
        section::Detail,
        table::Table,
        target, text,
        view::grid::{self, GridTable},
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

/// The document; `None` where no record has a grid.
pub fn render(records: &[&Record]) -> Option<String> {
    let atlas = Atlas::new(records)?;
    let mut out = format!(
        "# Atlas of {}\n\n{}\n\n",
        escape(&atlas.experiment),
        atlas.about()
    );
    out += "## What it says\n\n";
    for sentence in atlas.says() {
        let _ = writeln!(out, "- {}", escape(&sentence));
    }
    out += "\n## How it was made\n\n";
    let _ = writeln!(out, "```sh\n{}\n```\n", atlas.commands().join("\n"));
    atlas.made().markdown(&mut out);
    if let Some(newest) = atlas.kernels.last() {
        out += "## In instructions\n\n\
                insn are not ns: an instruction counts the same whatever it waits for. Caches, branches and TLBs \
                are not modelled. A count tells one kernel from another, and one way from another with care.\n\n";
        // The newest kernel has the most rows, so its caption holds for all.
        let caption = GridTable::new(newest).map(|grid_table| grid_table.caption());
        let _ = writeln!(out, "{}\n", escape(&caption.unwrap_or_default()));
        let each = atlas.kernels.iter();
        let each = each.map(|record| cells(record, format!("All of {}", place(record))));
        let changes = atlas.changes().into_iter();
        for table in changes.chain(atlas.by_kernel()).chain(each) {
            below_heading(&mut out, table);
        }
    }
    if !atlas.clocks.is_empty() {
        out += "## In nanoseconds\n\n\
                Instructions are no nanoseconds. These are times by real clocks, of whatever the machine allows: \
                hold their order against that of the counts before you read one for the other.\n\n";
        for record in &atlas.clocks {
            let mut table = cells(record, place(record));
            table
                .captions
                .extend(GridTable::new(record).map(|grid_table| grid_table.caption()));
            table.captions.extend(words::session_caption(record));
            below_heading(&mut out, table);
        }
    }
    Some(number::plain_spaces(&out))
}

impl<'a> Atlas<'a> {
    fn new(records: &[&'a Record]) -> Option<Self> {
        // Of several sessions on one target the last.
        let columns = CrossTarget::new(records).columns;
        let latest: Vec<&Record> = columns.iter().map(|column| column.record).collect();
        let first = latest.iter().find(|record| record.cells().is_some())?;
        let matching = |wanted: &dyn Fn(&Record) -> bool| -> Vec<&'a Record> {
            let latest = latest.iter().copied();
            latest.filter(|record| wanted(record)).collect()
        };
        let mut kernels = matching(&|record| record.unit.is_counted());
        kernels.sort_by_key(|record| version(&record.machine.kernel));
        Some(Atlas {
            experiment: text::line(&first.experiment),
            kernels,
            clocks: matching(&|record| !record.unit.is_counted() && !target::is_emulated(record)),
            emulated: matching(&target::is_emulated),
        })
    }

    fn about(&self) -> String {
        format!(
            "What an event costs with a program attached, less what the same event costs without: counted in \
             instructions on {}, timed in nanoseconds on {}. Written by `bpfcost report` from records alone; change \
             nothing here by hand.",
            number::plural(self.kernels.len(), "kernel"),
            number::plural(self.clocks.len(), "machine")
        )
    }

    /// Cheapest and dearest of each record.
    fn says(&self) -> impl Iterator<Item = String> {
        let records = self.kernels.iter().chain(&self.clocks);
        records.filter_map(|record| Some(format!("{}.", grid::sentence(&GridTable::new(record)?)?)))
    }

    /// What changed from each kernel to the next.
    fn changes(&self) -> Vec<Table> {
        let pairs = self.kernels.windows(2).filter_map(Matrix::new);
        pairs.flat_map(|matrix| matrix::changes(&matrix)).collect()
    }
}

/// `exact:6.12: Linux 6.12.107`.
fn place(record: &Record) -> String {
    format!("{}: {}", target::label(record), target::kernel(record))
}

/// All cells of a record.
fn cells(record: &Record, title: String) -> Table {
    let table = GridTable::new(record).map(|grid_table| grid_table.table(Detail::Document));
    Table {
        title,
        ..table.unwrap_or_default()
    }
}

/// A table with its title as a heading, so that it can be linked to.
fn below_heading(out: &mut String, mut table: Table) {
    let title = std::mem::take(&mut table.title);
    let _ = writeln!(out, "### {}\n", escape(&title));
    table.markdown(out);
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
