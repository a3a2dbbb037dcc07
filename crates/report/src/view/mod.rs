//! A record as sections of table, figure and prose, by the layout that its experiment declared.
//!
//! Only this file asks for the layout. The files beside it make the sections of one layout each.

mod facts;
mod flat;
pub mod grid;

use self::grid::GridTable;
use crate::{
    notes,
    rows::{self, CaseRow, PairRow, RowGroup},
    scaling::{self, Chart},
    section::{Detail, ProblemText, Prose, Section, View, shorten, table_sections},
    single_case,
    style::Tone,
    summary, target, warnings,
    workload::{self, WorkloadReport},
};
use bpfcost_record::{Record, Status};
use bpfcost_text::{line, number::MISSING};

/// Layout of the cases of a record.
pub(crate) enum ViewLayout<'a> {
    Flat,
    Grid(GridTable<'a>),
    Curves(Chart<'a>),
    /// States of a server, with probes and without.
    Workload(WorkloadReport<'a>),
}

impl<'a> ViewLayout<'a> {
    /// Returns the layout of a record; flat where its cases do not fit the one that it declares.
    pub(crate) fn new(record: &'a Record) -> Self {
        let workload = || WorkloadReport::new(record).map(ViewLayout::Workload);
        let grid = || GridTable::new(record).map(ViewLayout::Grid);
        let curves = || Chart::new(record).map(ViewLayout::Curves);
        let layout = workload().or_else(grid).or_else(curves);
        layout.unwrap_or(ViewLayout::Flat)
    }

    /// The result in a sentence without its full stop; `None` where cases are independent of each other.
    pub(crate) fn sentence(&self) -> Option<String> {
        match self {
            ViewLayout::Flat => None,
            ViewLayout::Grid(grid_table) => grid::sentence(grid_table),
            ViewLayout::Curves(chart) => scaling::sentence(chart),
            ViewLayout::Workload(report) => workload::sentence(report),
        }
    }

    /// The first sections: tables and figures of this layout.
    fn first_sections(&self, detail: Detail) -> Vec<Section> {
        match self {
            ViewLayout::Flat => Vec::new(),
            ViewLayout::Grid(grid_table) => grid_table.sections(detail),
            ViewLayout::Curves(chart) => chart.sections(detail),
            ViewLayout::Workload(report) => report.sections(detail),
        }
    }

    /// Cases and comparisons that the first sections do not show, or all of them.
    fn others(
        &self,
        record: &'a Record,
        all: bool,
    ) -> (Vec<RowGroup<CaseRow<'a>>>, Vec<PairRow<'a>>) {
        match self {
            // The tables of workloads have every value.
            ViewLayout::Workload(_) => (Vec::new(), Vec::new()),
            ViewLayout::Grid(_) if !all => (Vec::new(), Vec::new()),
            ViewLayout::Curves(chart) if !all => (chart.others(), chart.other_pairs()),
            _ => (rows::groups(record), rows::pairs(record)),
        }
    }
}

/// Returns true if trials are windows of a workload.
pub(crate) fn is_workload(record: &Record) -> bool {
    record.layout.times_windows()
}

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
