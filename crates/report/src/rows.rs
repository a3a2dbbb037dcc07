//! A record as rows of text, the same for the terminal, Markdown and HTML.

use std::collections::HashMap;

use crate::{style::Tone, table::Note, words};
use bpfcost_record::{CaseRecord, ComparisonRecord, Record, Status};
use bpfcost_text::{
    self,
    number::{self, MISSING},
};

/// The cases of one heading, in the record's order.
#[derive(Clone, Debug)]
pub struct RowGroup<'a> {
    /// The heading.
    pub name: String,
    /// Its cases.
    pub rows: Vec<CaseRow<'a>>,
}

/// One case, as text.
#[derive(Clone, Debug)]
pub struct CaseRow<'a> {
    /// What the text was made from.
    pub case: &'a CaseRecord,
    /// Its name, made safe to show.
    pub name: String,
    /// The estimate, or why there is none.
    pub cost: String,
    /// `[82.98, 83.30]`, or how a count spread over loads; empty where neither is known.
    pub interval: String,
    /// What is left after the harness.
    pub net: String,
    /// What else is to know.
    pub notes: Vec<Note>,
    /// [`Tone::Alarm`] where it is invalid, [`Tone::Quiet`] where it did not run.
    pub tone: Tone,
}

impl CaseRow<'_> {
    /// The notes in one line.
    pub fn note(&self) -> String {
        let texts: Vec<&str> = self.notes.iter().map(|note| note.text.as_str()).collect();
        texts.join("; ")
    }
}

/// A comparison, as text.
#[derive(Clone, Debug)]
pub struct PairRow<'a> {
    /// What the text was made from.
    pub comparison: &'a ComparisonRecord,
    /// The case in question.
    pub case: String,
    /// What it is compared with.
    pub baseline: String,
    /// The question, in a few words.
    pub about: String,
    /// case − baseline, in the record's unit.
    pub difference: String,
    /// Its interval, empty where there is none.
    pub difference_interval: String,
    /// `+0.4 %`.
    pub relative: String,
    /// Its interval, or that there is none; empty for counts, which have none.
    pub interval: String,
    /// What can be said.
    pub verdict: String,
    /// The tone of the verdict.
    pub tone: Tone,
}

/// The cases by heading; headings in the order of their first case.
pub fn groups(record: &Record) -> Vec<RowGroup<'_>> {
    let mut groups: Vec<RowGroup<'_>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for case in &record.cases {
        let place = *places.entry(&case.group).or_insert_with(|| {
            groups.push(RowGroup {
                name: group_heading(&case.group, &case.name),
                rows: Vec::new(),
            });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(place) {
            group.rows.push(case_row(case, record));
        }
    }
    groups
}

/// A group's name with a capital; as it is where `case`, one of its cases, is named after it, as those of a program are.
pub fn group_heading(group: &str, case: &str) -> String {
    let named_after = case.strip_prefix(group);
    if !group.is_empty() && named_after.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    {
        bpfcost_text::line(group)
    } else {
        heading(group)
    }
}

/// A heading with a capital, or a word where it is empty.
pub fn heading(group: &str) -> String {
    let group = bpfcost_text::line(group);
    let mut letters = group.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => "Cases".to_owned(),
    }
}

/// One case, as text.
pub fn case_row<'a>(case: &'a CaseRecord, record: &Record) -> CaseRow<'a> {
    let raw = case.raw.as_ref().filter(|_| case.status == Status::Ok);
    let (cost, tone) = match (case.status, raw) {
        (Status::Invalid, _) => ("INVALID".to_owned(), Tone::Alarm),
        (Status::Unsupported, _) => ("not run".to_owned(), Tone::Quiet),
        (Status::Ok, None) => (MISSING.to_owned(), Tone::Quiet),
        (Status::Ok, Some(raw)) => (words::value(raw.value, raw.ci95, record.unit), Tone::Plain),
    };
    CaseRow {
        case,
        name: bpfcost_text::line(&case.name),
        cost,
        interval: raw.map_or_else(String::new, |raw| words::spread(case, raw, record.unit)),
        net: raw.map_or_else(String::new, |_| words::net(case.net.as_ref(), record.unit)),
        notes: words::notes(case, record),
        tone,
    }
}

/// The comparisons, in the record's order.
pub fn pairs(record: &Record) -> Vec<PairRow<'_>> {
    record
        .comparisons
        .iter()
        .map(|comparison| {
            let decimals = words::decimals(comparison.difference, comparison.ci95, record.unit);
            let (relative, interval) = words::relative(comparison);
            let (verdict, tone) = words::verdict(comparison, record);
            PairRow {
                comparison,
                case: bpfcost_text::line(&comparison.case),
                baseline: bpfcost_text::line(&comparison.baseline),
                about: bpfcost_text::line(&comparison.about),
                difference: number::signed(comparison.difference, decimals),
                difference_interval: comparison
                    .ci95
                    .map_or_else(String::new, |ci95| number::signed_interval(ci95, decimals)),
                relative,
                interval: if interval.is_empty() && !record.unit.is_counted() {
                    "(no interval)".to_owned()
                } else {
                    interval
                },
                verdict,
                tone,
            }
        })
        .collect()
}
