//! A table of cases: the cost of each, how its trials are distributed, and the comparisons.

use bpfcost_stats::sample::{epoch_medians, median};

use crate::{
    figure,
    rows::{CaseRow, PairRow, RowGroup},
    section::{Detail, Figure, Figures, Order, Section},
    style::Tone,
    table::{Cell, Column, Head, Table},
    target, trials, words,
};
use bpfcost_record::{CaseRecord, Raw, Record, Status};
use bpfcost_text::{self, number};

/// More cases than this get no plot of their trials, but those whose intervals are widest.
const MOST_STRIPS: usize = 240;
/// Behind the number of a CPU in the name of a secondary value.
const PER_CPU: &str = "_ns_per_op";
/// The secondary value with the sum over CPUs.
const TOTAL: &str = "ops_per_s";
/// The observed fact with what an operation returned, for people.
const RETURNED: &str = "returned";
/// The secondary value with the part of the time in which all CPUs ran.
const OVERLAP: &str = "overlap";

/// The numbers of a case that count.
fn raw<'a>(row: &CaseRow<'a>) -> Option<&'a Raw> {
    let raw = row.case.raw.as_ref();
    raw.filter(|_| row.case.status == Status::Ok)
}

/// The tables of groups.
fn grouped<'a>(columns: Vec<Column<'_, CaseRow<'a>>>, groups: &[RowGroup<'a>]) -> Table {
    let groups = groups.iter();
    Table::by_group(
        columns,
        groups.map(|group| (group.name.clone(), &group.rows)),
    )
}

/// What cases cost.
pub(crate) fn costs(groups: &[RowGroup<'_>], record: &Record, detail: Detail) -> Option<Table> {
    let (unit, page) = (record.unit, detail == Detail::Page);
    let low = |raw: &Raw| Some(raw.ci95.or(raw.loads)?[0]);
    let net = |row: &CaseRow<'_>| {
        let net = row.case.net.as_ref().filter(|_| raw(row).is_some());
        let text = if page && !unit.is_counted() {
            format!("{} {}", row.net, words::net_interval(net))
        } else {
            row.net.clone()
        };
        Cell::keyed(
            text.trim(),
            net.map(|net| net.value.unwrap_or(net.bracket[0])),
        )
    };
    let note = |row: &CaseRow<'_>| {
        let tone = row.notes.first().map_or(Tone::Plain, |note| note.tone);
        match (row.tone, detail) {
            // What failed stands below.
            (Tone::Alarm, Detail::Brief | Detail::Full) => Cell::words("see below").toned(tone),
            _ => Cell::words(row.note()).toned(tone),
        }
    };
    let columns = vec![
        Head::words("case").of(|row: &CaseRow<'_>| Cell::words(&row.name).toned(row.tone)),
        Head::number(unit.to_string()).of(|row: &CaseRow<'_>| {
            Cell::keyed(&row.cost, raw(row).map(|raw| raw.value)).toned(row.tone)
        }),
        Head::words(words::spread_heading(unit))
            .of(|row: &CaseRow<'_>| Cell::keyed(&row.interval, raw(row).and_then(low))),
        Head::number("as found").of(|row: &CaseRow<'_>| {
            let known = row.case.undisturbed.as_ref().zip(raw(row));
            known.map_or_else(Cell::default, |(known, raw)| {
                Cell::number(words::as_found(known.as_found, raw.value), known.as_found)
            })
        }),
        Head::number("undisturbed")
            .of(|row: &CaseRow<'_>| {
                let share = row.case.undisturbed.as_ref().map(|known| known.share);
                Cell::of(share, number::round_percent)
            })
            .only(page),
        Head::number(if unit.is_counted() { "apart" } else { "±" })
            .of(|row: &CaseRow<'_>| {
                let width = raw(row).and_then(|raw| words::relative_spread(raw, unit));
                Cell::of(width, number::percent)
            })
            .only(page),
        Head::words("net").of(net),
        Head::words(RETURNED).of(|row: &CaseRow<'_>| {
            let observed = row.case.observed.as_ref();
            let returned = observed.and_then(|facts| facts.get(RETURNED)?.as_str());
            Cell::words(returned.map_or_else(String::new, bpfcost_text::line))
        }),
        Head::words("note").of(note),
    ];
    let table = grouped(columns, groups).filled()?;
    let mut captions = if page {
        vec![words::cost_caption(record)]
    } else {
        words::captions(record)
    };
    captions.extend(words::memory_caption(record).filter(|_| !page));
    if detail == Detail::Brief && table.rows.len() < record.cases.len() {
        // What leads says how to read costs.
        captions.clear();
    }
    Some(Table {
        title: title(detail, "All costs"),
        captions,
        ..table
    })
}

/// A title where tables need one to be found.
fn title(detail: Detail, title: impl Into<String>) -> String {
    match detail {
        Detail::Page => title.into(),
        _ => String::new(),
    }
}

/// What each CPU did, where several ran a case at once.
pub(crate) fn cpus(record: &Record, detail: Detail) -> Option<Table> {
    let cpus = record
        .asked
        .cpus
        .iter()
        .filter(|_| record.asked.cpus.len() > 1);
    let middle = |case: &CaseRecord, name: &str| median(&case.secondary.get(name)?.concat());
    let plain = |value: f64| number::fixed(value, number::plain_decimals(value));
    let column = |head: String, name: String, show: fn(f64) -> String| {
        Head::number(head).of(move |case: &CaseRecord| Cell::of(middle(case, &name), show))
    };
    let each = cpus.map(|cpu| column(format!("CPU {cpu}"), format!("cpu{cpu}{PER_CPU}"), plain));
    let mut columns: Vec<Column<'_, CaseRecord>> = each.collect();
    if columns.is_empty() {
        return None;
    }
    let corner = Head::words(format!("{} on each CPU", record.unit));
    columns.insert(
        0,
        corner.of(|case: &CaseRecord| Cell::words(bpfcost_text::line(&case.name))),
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
    let table = Table::of(columns, ran).filled()?;
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

/// How the batch means of every case lie.
pub(crate) fn batches(groups: &[RowGroup<'_>], record: &Record, detail: Detail) -> Option<Table> {
    let counted = record.unit.is_counted();
    // What ticks add to some trials has no spread worth telling on a terminal.
    let spread = !counted || detail == Detail::Page;
    let number = |value: f64, raw: &Raw| {
        if counted {
            words::value(value, None, record.unit)
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
    let name = Head::words(trials::words(record).name);
    let mut columns = vec![name.of(|row: &CaseRow<'_>| Cell::words(&row.name).toned(row.tone))];
    columns.extend(values.into_iter().map(|(name, value, show, wanted)| {
        let cell = move |row: &CaseRow<'_>| {
            let shown = |raw: &Raw| Cell::number(show(value(raw), raw), value(raw));
            raw(row).map_or_else(Cell::default, shown)
        };
        Head::number(name).of(cell).only(wanted)
    }));
    let mut valid = groups.to_vec();
    for group in &mut valid {
        group.rows.retain(|row| raw(row).is_some());
    }
    let table = grouped(columns, &valid).filled()?;
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
    words::range(case).filter(|_| case.status == Status::Ok)?;
    let mut values: Vec<f64> = epoch_medians(&case.samples);
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let shown = |value: &f64| number::fixed(*value, number::counted_decimals(*value));
    let mut texts: Vec<String> = values.iter().map(shown).collect();
    texts.dedup();
    let name = bpfcost_text::line(&case.name);
    Some(format!("{name} by load: {}", texts.join(" · ")))
}

/// Comparisons; counts have no intervals.
pub(crate) fn pairs(pairs: &[PairRow<'_>], record: &Record, detail: Detail) -> Option<Table> {
    let page = detail == Detail::Page;
    let roomy = matches!(detail, Detail::Document | Detail::Page);
    let low = |ends: Option<[f64; 2]>| ends.map(|ends| ends[0]);
    let interval = || Head::words("95\u{A0}% interval").joined();
    let columns = vec![
        Head::words("case").of(|pair: &PairRow<'_>| Cell::words(&pair.case)),
        Head::words("against").of(|pair: &PairRow<'_>| Cell::words(&pair.baseline)),
        Head::number(record.unit.to_string())
            .of(|pair: &PairRow<'_>| Cell::number(&pair.difference, pair.comparison.difference)),
        interval()
            .of(|pair: &PairRow<'_>| {
                Cell::keyed(&pair.difference_interval, low(pair.comparison.ci95))
            })
            .only(roomy),
        Head::number(words::relative_heading(record.unit))
            .of(|pair: &PairRow<'_>| Cell::number(&pair.relative, pair.comparison.relative)),
        interval().of(|pair: &PairRow<'_>| {
            Cell::keyed(&pair.interval, low(pair.comparison.relative_ci95))
        }),
        Head::words("verdict").of(|pair: &PairRow<'_>| Cell::words(&pair.verdict).toned(pair.tone)),
        Head::words("question")
            .of(|pair: &PairRow<'_>| Cell::words(&pair.about))
            .only(page),
    ];
    let table = Table::of(columns, pairs).filled()?;
    Some(Table {
        title: title(detail, "All comparisons"),
        captions: vec![words::pair_caption(record)],
        ..table
    })
}

/// What cases cost, as figures: one a heading, for they differ in size.
pub(crate) fn intervals(groups: &[RowGroup<'_>], record: &Record) -> Option<Section> {
    let figure = |group: &RowGroup<'_>| Figure {
        title: group.name.clone(),
        markup: figure::interval::render(group, record),
    };
    let below = [words::session_caption(record), target::identity(record)];
    let figures = Figures::of(
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

/// What differs from what, as a figure.
pub(crate) fn forest(pairs: &[PairRow<'_>], record: &Record) -> Option<Section> {
    let figure = (!pairs.is_empty()).then(|| figure::forest::render(pairs, record).into());
    let figures = Figures::of(
        "Differences",
        figure::forest::key(record),
        "Relative differences, with their intervals. The axis is linear near zero and logarithmic beyond."
            .to_owned(),
        figure.into_iter().collect(),
    );
    figures.map(Section::Figures)
}

/// The plots of trials, and what to know to read them.
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
    if cases.len() > MOST_STRIPS {
        caption += &format!(
            " Of {} cases, the {MOST_STRIPS} with the widest intervals are shown; the table below has all.",
            number::count(cases.len() as u64)
        );
        let width = |case: &CaseRecord| {
            let raw = case.raw.as_ref();
            raw.and_then(words::half_width).unwrap_or(f64::INFINITY)
        };
        cases.sort_by(|a, b| width(b).total_cmp(&width(a)));
        cases.truncate(MOST_STRIPS);
    }
    let figures = cases
        .into_iter()
        .filter_map(|case| figure::trials::render(case, record));
    let figures = figures.map(Figure::from).collect();
    let figures = Figures::of("Every trial", String::new(), caption, figures)?;
    Some(Section::Figures(Figures {
        order: Order::Strips,
        ..figures
    }))
}
