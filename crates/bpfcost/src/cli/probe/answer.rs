//! The result: what each program did, and the contents of the maps.

use std::fmt::Write as _;

use anyhow::Result;
use bpfcost_bpf::{
    attach::{MapContents, ObjectCounts, ProgramCounts},
    typed::Value,
};
use bpfcost_report::{
    style::{Style, Tone},
    table::{Cell, Head, Note, Table},
};
use bpfcost_text::number::{self, HOLD, count, fixed, plain_decimals, plural};
use serde::Serialize;

/// Entries of a map that are shown as text, unless it was named.
const MOST_ENTRIES: usize = 20;

/// The result.
pub(super) struct Answer {
    pub(super) seconds: f64,
    pub(super) counts: ObjectCounts,
    /// Records and lines that had no room.
    pub(super) lost: u64,
    /// Ended processes whose threads' values are in no map any more.
    pub(super) forgotten: u64,
    pub(super) maps: Vec<MapContents>,
    /// True if all entries are shown.
    pub(super) is_whole: bool,
}

impl Answer {
    /// For people.
    pub(super) fn text(&self) -> String {
        let count_of = |value: u64| Cell::number(count(value), value as f64);
        let columns = vec![
            Head::words("program").cells(|one: &ProgramCounts| clean(&one.program)),
            Head::words("section").cells(|one: &ProgramCounts| clean(&one.section)),
            Head::number("processes").cells(|one: &ProgramCounts| count_of(one.processes)),
            Head::number("hits").cells(|one: &ProgramCounts| count_of(one.counts.hits)),
            Head::number("missed").cells(|one: &ProgramCounts| count_of(one.counts.missed)),
        ];
        let mut table = Table {
            title: self.title(),
            ..Table::new(columns, &self.counts.programs)
        };
        let notes = self.notes().into_iter();
        table.notes = notes.map(|text| Note::new(Tone::Open, text)).collect();
        let mut out = String::new();
        table.terminal(&mut out, Style::for_stdout());
        let mut out = number::plain_spaces(out.trim_end()) + "\n";
        for map in &self.maps {
            out.push('\n');
            self.write_map(&mut out, map);
        }
        out
    }

    fn title(&self) -> String {
        let total = self.counts.total();
        let seconds = fixed(self.seconds, plain_decimals(self.seconds).min(1));
        format!(
            "{}, {} missed, in {seconds}{HOLD}s.",
            plural(usize::try_from(total.hits).unwrap_or(usize::MAX), "hit"),
            count(total.missed)
        )
    }

    /// Sentences on what is not in the numbers.
    fn notes(&self) -> Vec<String> {
        let notes = [
            (
                self.counts.missed,
                "missed calls that belong to no program",
                "A process that could not be probed as it started counts as one, and so does a file that a forked child loaded",
            ),
            (
                self.lost,
                "lost records",
                "The buffers had no room for them",
            ),
            (
                self.forgotten,
                "processes whose threads' values are not in the maps",
                "They are dropped whenever more than 1,000 have ended",
            ),
        ];
        let notes = notes.into_iter().filter(|(number, ..)| *number > 0);
        notes
            .map(|(number, what, why)| format!("{what}: {}. {why}", count(number)))
            .collect()
    }

    fn write_map(&self, out: &mut String, map: &MapContents) {
        let name = bpfcost_text::line(&map.name);
        let entries = match (map.kind, map.entries.len()) {
            ("variables", _) => String::new(),
            (kind, number) => format!(
                " ({}, {} of {})",
                in_words(kind),
                count(number as u64),
                count(map.capacity.into())
            ),
        };
        let _ = writeln!(out, "{name}{entries}");
        if map.kind == "variables" {
            for (_, value) in &map.entries {
                write_variables(out, value);
            }
            return;
        }
        let shown = if self.is_whole {
            map.entries.len()
        } else {
            MOST_ENTRIES
        };
        for (key, value) in map.entries.iter().take(shown) {
            let line = format!("  {key}: {value}");
            let _ = writeln!(out, "{}", bpfcost_text::line(&line));
        }
        let left = map.entries.len().saturating_sub(shown);
        if left > 0 {
            let _ = writeln!(out, "  … and {} more: --map {name}", count(left as u64));
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> Result<String> {
        let programs = self.counts.programs.iter().map(|one| ProgramLine {
            program: &one.program,
            section: &one.section,
            processes: one.processes,
            hits: one.counts.hits,
            missed: one.counts.missed,
        });
        let maps = self.maps.iter().map(|map| MapLine {
            name: &map.name,
            kind: map.kind,
            capacity: map.capacity,
            entries: map
                .entries
                .iter()
                .map(|(key, value)| EntryLine { key, value })
                .collect(),
        });
        let line = ResultLine {
            kind: "result",
            seconds: self.seconds,
            programs: programs.collect(),
            missed_elsewhere: self.counts.missed,
            lost_records: self.lost,
            forgotten_processes: self.forgotten,
            maps: maps.collect(),
        };
        Ok(serde_json::to_string(&line)?)
    }
}

/// The result, for programs. The shape is documented in docs/user-probes.md.
#[derive(Serialize)]
struct ResultLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    seconds: f64,
    programs: Vec<ProgramLine<'a>>,
    missed_elsewhere: u64,
    lost_records: u64,
    forgotten_processes: u64,
    maps: Vec<MapLine<'a>>,
}

#[derive(Serialize)]
struct ProgramLine<'a> {
    program: &'a str,
    section: &'a str,
    processes: u64,
    hits: u64,
    missed: u64,
}

#[derive(Serialize)]
struct MapLine<'a> {
    name: &'a str,
    kind: &'static str,
    capacity: u32,
    entries: Vec<EntryLine<'a>>,
}

#[derive(Serialize)]
struct EntryLine<'a> {
    key: &'a Value,
    value: &'a Value,
}

/// A map's type, for people. A thread's values are its own, in place of a CPU's.
fn in_words(kind: &str) -> &str {
    match kind {
        "percpu_array" => "array, threads summed",
        "percpu_hash" => "hash, threads summed",
        "lru_hash" => "LRU hash",
        "lru_percpu_hash" => "LRU hash, threads summed",
        "stack_trace" => "stacks",
        other => other,
    }
}

/// A line for each variable of a section.
fn write_variables(out: &mut String, value: &Value) {
    let mut line = |text: String| {
        let _ = writeln!(out, "  {}", bpfcost_text::line(&text));
    };
    match value {
        Value::Fields(fields) => {
            for (name, value) in fields {
                line(format!("{name}: {value}"));
            }
        }
        other => line(other.to_string()),
    }
}

fn clean(text: &str) -> Cell {
    Cell::words(bpfcost_text::line(text))
}
