//! The layout of a record's cases: which kind of tables and figures shows them.

use super::grid::{self, GridTable};
use crate::{
    rows::{self, CaseRow, PairRow, RowGroup},
    scaling::{self, Chart},
    section::{Detail, Section},
    workload::{self, WorkloadReport},
};
use bpfcost_record::Record;

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
    pub(super) fn first_sections(&self, detail: Detail) -> Vec<Section> {
        match self {
            ViewLayout::Flat => Vec::new(),
            ViewLayout::Grid(grid_table) => grid_table.sections(detail),
            ViewLayout::Curves(chart) => chart.sections(detail),
            ViewLayout::Workload(report) => report.sections(detail),
        }
    }

    /// Cases and comparisons that the first sections do not show, or all of them.
    pub(super) fn others(
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
