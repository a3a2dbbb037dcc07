//! A record as sections of table, figure and prose, by the layout that its experiment declared.
//!
//! Only `layout.rs` asks for the layout. The files beside it make the sections of one layout each.

mod facts;
pub(crate) mod flat;
pub mod grid;
pub(crate) mod layout;

use self::layout::ViewLayout;
use crate::{
    notes, rows,
    section::{Detail, ProblemText, Prose, Section, View, shorten, table_sections},
    single_case,
    style::Tone,
    summary, target, warnings,
};
use bpfcost_record::{Record, Status};
use bpfcost_text::{line, number::MISSING};

/// Returns the view of a record, with its experiment's own sections.
pub fn record_view(record: &Record, detail: Detail, own: Vec<Section>) -> View {
    let layout = ViewLayout::new(record);
    let mut failed = problems(record);
    failed.extend(unknown(record));
    let warnings = warnings::warnings(record, detail);
    failed.extend((!warnings.lines.is_empty()).then_some(Section::Warnings(warnings)));
    let all = matches!(detail, Detail::Full | Detail::Page);
    let (groups, pairs) = layout.others(record, all);
    let every = all.then(|| rows::groups(record));
    let tables = [
        flat::costs(&groups, record, detail),
        flat::cpus(record, detail),
        every.and_then(|groups| flat::batches(&groups, record, detail)),
        flat::pairs(&pairs, record, detail),
    ];
    let alone = (detail == Detail::Full).then(|| single_case::tables(record));
    let tables = tables.into_iter().flatten();
    let tables = table_sections(tables.chain(alone.into_iter().flatten()));
    let lead = layout.first_sections(detail);
    let mut sections = match detail {
        Detail::Brief | Detail::Document | Detail::Full => [lead, tables, own, failed].concat(),
        Detail::Page => {
            let intervals = flat::intervals(&layout.others(record, false).0, record);
            let forest = flat::forest(&rows::pairs(record), record);
            let figures = forest.into_iter().chain(flat::strips(record)).collect();
            let (above, below) = (facts::above(record), vec![facts::below(record)]);
            let lead = lead.into_iter().chain(intervals).collect();
            [above, failed, lead, own, figures, tables, below].concat()
        }
    };
    if detail == Detail::Brief {
        shorten(&mut sections);
    }
    View {
        title: format!("{} on {}", line(&record.experiment), target::label(record)),
        started: line(&record.started),
        summary: summary::of_layout(record, &layout),
        sections,
        origin: origin(record),
        ..View::default()
    }
}

/// Remark that a record is not laid out as it declares.
fn unknown(record: &Record) -> Option<Section> {
    let name = line(record.layout.newer()?);
    Some(Section::Prose(Prose {
        paragraphs: vec![format!(
            "This record uses the layout `{name}` of a newer bpfcost. This view lists every case by itself."
        )],
        tone: Tone::Open,
        ..Prose::default()
    }))
}

fn problems(record: &Record) -> Vec<Section> {
    let cases = record.cases.iter();
    let invalid = cases.filter(|case| case.status == Status::Invalid);
    let lines = invalid.flat_map(|case| notes::problems(case, record));
    lines
        .map(|(problem, details)| Section::Problem(ProblemText { problem, details }))
        .collect()
}

/// The program, the machine and the seed of a record, in a line.
fn origin(record: &Record) -> String {
    let machine = &record.machine;
    let kernel = match machine.kernel.as_str() {
        "" => MISSING.to_owned(),
        kernel => line(kernel),
    };
    let emulator = machine.emulator.as_deref();
    let emulator = emulator.map_or_else(String::new, |one| format!(" in {}", line(one)));
    format!(
        "bpfcost {}, {}, Linux {kernel} on {}{emulator}, seed {}.",
        line(&record.bpfcost),
        line(&record.started),
        line(&machine.cpu),
        record.seed
    )
}
