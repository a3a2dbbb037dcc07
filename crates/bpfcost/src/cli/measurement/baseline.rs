//! An earlier record with which a run is compared when it has ended.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Options, RecordFormat};
use crate::cli::{
    exit::Exit,
    output::{answer, note},
    parse, store,
};
use bpfcost_console::compare;
use bpfcost_measure::Plan;
use bpfcost_record::{GateOptions, Record, comparable};

/// What to compare the result with.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct BaselineArgs {
    /// Compare the result with this record, like `bpfcost compare`: a gate
    ///
    /// FILE is a record, or a folder of records; those of the same experiments and targets count. The exit code is that of
    /// the gate: 1 if a case costs more beyond noise and by more than the threshold, 3 if a case is invalid.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Let costs rise by up to this much from the baseline [default: as `bpfcost compare`]
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    #[arg(requires = "baseline", hide_short_help = true)]
    threshold: Option<f64>,
    /// Also fail if a rise of this size from the baseline could have gone unnoticed
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    #[arg(requires = "baseline", hide_short_help = true)]
    must_see: Option<f64>,
}

pub(in crate::cli) struct Baseline<'a> {
    path: &'a Path,
    records: Vec<Record>,
    asked: GateOptions,
}

impl BaselineArgs {
    /// Loads the baseline, if one was given. It must be comparable with what these plans measure, which is better said
    /// before than after.
    pub(in crate::cli) fn load<'p>(
        &self,
        plans: impl IntoIterator<Item = &'p Plan>,
    ) -> Result<Option<Baseline<'_>>> {
        let Some(path) = &self.baseline else {
            return Ok(None);
        };
        let asked = GateOptions {
            threshold: self.threshold,
            must_see: self.must_see,
        };
        let mut records = compare::load(path)?;
        let mut planned = Vec::new();
        for plan in plans {
            comparable(&records, plan, asked)?;
            planned.push((&plan.experiment, &plan.target));
        }
        records.retain(|record| planned.contains(&(&record.experiment, &record.target)));
        Ok(Some(Baseline {
            path,
            records,
            asked,
        }))
    }
}

impl Baseline<'_> {
    /// Compares new records with it, shows the changes, and returns how the gate ended.
    pub(super) fn compare(&self, new: &[Record], options: &Options) -> Result<Exit> {
        let history = store::sessions();
        let changes = compare::changes(&self.records, new, self.asked, history.as_ref())?;
        let markdown = || format!("\n{}", compare::markdown(&changes));
        options.summary.append(markdown)?;
        match options.format {
            RecordFormat::Table => answer(format_args!("\n{}", compare::terminal(&changes)))?,
            RecordFormat::Markdown => answer(format_args!("{}", markdown()))?,
            _ => note!(
                "the comparison is in the exit code only; to see it: bpfcost compare {} RECORD",
                self.path.display()
            ),
        }
        Ok(changes.gate.into())
    }
}
