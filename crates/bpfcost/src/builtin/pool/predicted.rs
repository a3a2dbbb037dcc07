//! What a model of cache lines predicts: this machine's curves and on to more CPUs, and how far the model is
//! off where others published what they measured. Nothing here was measured but the lines.

use super::plot;
use crate::{
    builtin::Own,
    record::{Part, PredictedCurve, Prediction, PublishedRow, PublishedTable, Record},
    report::{
        block::{Block, Cell, Head, Note},
        figure::curve,
        number,
        scaling::{Chart, RateUnit},
        section::{Detail, Figures, Section, tables},
        style::Tone,
        text,
    },
};

/// A prediction that is off by more than this counts as failed ([`PublishedRow::within`]).
const OFF: f64 = 2.0;

/// What pools show of their own.
pub(in crate::builtin) const OWN: Own = Own {
    sections,
    ..Own::NOTHING
};

/// What a model predicts of a record's curves, where one was asked.
fn sections(record: &Record, detail: Detail) -> Vec<Section> {
    let (Some(prediction), Some(chart)) = (&record.prediction, Chart::new(record)) else {
        return Vec::new();
    };
    let figures = Figures {
        title: "What a model predicts".to_owned(),
        caption: format!(
            "Solid lines were measured here. Hollow marks are what others published of other machines, dashed lines \
             what the model predicts: neither was measured here. {}",
            lines(prediction)
        ),
        figures: plot::predicted(&chart, prediction)
            .iter()
            .map(curve::figure)
            .collect(),
        ..Figures::default()
    };
    let page = detail == Detail::Page && !figures.figures.is_empty();
    let figures = page.then_some(Section::Figures(figures));
    let blocks = blocks(&chart, prediction, detail > Detail::Brief);
    figures.into_iter().chain(tables(blocks)).collect()
}

/// The tables, and every published point; a few lines, where not `all` is wanted.
fn blocks(chart: &Chart<'_>, prediction: &Prediction, all: bool) -> Vec<Block> {
    if !all {
        return short(chart, prediction).into_iter().collect();
    }
    let mut blocks = Vec::new();
    if !prediction.curves.is_empty() {
        blocks.push(curves(chart, prediction));
    }
    if !prediction.tables.is_empty() {
        blocks.push(errors(chart, prediction));
    }
    let tables = prediction.tables.iter();
    blocks.extend(tables.map(|table| published(chart, table)));
    blocks
}

/// What a model says of the most threads, and how far to trust it; `None` where it says nothing.
fn short(chart: &Chart<'_>, prediction: &Prediction) -> Option<Block> {
    let points = || prediction.curves.iter().flat_map(|curve| &curve.points);
    let most = points().map(|point| point.threads).max()?;
    let mut rates: Vec<(&str, f64)> = Vec::new();
    for curve in &prediction.curves {
        let last = curve.points.iter().find(|point| point.threads == most);
        let last = last.filter(|point| point.rate.is_finite());
        rates.extend(last.map(|point| (curve.series.as_str(), point.rate)));
    }
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    let unit = RateUnit::fit(rates.iter().map(|rate| rate.1));
    let rates = rates
        .iter()
        .map(|(series, rate)| format!("{} {}", text::line(series), unit.plain(*rate)));
    let rates: Vec<String> = rates.collect();
    let all: Vec<f64> = prediction
        .tables
        .iter()
        .flat_map(tested)
        .map(|one| one.0)
        .collect();
    let within = all.iter().filter(|factor| **factor <= OFF).count();
    let far = all.iter().copied().fold(1.0, f64::max);
    let held = (!all.is_empty()).then(|| Note {
        text: format!(
            "Of {} published elsewhere, none fitted to, {within} are within 2 times; the worst is off by {}.",
            number::plural(all.len(), "point"),
            number::fixed(far, 1)
        ),
        tone: match within == all.len() {
            true => Tone::Plain,
            false => Tone::Open,
        },
    });
    let curves = Note {
        text: format!(
            "At {}, {}: {}.",
            chart.threads(most),
            unit.of(&chart.operations()),
            rates.join(", ")
        ),
        tone: Tone::Plain,
    };
    Some(Block {
        title: "Predicted by a model of cache lines, a CPU for each thread; not measured"
            .to_owned(),
        notes: std::iter::once(curves)
            .chain(beside(chart, prediction))
            .chain(held)
            .collect(),
        ..Block::default()
    })
}

/// The points of a table that no parameter was fitted to, with how far each is off, the best first.
fn tested(table: &PublishedTable) -> Vec<(f64, &PublishedRow)> {
    let rows = table.rows.iter().filter(|row| !row.fitted);
    let mut tested: Vec<(f64, &PublishedRow)> = rows
        .map(|row| (row.factor().unwrap_or(f64::INFINITY), row))
        .collect();
    tested.sort_by(|a, b| a.0.total_cmp(&b.0));
    tested
}

/// `1.4×`.
fn times(factor: f64) -> String {
    format!("{}×", number::fixed(factor, usize::from(factor < 99.5)))
}

/// What the model was told of this machine, and what nobody measured.
fn lines(prediction: &Prediction) -> String {
    let lines = &prediction.lines;
    let ns = |ns: f64| {
        format!(
            "{}{}ns",
            number::fixed(ns, number::plain_decimals(ns).min(1)),
            number::HOLD
        )
    };
    let mut text = format!(
        "The model was told what an atomic change of a cache line takes here: {} of one's own, {} of one that \
         another CPU of the socket had, {} from another socket.",
        ns(lines.own_ns),
        ns(lines.near_ns),
        ns(lines.far_ns)
    );
    if !lines.assumed.is_empty() {
        let assumed: Vec<String> = lines.assumed.iter().map(|line| text::line(line)).collect();
        text += &format!(" Assumed, not measured: {}.", assumed.join("; "));
    }
    text
}

/// This machine's curves, and on to more CPUs.
fn curves(chart: &Chart<'_>, prediction: &Prediction) -> Block {
    let points = || prediction.curves.iter().flat_map(|curve| &curve.points);
    let mut counts: Vec<u32> = points().map(|point| point.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    let unit = RateUnit::fit(points().map(|point| point.rate));
    let row = |curve: &PredictedCurve| {
        let cell = |count: &u32| {
            let point = curve.points.iter().find(|point| point.threads == *count);
            point.map_or_else(
                || Cell::words(number::MISSING),
                |point| Cell::number(unit.plain(point.rate), point.rate),
            )
        };
        let name = Cell::words(text::line(&curve.series));
        std::iter::once(name)
            .chain(counts.iter().map(cell))
            .collect()
    };
    let scaling = chart.curves.scaling;
    let heads = counts
        .iter()
        .map(|count| Head::number(number::count(u64::from(*count))));
    Block {
        title: format!(
            "Predicted, not measured: {} a second of so many {}, a CPU each, {}",
            chart.operations(),
            text::line(&scaling.over),
            unit.per_second()
        ),
        head: std::iter::once(Head::words(text::line(&scaling.series)))
            .chain(heads)
            .collect(),
        rows: prediction.curves.iter().map(row).collect(),
        notes: beside(chart, prediction).into_iter().collect(),
        captions: vec![lines(prediction)],
        ..Block::default()
    }
}

/// How far the model is off what was measured here.
fn beside(chart: &Chart<'_>, prediction: &Prediction) -> Option<Note> {
    let mut off: Vec<(f64, &str, u32)> = Vec::new();
    for curve in &prediction.curves {
        let measured = chart
            .usual()
            .curves
            .iter()
            // The model knows no other circumstances.
            .filter(|_| chart.usual().apart.is_empty())
            .find(|own| own.series == curve.series);
        for point in &curve.points {
            let Some(Part { value, .. }) = measured.and_then(|own| own.at(point.threads)?.rate)
            else {
                continue;
            };
            let ratio = point.rate / value;
            // Where threads share CPUs, the model says nothing.
            let tests = !Prediction::fitted(&curve.series, point.threads);
            if tests && point.threads <= chart.curves.cpus && ratio.is_finite() && ratio > 0.0 {
                off.push((ratio.max(1.0 / ratio), &curve.series, point.threads));
            }
        }
    }
    let worst = off.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Note {
        text: format!(
            "Where it can be held against this run ({}; not at the freelist with 2 threads, which the model was \
             fitted to), the prediction is off by at most {} times ({} with {}).",
            number::plural(off.len(), "point"),
            number::fixed(worst.0, 1),
            text::line(worst.1),
            chart.threads(worst.2)
        ),
        tone: match worst.0 > OFF {
            true => Tone::Open,
            false => Tone::Plain,
        },
    })
}

/// How far the model is off in each published table.
fn errors(chart: &Chart<'_>, prediction: &Prediction) -> Block {
    let row = |table: &PublishedTable| {
        let tested = tested(table);
        let within = tested.iter().filter(|(_, row)| row.within()).count();
        let middle = tested.get(tested.len() / 2).map(|one| one.0);
        let worst = tested.last();
        let number = |factor: Option<f64>| {
            factor.map_or_else(Cell::default, |factor| Cell::number(times(factor), factor))
        };
        let count = match tested.len() {
            0 => "all fitted".to_owned(),
            some => format!("{within} of {some}"),
        };
        let tone = match within == tested.len() {
            true => Tone::Plain,
            false => Tone::Open,
        };
        vec![
            Cell::words(text::line(&table.title)),
            Cell::number(count, within as f64).toned(tone),
            number(middle),
            number(worst.map(|one| one.0)),
            Cell::words(worst.map_or_else(String::new, |(_, row)| {
                format!(
                    "{} with {}",
                    text::line(&row.series),
                    chart.threads(row.threads)
                )
            })),
        ]
    };
    let fitted = prediction
        .tables
        .iter()
        .flat_map(|table| &table.rows)
        .filter(|row| row.fitted);
    let fitted = fitted.count();
    let fitted = match fitted {
        0 => String::new(),
        some => format!(
            " {} that parameters were fitted to test nothing, and are left out.",
            number::plural(some, "point")
        ),
    };
    Block {
        title: "The prediction against published tables, of other machines".to_owned(),
        head: vec![
            Head::words("published"),
            Head::number("within 2×"),
            Head::number("typically off"),
            Head::number("at most"),
            Head::words("at"),
        ],
        rows: prediction.tables.iter().map(row).collect(),
        captions: vec![format!(
            "Published elsewhere and predicted by the model: neither was measured here.{fitted}"
        )],
        ..Block::default()
    }
}

/// Every point of a published table beside its prediction.
fn published(chart: &Chart<'_>, table: &PublishedTable) -> Block {
    let unit = RateUnit::fit(table.rows.iter().map(|row| row.published));
    let row = |row: &PublishedRow| {
        let (answer, tone) = match (row.fitted, row.within()) {
            (true, _) => ("fitted", Tone::Quiet),
            (false, true) => ("within 2×", Tone::Plain),
            (false, false) => ("fails", Tone::Open),
        };
        let factor = row.factor().map_or_else(Cell::default, |factor| {
            let text = number::fixed(factor, if factor < 9.95 { 2 } else { 1 });
            Cell::number(format!("{text}×"), factor)
        });
        vec![
            Cell::words(text::line(&row.series)),
            Cell::number(
                number::count(u64::from(row.threads)),
                f64::from(row.threads),
            ),
            Cell::number(unit.plain(row.published), row.published),
            Cell::number(unit.plain(row.predicted), row.predicted),
            factor,
            Cell::words(answer).toned(tone),
            Cell::words(row.note.as_deref().map_or_else(String::new, text::line)),
        ]
    };
    let counted = format!("{} {}", unit.prefix, text::line(&table.unit));
    Block {
        title: format!("Published and predicted: {}", text::line(&table.title)),
        head: vec![
            Head::words(text::line(&chart.curves.scaling.series)),
            Head::number(text::line(&chart.curves.scaling.over)),
            Head::number("published"),
            Head::number("predicted"),
            Head::number("off"),
            Head::words(""),
            Head::words("note"),
        ],
        rows: table.rows.iter().map(row).collect(),
        captions: vec![format!(
            "In {}. Published: {}. The model was told: {}. off: the greater over the smaller.",
            counted.trim_start(),
            text::line(&table.source),
            text::line(&table.machine)
        )],
        ..Block::default()
    }
}
