//! A table of cases: the cost of each, how its trials are distributed, and the comparisons.

use bpfcost_stats::sample::{epoch_medians, median};

use crate::{
    captions,
    cost::{self, valid},
    estimate, figure, notes,
    rows::{CaseRow, PairRow, RowGroup},
    section::{Detail, Figure, Figures, Order, Section},
    style::Tone,
    table::{Cell, Column, Head, Table},
    target, trials,
};
use bpfcost_model::Unit;
use bpfcost_record::{CaseRecord, Raw, Record, Status};
use bpfcost_text::{line, number};

/// More cases than this get no plot of their trials, but those whose intervals are widest.
const MAX_STRIPS: usize = 240;
/// Behind the number of a CPU in the name of a secondary value.
const PER_CPU: &str = "_ns_per_op";
/// The secondary value with the sum over CPUs.
const TOTAL: &str = "ops_per_s";
/// The observed fact with what an operation returned, for people.
const RETURNED: &str = "returned";
/// The secondary value with the part of the time in which all CPUs ran.
const OVERLAP: &str = "overlap";

fn name_column<'a>(head: &str) -> Column<'static, CaseRow<'a>> {
    Head::words(head).cells(|row: &CaseRow<'_>| Cell::words(&row.name).toned(row.cost.tone))
}

fn by_heading<'a>(
    columns: Vec<Column<'_, CaseRow<'a>>>,
    groups: &[RowGroup<CaseRow<'a>>],
) -> Table {
    let groups = groups.iter();
    Table::by_group(
        columns,
        groups.map(|group| (group.name.clone(), &group.rows)),
    )
}

/// Cost of each case, with its spread, its net cost, and notes.
pub(crate) fn costs(
    groups: &[RowGroup<CaseRow<'_>>],
    record: &Record,
    detail: Detail,
) -> Option<Table> {
    let (unit, page) = (record.unit, detail == Detail::Page);
    let low = |raw: &Raw| Some(raw.ci95.or(raw.loads)?[0]);
    let columns = vec![
        name_column("case"),
        Head::number(unit.to_string()).cells(|row: &CaseRow<'_>| {
            let value = valid(row.case).map(|raw| raw.value);
            Cell::keyed(&row.cost.value, value).toned(row.cost.tone)
        }),
        Head::words(cost::spread_heading(unit)).cells(|row: &CaseRow<'_>| {
            Cell::keyed(&row.cost.spread, valid(row.case).and_then(low))
        }),
        Head::number("as found").cells(|row: &CaseRow<'_>| {
            let known = row.case.undisturbed.as_ref().zip(valid(row.case));
            known.map_or_else(Cell::default, |(known, raw)| {
                Cell::number(cost::as_found(known.as_found, raw.value), known.as_found)
            })
        }),
        Head::number("undisturbed")
            .cells(|row: &CaseRow<'_>| {
                let share = row.case.undisturbed.as_ref().map(|known| known.share);
                Cell::number_or_empty(share, number::round_percent)
            })
            .only(page),
        Head::number(if unit.is_counted() { "apart" } else { "±" })
            .cells(|row: &CaseRow<'_>| {
                let width = valid(row.case).and_then(|raw| estimate::relative_spread(raw, unit));
                Cell::number_or_empty(width, number::percent)
            })
            .only(page),
        Head::words("net").cells(move |row: &CaseRow<'_>| net_cell(row, unit, page)),
        Head::words(RETURNED).cells(|row: &CaseRow<'_>| {
            let observed = row.case.observed.as_ref();
            let returned = observed.and_then(|facts| facts.get(RETURNED)?.as_str());
            Cell::words(returned.map_or_else(String::new, line))
        }),
        Head::words("note").cells(move |row: &CaseRow<'_>| note_cell(row, detail)),
    ];
    let table = by_heading(columns, groups).filled()?;
    let mut captions = if page {
        vec![captions::costs(record)]
    } else {
        captions::below_costs(record)
    };
    captions.extend(captions::memory(record).filter(|_| !page));
    if detail == Detail::Brief && table.rows.len() < record.cases.len() {
        // The table before this one has them.
        captions.clear();
    }
    Some(Table {
        title: title(detail, "All costs"),
        captions,
        ..table
    })
}

fn net_cell(row: &CaseRow<'_>, unit: Unit, page: bool) -> Cell {
    let Some(net) = valid(row.case).and(row.case.net.as_ref()) else {
        return Cell::words(&row.net);
    };
    let text = if page && !unit.is_counted() {
        format!("{} {}", row.net, cost::net_interval(net))
    } else {
        row.net.clone()
    };
    Cell::number(text.trim(), net.value.unwrap_or(net.bracket[0]))
}

fn note_cell(row: &CaseRow<'_>, detail: Detail) -> Cell {
    let tone = row.notes.first().map_or(Tone::Plain, |note| note.tone);
    match (row.cost.tone, detail) {
        // Problems stand below.
        (Tone::Alarm, Detail::Brief | Detail::Full) => Cell::words("see below").toned(tone),
        _ => Cell::words(notes::joined(&row.notes)).toned(tone),
    }
}

/// A title where tables need one to be found.
fn title(detail: Detail, title: impl Into<String>) -> String {
    match detail {
        Detail::Page => title.into(),
        _ => String::new(),
    }
}

/// Cost on each CPU, where several ran a case at once.
pub(crate) fn cpus(record: &Record, detail: Detail) -> Option<Table> {
    let cpus = record
        .asked
        .cpus
        .iter()
        .filter(|_| record.asked.cpus.len() > 1);
    let middle = |case: &CaseRecord, name: &str| median(&case.secondary.get(name)?.concat());
    let plain = |value: f64| number::fixed(value, number::plain_decimals(value));
    let column = |head: String, name: String, show: fn(f64) -> String| {
        Head::number(head)
            .cells(move |case: &CaseRecord| Cell::number_or_empty(middle(case, &name), show))
    };
    let each = cpus.map(|cpu| column(format!("CPU {cpu}"), format!("cpu{cpu}{PER_CPU}"), plain));
    let mut columns: Vec<Column<'_, CaseRecord>> = each.collect();
    if columns.is_empty() {
        return None;
    }
    let corner = Head::words(format!("{} on each CPU", record.unit));
    columns.insert(
        0,
        corner.cells(|case: &CaseRecord| Cell::words(line(&case.name))),
    );
    let total = |ops: f64| {
        let ops = ops / 1e6;
        format!("{} M/s", number::fixed(ops, number::plain_decimals(ops)))
    };
    columns.push(column("together".to_owned(), TOTAL.to_owned(), total));
    columns.push(column(
        "overlap".to_owned(),
        OVERLAP.to_owned(),
        number::round_percent,
    ));
    let cases = record.cases.iter();
    let ran = cases.filter(|case| case.status == Status::Ok && case.secondary.contains_key(TOTAL));
    let table = Table::new(columns, ran).filled()?;
    Some(Table {
        title: title(detail, "Each CPU, and all together"),
        captions: vec![
            "Medians over trials. together: the sum of the rates of all CPUs. overlap: the share of the time in \
             which all of them ran."
                .to_owned(),
        ],
        ..table
    })
}

/// Distribution of the batch means of every case.
pub(crate) fn batches(
    groups: &[RowGroup<CaseRow<'_>>],
    record: &Record,
    detail: Detail,
) -> Option<Table> {
    let counted = record.unit.is_counted();
    // The spread of trials to which ticks add instructions is for pages alone.
    let spread = !counted || detail == Detail::Page;
    let number = |value: f64, raw: &Raw| {
        if counted {
            estimate::value(value, None, record.unit)
        } else {
            // Two digits of the standard deviation are all the precision that these have.
            number::fixed(value, number::decimals(raw.stddev).min(2))
        }
    };
    let count = |value: f64, _: &Raw| number::count(value as u64);
    let stddev = |value: f64, _: &Raw| number::fixed(value, number::decimals(value).min(3));
    let share = |value: f64, _: &Raw| number::percent(value);
    type RawField = fn(&Raw) -> f64;
    type Show<'a> = &'a dyn Fn(f64, &Raw) -> String;
    let loads = if counted { "loads" } else { "epochs" };
    let values: [(&str, RawField, Show<'_>, bool); 10] = [
        (loads, |raw| raw.epochs as f64, &count, true),
        ("n", |raw| raw.trials as f64, &count, true),
        ("median", |raw| raw.p50, &number, true),
        ("stddev", |raw| raw.stddev, &stddev, spread),
        ("CV", |raw| raw.cv, &share, spread),
        ("min", |raw| raw.min, &number, true),
        ("p90", |raw| raw.p90, &number, true),
        ("p99", |raw| raw.p99, &number, true),
        ("max", |raw| raw.max, &number, true),
        ("outliers", |raw| raw.outliers as f64, &count, spread),
    ];
    let mut columns = vec![name_column(trials::words(record).name)];
    columns.extend(values.into_iter().map(|(name, value, show, wanted)| {
        let cell = move |row: &CaseRow<'_>| {
            let shown = |raw: &Raw| Cell::number(show(value(raw), raw), value(raw));
            valid(row.case).map_or_else(Cell::default, shown)
        };
        Head::number(name).cells(cell).only(wanted)
    }));
    let mut measured = groups.to_vec();
    for group in &mut measured {
        group.rows.retain(|row| valid(row.case).is_some());
    }
    let table = by_heading(columns, &measured).filled()?;
    let mut captions = vec![trials::words(record).percentiles.to_owned()];
    if counted {
        captions.extend(record.cases.iter().filter_map(by_load))
    } else {
        captions.push(trials::spread_caption(record))
    }
    Some(Table {
        title: title(detail, format!("All {}", trials::words(record).name)),
        captions,
        ..table
    })
}

/// The values that a count had, where it goes by the load.
fn by_load(case: &CaseRecord) -> Option<String> {
    cost::range(case).filter(|_| case.status == Status::Ok)?;
    let mut values: Vec<f64> = epoch_medians(&case.samples);
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let shown = |value: &f64| number::fixed(*value, number::counted_decimals(*value));
    let mut texts: Vec<String> = values.iter().map(shown).collect();
    texts.dedup();
    let name = line(&case.name);
    Some(format!("{name} by load: {}", texts.join(" · ")))
}

/// Comparisons; counts have no intervals.
pub(crate) fn pairs(pairs: &[PairRow<'_>], record: &Record, detail: Detail) -> Option<Table> {
    let page = detail == Detail::Page;
    let roomy = matches!(detail, Detail::Document | Detail::Page);
    let low = |ends: Option<[f64; 2]>| ends.map(|ends| ends[0]);
    let interval = || Head::words("95\u{A0}% interval").joined();
    let relative = if record.unit.is_counted() {
        "relative"
    } else {
        "relative, 95 %"
    };
    let columns = vec![
        Head::words("case").cells(|pair: &PairRow<'_>| Cell::words(&pair.case)),
        Head::words("against").cells(|pair: &PairRow<'_>| Cell::words(&pair.baseline)),
        Head::number(record.unit.to_string())
            .cells(|pair: &PairRow<'_>| Cell::number(&pair.difference, pair.comparison.difference)),
        interval()
            .cells(|pair: &PairRow<'_>| {
                Cell::keyed(&pair.difference_interval, low(pair.comparison.ci95))
            })
            .only(roomy),
        Head::number(relative)
            .cells(|pair: &PairRow<'_>| Cell::number(&pair.relative, pair.comparison.relative)),
        interval().cells(|pair: &PairRow<'_>| {
            Cell::keyed(&pair.interval, low(pair.comparison.relative_ci95))
        }),
        Head::words("verdict")
            .cells(|pair: &PairRow<'_>| Cell::words(&pair.verdict).toned(pair.tone)),
        Head::words("question")
            .cells(|pair: &PairRow<'_>| Cell::words(&pair.about))
            .only(page),
    ];
    let table = Table::new(columns, pairs).filled()?;
    Some(Table {
        title: title(detail, "All comparisons"),
        captions: vec![captions::pairs(record)],
        ..table
    })
}

/// Costs as figures: one for each heading, because sizes differ.
pub(crate) fn intervals(groups: &[RowGroup<CaseRow<'_>>], record: &Record) -> Option<Section> {
    let figure = |group: &RowGroup<CaseRow<'_>>| Figure {
        title: group.name.clone(),
        markup: figure::interval::render(group, record),
    };
    let below = [captions::session(record), target::identity(record)];
    let figures = Figures::titled(
        "Costs",
        figure::interval::key(record),
        "Each group has its own axis, from zero.".to_owned(),
        groups.iter().map(figure).collect(),
    )?;
    Some(Section::Figures(Figures {
        below: below.into_iter().flatten().collect(),
        ..figures
    }))
}

pub(crate) fn forest(pairs: &[PairRow<'_>], record: &Record) -> Option<Section> {
    let figure = (!pairs.is_empty()).then(|| figure::forest::render(pairs, record).into());
    let figures = Figures::titled(
        "Differences",
        figure::forest::key(record),
        "Relative differences, with their intervals. The axis is linear near zero and logarithmic beyond."
            .to_owned(),
        figure.into_iter().collect(),
    );
    figures.map(Section::Figures)
}

/// Plots of trials, with the caption that explains them.
pub(crate) fn strips(record: &Record) -> Option<Section> {
    let mut cases: Vec<&CaseRecord> = record.cases.iter().collect();
    cases
        .retain(|case| case.status == Status::Ok && case.samples.iter().any(|one| !one.is_empty()));
    let mut caption = format!(
        "Each trial is {}. Trials are in the order of the run, epoch by epoch; none is left out. Where they are \
         dense, a stroke covers them, darker over their middle half. The line is the estimate, the band its \
         interval.",
        trials::words(record).one
    );
    if record.has_undisturbed() {
        caption += " Trials are as found; if the cost is known undisturbed, the line is the undisturbed cost.";
    }
    if cases.len() > MAX_STRIPS {
        caption += &format!(
            " Of {} cases, the {MAX_STRIPS} with the widest intervals are shown; the table below has all.",
            number::count(cases.len() as u64)
        );
        let width = |case: &CaseRecord| {
            let raw = case.raw.as_ref();
            raw.and_then(estimate::half_width).unwrap_or(f64::INFINITY)
        };
        cases.sort_by(|a, b| width(b).total_cmp(&width(a)));
        cases.truncate(MAX_STRIPS);
    }
    let figures = cases
        .into_iter()
        .filter_map(|case| figure::trials::render(case, record));
    let figures = figures.map(Figure::from).collect();
    let figures = Figures::titled("Every trial", String::new(), caption, figures)?;
    Some(Section::Figures(Figures {
        order: Order::Strips,
        ..figures
    }))
}
