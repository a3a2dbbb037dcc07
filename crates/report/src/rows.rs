//! Cases and comparisons as rows of text, the same for the terminal, Markdown and HTML.

use std::collections::HashMap;

use crate::{
    cost::{self, CostText},
    estimate, notes,
    style::Tone,
    table::Note,
    verdict,
};
use bpfcost_record::{CaseRecord, ComparisonRecord, Record};
use bpfcost_text::{line, number};

/// Rows under a heading.
#[derive(Clone, Debug)]
pub struct RowGroup<R> {
    /// Heading; may be empty.
    pub name: String,
    /// Rows, in the order in which they are shown.
    pub rows: Vec<R>,
}

/// One case, as text.
#[derive(Clone, Debug)]
pub struct CaseRow<'a> {
    /// Source of the text.
    pub case: &'a CaseRecord,
    /// Name, made safe to show.
    pub name: String,
    /// Cost as measured.
    pub cost: CostText,
    /// Cost without the harness; empty without a result.
    pub net: String,
    /// Notes, most important first.
    pub notes: Vec<Note>,
}

/// A comparison, as text.
#[derive(Clone, Debug)]
pub struct PairRow<'a> {
    /// Source of the text.
    pub comparison: &'a ComparisonRecord,
    /// Name of the case in question.
    pub case: String,
    /// Name of the case that it is compared with.
    pub baseline: String,
    /// The question, in a few words.
    pub about: String,
    /// case − baseline, in the record's unit.
    pub difference: String,
    /// Interval of the difference; empty without one.
    pub difference_interval: String,
    /// `+0.4 %`.
    pub relative: String,
    /// Interval of `relative`, or a remark that there is none; empty for counts, which have none.
    pub interval: String,
    /// Verdict in words.
    pub verdict: String,
    /// Tone of the verdict.
    pub tone: Tone,
}

/// The cases by heading; headings in the order of their first case.
pub fn groups(record: &Record) -> Vec<RowGroup<CaseRow<'_>>> {
    let mut groups: Vec<RowGroup<CaseRow<'_>>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for case in &record.cases {
        let place = *places.entry(&case.group).or_insert_with(|| {
            let name = group_heading(&case.group, &case.name);
            groups.push(RowGroup { name, rows: vec![] });
            groups.len() - 1
        });
        groups[place].rows.push(case_row(case, record));
    }
    groups
}

/// A group's name with a capital; unchanged where `case`, one of its cases, is named after it, as those of a program are.
pub(crate) fn group_heading(group: &str, case: &str) -> String {
    let rest = case.strip_prefix(group).filter(|_| !group.is_empty());
    if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        line(group)
    } else {
        heading(group)
    }
}

/// A heading with a capital, or a word where it is empty.
pub fn heading(group: &str) -> String {
    let group = line(group);
    let mut letters = group.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => "Cases".to_owned(),
    }
}

/// Returns a case as text.
pub fn case_row<'a>(case: &'a CaseRecord, record: &Record) -> CaseRow<'a> {
    CaseRow {
        case,
        name: line(&case.name),
        cost: CostText::raw(case, record),
        net: match cost::valid(case) {
            Some(_) => cost::net(case.net.as_ref(), record.unit),
            None => String::new(),
        },
        notes: notes::notes(case, record),
    }
}

/// The comparisons, in the record's order.
pub fn pairs(record: &Record) -> Vec<PairRow<'_>> {
    let row = |comparison| pair_row(comparison, record);
    record.comparisons.iter().map(row).collect()
}

fn pair_row<'a>(comparison: &'a ComparisonRecord, record: &Record) -> PairRow<'a> {
    let decimals = estimate::decimals(comparison.difference, comparison.ci95, record.unit);
    let difference_interval = comparison
        .ci95
        .map(|ci95| number::signed_interval(ci95, decimals));
    let (relative, interval) =
        verdict::with_interval(comparison.relative, comparison.relative_ci95, record.unit);
    let (verdict, tone) = verdict::sentence(comparison, record);
    PairRow {
        comparison,
        case: line(&comparison.case),
        baseline: line(&comparison.baseline),
        about: line(&comparison.about),
        difference: number::signed(comparison.difference, decimals),
        difference_interval: difference_interval.unwrap_or_default(),
        relative,
        interval,
        verdict,
        tone,
    }
}
