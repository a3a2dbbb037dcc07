//! Tables of the model's predictions: this machine's curves, continued to more CPUs, and the model's error against
//! published measurements. Only the cost of cache lines was measured here.

use bpfcost_pool::Error;

use super::{
    plot,
    predict::{
        FAR, OFF, PredictedCurve as Predicted, Prediction, PublishedPoint, PublishedTable, THREADS,
    },
};
use crate::builtin::Extras;
use bpfcost_record::{Curve, Record};
use bpfcost_report::{
    csv::{self, CsvColumns},
    figure::curve,
    scaling::{Chart, RateUnit},
    section::{Detail, Figures, Prose, Section, table_sections},
    style::Tone,
    table::{Cell, Head, Note, Table},
};
use bpfcost_text::{self, number};

/// Sections and columns that only `pool` adds to reports.
pub(in crate::builtin) const OWN: Extras = Extras {
    sections,
    columns,
    ..Extras::NOTHING
};

/// Sections on the model's predictions of a record's curves, if its cache-line costs are known: for this machine and,
/// except in brief reports, for published machines.
fn sections(record: &Record, detail: Detail) -> Vec<Section> {
    let prediction = || {
        let Some(prediction) = Prediction::from_record(record)? else {
            return Ok(Vec::new());
        };
        let tables = match detail {
            Detail::Brief => &[],
            _ => Prediction::tables()?,
        };
        let chart = Chart::new(record);
        let shown = |chart| shown(&chart, &prediction, tables, detail == Detail::Page);
        Ok(chart.map_or_else(Vec::new, shown))
    };
    prediction().unwrap_or_else(|error: Error| {
        vec![Section::Prose(Prose {
            paragraphs: vec![format!("Nothing is predicted: {error}.")],
            tone: Tone::Open,
            ..Prose::default()
        })]
    })
}

fn shown(
    chart: &Chart<'_>,
    prediction: &Prediction,
    published: &[PublishedTable],
    figures: bool,
) -> Vec<Section> {
    let mut sections = Vec::new();
    if figures {
        let plots = plot::predicted(chart, prediction, published);
        sections.push(Section::Figures(Figures {
            title: "Prediction of a model".to_owned(),
            caption: "Solid lines were measured here. Hollow marks were published, on other machines; dashed lines \
                are predictions of the model. Neither was measured here."
                .to_owned(),
            figures: plots.iter().map(curve::figure).collect(),
            ..Figures::default()
        }));
    }
    let mut tables = Vec::new();
    if !prediction.curves.is_empty() {
        tables.push(curves(chart, prediction));
    }
    if !published.is_empty() {
        tables.push(errors(chart, published));
    }
    tables.extend(published.iter().map(|table| points(chart, table)));
    sections.extend(table_sections(tables));
    sections
}

/// The rates of cases as the model has them, for CSV.
pub(in crate::builtin) fn columns(record: &Record) -> Option<CsvColumns<'_>> {
    let scaling = record.layout.scaling()?;
    let prediction = Prediction::from_record(record).ok()??;
    Some(Box::new(move |case| {
        // The model knows no other circumstances.
        let usual = case
            .point(scaling)
            .filter(|_| case.beside_point(scaling).is_empty());
        let rate = usual.and_then(|(series, threads)| prediction.rate(series, threads));
        vec![("predicted".to_owned(), csv::plain(rate))]
    }))
}

/// The measured curve that a predicted one stands beside.
pub(super) fn measured<'c, 'a>(chart: &'c Chart<'a>, series: &str) -> Option<&'c Curve<'a>> {
    let usual = Some(chart.usual()).filter(|group| group.apart.is_empty())?;
    usual.curve(series)
}

/// The model's input for this machine, and what of it was not measured.
fn lines(prediction: &Prediction) -> String {
    let lines = &prediction.lines;
    let ns = |ns: f64| {
        let decimals = number::plain_decimals(ns).min(1);
        format!("{}{}ns", number::fixed(ns, decimals), number::HOLD)
    };
    let assumed = if lines.far_measured {
        String::new()
    } else {
        format!(
            " Assumed, not measured: far is {FAR} times near, because this machine has no second socket."
        )
    };
    format!(
        "Input of the model, an atomic change of a cache line here: {} if this CPU has the line, {} if another CPU \
         of the socket has it, {} from another socket.{assumed}",
        ns(lines.own_ns),
        ns(lines.near_ns),
        ns(lines.far_ns)
    )
}

/// This machine's curves, and on to more CPUs.
fn curves(chart: &Chart<'_>, prediction: &Prediction) -> Table {
    let rates = prediction.curves.iter().flat_map(|curve| curve.1);
    let unit = RateUnit::fit(rates);
    let row = |(series, rates): &Predicted| {
        let cells = rates.map(|rate| Cell::number(unit.plain(rate), rate));
        std::iter::once(Cell::words(*series)).chain(cells).collect()
    };
    let scaling = chart.curves.scaling;
    let heads = THREADS.map(|count| Head::number(number::count(u64::from(count))));
    Table {
        title: format!(
            "Predicted, not measured: {} a second of all {}, a CPU each, {}",
            chart.operations(),
            bpfcost_text::line(&scaling.over),
            unit.per_second()
        ),
        head: std::iter::once(Head::words(bpfcost_text::line(&scaling.series)))
            .chain(heads)
            .collect(),
        rows: prediction.curves.iter().map(row).collect(),
        notes: beside(chart, prediction).into_iter().collect(),
        captions: vec![lines(prediction)],
        ..Table::default()
    }
}

/// Note on how far the model is off the measurements on this machine.
fn beside(chart: &Chart<'_>, prediction: &Prediction) -> Option<Note> {
    let mut off: Vec<(f64, &str, u32)> = Vec::new();
    for (series, rates) in &prediction.curves {
        // The model makes no statement about threads that share CPUs.
        let alone =
            |count: &u32| *count <= chart.curves.cpus && !Prediction::fitted(series, *count);
        for (threads, predicted) in THREADS.into_iter().zip(rates).filter(|one| alone(&one.0)) {
            let point = measured(chart, series).and_then(|curve| curve.at(threads)?.rate);
            let ratio = point.map_or(f64::NAN, |rate| predicted / rate.value);
            if ratio.is_finite() && ratio > 0.0 {
                off.push((ratio.max(1.0 / ratio), series, threads));
            }
        }
    }
    let worst = off.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let text = format!(
        "Where this run has a measurement ({}; without the freelist with 2 threads, to which the model was \
         fitted), the prediction is off by a factor of {} at most ({} with {}).",
        number::plural(off.len(), "point"),
        number::fixed(worst.0, 1),
        worst.1,
        chart.threads(worst.2)
    );
    let tone = if worst.0 > OFF {
        Tone::Open
    } else {
        Tone::Plain
    };
    Some(Note::new(tone, text))
}

/// Table of how far the model is off in each published table.
fn errors(chart: &Chart<'_>, tables: &[PublishedTable]) -> Table {
    let row = |(table, rows): &PublishedTable| {
        let mut tested: Vec<&PublishedPoint> = rows.iter().filter(|row| !row.fitted).collect();
        tested.sort_by(|a, b| a.factor().total_cmp(&b.factor()));
        let within = tested.iter().filter(|row| row.factor() <= OFF).count();
        let count = match tested.len() {
            0 => "all fitted".to_owned(),
            some => format!("{within} of {some}"),
        };
        let tone = if within == tested.len() {
            Tone::Plain
        } else {
            Tone::Open
        };
        let (middle, worst) = (tested.get(tested.len() / 2), tested.last());
        let factor = |row: Option<&&PublishedPoint>| {
            Cell::number_or_empty(row.map(|row| row.factor()), times)
        };
        let at = worst.map(|row| format!("{} with {}", row.series, chart.threads(row.threads)));
        vec![
            Cell::words(table.title.clone()),
            Cell::number(count, within as f64).toned(tone),
            factor(middle),
            factor(worst),
            Cell::words(at.unwrap_or_default()),
        ]
    };
    let rows = tables.iter().flat_map(|table| &table.1);
    Table {
        title: "The prediction against published tables, of other machines".to_owned(),
        head: vec![
            Head::words("published"),
            Head::number("within 2×"),
            Head::number("typically off"),
            Head::number("at most"),
            Head::words("at"),
        ],
        rows: tables.iter().map(row).collect(),
        captions: vec![format!(
            "Published elsewhere and predicted by the model, with the line costs of the machine on which it was \
             written: neither was measured here. Left out: {} to which parameters were fitted. Of the others, 38 were \
             in view while the model was designed.",
            number::plural(rows.filter(|row| row.fitted).count(), "point")
        )],
        ..Table::default()
    }
}

/// `1.4×`.
fn times(factor: f64) -> String {
    format!("{}×", number::fixed(factor, usize::from(factor < 99.5)))
}

/// Every point of a published table beside its prediction.
fn points(chart: &Chart<'_>, (table, rows): &PublishedTable) -> Table {
    let unit = RateUnit::fit(rows.iter().map(|row| row.published));
    let row = |row: &PublishedPoint| {
        let (answer, tone) = match (row.fitted, row.factor() <= OFF) {
            (true, _) => ("fitted", Tone::Quiet),
            (false, true) => ("within 2×", Tone::Plain),
            (false, false) => ("fails", Tone::Open),
        };
        let threads = f64::from(row.threads);
        let factor = |factor| {
            format!(
                "{}×",
                number::fixed(factor, if factor < 9.95 { 2 } else { 1 })
            )
        };
        vec![
            Cell::words(row.series),
            Cell::number(number::count(u64::from(row.threads)), threads),
            Cell::number(unit.plain(row.published), row.published),
            Cell::number(unit.plain(row.predicted), row.predicted),
            Cell::number_or_empty(Some(row.factor()), factor),
            Cell::words(answer).toned(tone),
            Cell::words(row.note.unwrap_or_default()),
        ]
    };
    let counted = format!("{} {}", unit.prefix, table.unit);
    Table {
        title: format!("Published and predicted: {}", table.title),
        head: vec![
            Head::words(bpfcost_text::line(&chart.curves.scaling.series)),
            Head::number(bpfcost_text::line(&chart.curves.scaling.over)),
            Head::number("published"),
            Head::number("predicted"),
            Head::number("off"),
            Head::words(""),
            Head::words("note"),
        ],
        rows: rows.iter().map(row).collect(),
        captions: vec![format!(
            "In {}. Published: {}. Input of the model: {}. off: the larger divided by the smaller.",
            counted.trim_start(),
            table.source,
            table.inputs()
        )],
        ..Table::default()
    }
}
