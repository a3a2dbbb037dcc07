//! What the HTML page shows of a record, as the template takes it: texts, figures, tables.

mod blocks;
mod facts;
mod matrix;
mod scaling;
mod sheet;
mod tables;
mod workload;

use serde::Serialize;

pub(super) use self::matrix::MatrixSection;
use self::{
    blocks::BlockPart, facts::Fact, scaling::ScalingPart, sheet::SheetPart, tables::Table,
    workload::WorkloadPart,
};
use crate::{
    record::{CaseRecord, Record, Status},
    report::{
        figure, markdown, number, parts,
        rate::{self, Load},
        rows,
        scaling::Chart,
        sheet::Sheet,
        summary, target, text, warnings, words,
        workload::Overhead,
    },
};

/// More cases than this get no plot of their trials, but those whose intervals are widest.
const MOST_STRIPS: usize = 240;

/// One record.
#[derive(Serialize)]
pub(super) struct Section {
    id: String,
    title: String,
    started: String,
    summary: String,
    facts: Vec<Fact>,
    invalid: Vec<Invalid>,
    warnings: Vec<String>,
    any_modes: bool,
    /// All cells of a grid, in place of the groups.
    sheet: Option<SheetPart>,
    groups: Vec<GroupFigure>,
    /// The curves, in place of the groups that make them.
    scaling: Option<ScalingPart>,
    /// A workload, in place of the groups.
    workload: Option<WorkloadPart>,
    /// Words that differ between times and counts.
    spread_key: &'static str,
    captions: Vec<String>,
    target_note: Option<String>,
    forest_caption: &'static str,
    forest: Option<String>,
    margin: Option<String>,
    pair_caption: String,
    strips: Vec<String>,
    strip_caption: String,
    /// The parts of what attached programs cost, and what they cost at a rate.
    blocks: Vec<BlockPart>,
    tables: Vec<Table>,
    machine: Vec<Fact>,
    method: Vec<String>,
    origin: String,
}

#[derive(Serialize)]
struct Invalid {
    problem: String,
    detail: String,
}

#[derive(Serialize)]
struct GroupFigure {
    name: String,
    figure: String,
}

impl Section {
    /// The section of the record with this index.
    pub(super) fn new((index, record): (usize, &Record), load: Load) -> Self {
        let groups = rows::groups(record);
        let pairs = rows::pairs(record);
        let (strips, strip_caption) = strips(record);
        let margin = record.asked.margin;
        let cells = Sheet::new(record);
        let chart = Chart::new(record);
        let figured = chart.as_ref().map(Chart::others);
        let mut tables: Vec<Table> = cells.iter().map(sheet::table).collect();
        tables.extend(chart.iter().map(scaling::table));
        match record.layout.workload() {
            Some(_) => tables.extend(workload::tables(record)),
            None => tables.push(tables::cost_table(&groups, record)),
        }
        tables.extend(tables::cpu_table(record));
        if !pairs.is_empty() {
            tables.push(tables::pair_table(&pairs, record));
        }
        tables.push(tables::batch_table(&groups, record));
        Section {
            id: format!("run-{}", index + 1),
            title: format!(
                "{} on {}",
                text::line(&record.experiment),
                target::label(record)
            ),
            started: text::line(&record.started),
            summary: summary::sentence(record),
            facts: facts::facts(record),
            invalid: invalid(record),
            warnings: warnings::lines(record),
            any_modes: record
                .cases
                .iter()
                .filter_map(|case| case.raw.as_ref())
                .any(|raw| !raw.modes.is_empty()),
            sheet: cells.as_ref().map(SheetPart::new),
            scaling: chart.as_ref().map(ScalingPart::new),
            workload: Overhead::new(record).as_ref().map(WorkloadPart::new),
            groups: figured
                .as_ref()
                .unwrap_or(&groups)
                .iter()
                .filter(|_| cells.is_none() && record.layout.workload().is_none())
                .map(|group| GroupFigure {
                    name: group.name.clone(),
                    figure: figure::interval::render(group, record),
                })
                .collect(),
            spread_key: match record.unit.is_counted() {
                true => "count and its range over loads",
                false => "estimate and 95\u{A0}% interval",
            },
            captions: [words::session_caption(record), target::identity(record)]
                .into_iter()
                .flatten()
                .collect(),
            target_note: target::unit_caption(record),
            forest_caption: match record.unit.is_counted() {
                true => "Relative difference of counts.",
                false => "Relative difference with its 95\u{A0}% interval.",
            },
            forest: (!pairs.is_empty()).then(|| figure::forest::render(&pairs, record)),
            margin: (margin > 0.0).then(|| number::round_percent(margin)),
            pair_caption: words::pair_caption(record),
            strips,
            strip_caption,
            blocks: parts::blocks(record)
                .into_iter()
                .chain(rate::blocks(record, load))
                .map(BlockPart::new)
                .collect(),
            tables,
            machine: facts::machine(record),
            method: method(record),
            origin: markdown::origin(record),
        }
    }
}

fn invalid(record: &Record) -> Vec<Invalid> {
    record
        .cases
        .iter()
        .filter(|case| case.status == Status::Invalid)
        .flat_map(|case| words::invalid_lines(case, record))
        .map(|(problem, details)| Invalid {
            problem,
            detail: details.join("\n"),
        })
        .collect()
}

/// The plots of trials, and what to know to read them.
fn strips(record: &Record) -> (Vec<String>, String) {
    let mut cases: Vec<&CaseRecord> = record
        .cases
        .iter()
        .filter(|case| {
            case.status == Status::Ok && case.samples.iter().any(|epoch| !epoch.is_empty())
        })
        .collect();
    let trial = match (record.unit.is_counted(), record.layout.workload().is_some()) {
        (true, _) => "what one batch adds over another half as long",
        (false, true) => "one window of the workload",
        (false, false) => "one batch",
    };
    let mut caption = format!(
        "Each trial is {trial}, in the order in which they ran: left to right by \
                       epoch, each plot from its own smallest to its largest trial, none left out. "
    );
    caption += match record.unit.is_counted() {
        true => "The line is the count.",
        false => "The line is the estimate, the band its interval.",
    };
    let trials = |case: &&CaseRecord| case.samples.iter().map(Vec::len).sum::<usize>();
    if cases
        .iter()
        .map(trials)
        .any(|trials| trials > figure::trials::DOTS)
    {
        caption += " Where a case has many trials, those that fall together share a cell, darker for \
                    more; a single far one still has its own.";
    }
    if cases.len() > MOST_STRIPS {
        caption += &format!(
            " Of {} cases, the {MOST_STRIPS} with the widest intervals are shown; the table below has \
             all.",
            number::count(cases.len() as u64)
        );
        let width = |case: &CaseRecord| {
            let raw = case.raw.as_ref();
            raw.and_then(words::half_width).unwrap_or(f64::INFINITY)
        };
        cases.sort_by(|a, b| width(b).total_cmp(&width(a)));
        cases.truncate(MOST_STRIPS);
    }
    let strips = cases
        .into_iter()
        .filter_map(|case| figure::trials::render(case, record))
        .collect();
    (strips, caption)
}

/// The method in a few paragraphs.
fn method(record: &Record) -> Vec<String> {
    if record.layout.workload().is_some() {
        return workload::method(record);
    }
    let margin = number::round_percent(record.asked.margin);
    let mut paragraphs = vec![
        "An epoch loads everything afresh and runs every case a few times, in an order drawn anew each \
         round."
            .to_owned(),
    ];
    if record.unit.is_counted() {
        paragraphs.push(
            "The emulated CPU's clock counts the instructions that it retires. A trial times some \
             operations and twice as many, and takes the difference, so that what a batch costs by itself \
             drops out. The cost is the value on which most trials agree (where they agree on none, \
             their mean). It repeats, so it has no interval; what it does from \
             load to load is told instead."
                .to_owned(),
        );
        paragraphs.push(
            "insn are not ns. An instruction that waits for memory counts as much as one that does not: \
             caches, branches and TLBs are not modelled. Counts are for comparing the same path with \
             itself, from one version or kernel to the next."
                .to_owned(),
        );
    } else {
        paragraphs.push(
            "Each case is reduced to its median in the epoch, and only epochs are inferred from: trials \
             within one share its luck."
                .to_owned(),
        );
        paragraphs.push(format!(
            "Estimates are Hodges–Lehmann, intervals come from the exact signed-rank test over epochs. \
             Comparisons are taken within epochs. A pair is the same where its 90 % interval lies within \
             ±{margin}; else it costs more or less where the test says so with all pairs allowed for; \
             else it is unresolved, which is not the same as equal."
        ));
        paragraphs.push(
            "The harness is measured too. Overlap in the CPU makes costs not add up, so the net is a range: \
             the reset taken as it costs within the case, and as it costs alone. Every trial proves itself \
             while it is timed; a case that fails once has no number."
                .to_owned(),
        );
    }
    paragraphs
}
