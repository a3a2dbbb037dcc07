//! A record as one SVG file for a README or a slide: each case with its cost, its interval and its verdict. It needs no
//! fonts, no scripts and no page around it, and follows the reader's colour scheme.

use std::fmt::Write;

use super::{
    axis::Axis,
    svg::{Svg, escape},
};
use crate::{
    cost::valid,
    rows::{self, CaseRow, PairRow},
    section::View,
    verdict,
};
use bpfcost_model::Unit;
use bpfcost_record::{CaseRecord, Record, Status, VerdictRecord};
use bpfcost_text::{number, wrap};

/// Pixels: the picture, the plots in it, where values and verdicts begin, margins, and a row's height.
const WIDTH: f64 = 880.0;
const PLOT: (f64, f64) = (180.0, 256.0);
const VALUES: f64 = 452.0;
const VERDICTS: f64 = 612.0;
const MARGIN: f64 = 16.0;
const ROW: f64 = 28.0;
/// A line of the sentence above the rows: its height in pixels, and its characters.
const LINE: f64 = 22.0;
const LETTERS: usize = 96;
/// Letters of a name before it is cut.
const NAME: usize = 22;
/// Letters of the line below the rows before it is cut.
const ORIGIN: usize = 120;
/// More rows than this make no picture.
const MAX_ROWS: usize = 40;
/// From this many nanoseconds on, costs are shown in microseconds.
const MICROSECONDS: f64 = 10_000.0;

const STYLE: &str = "\
svg{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-variant-numeric:tabular-nums}\
.card{fill:#fff;stroke:#e2e4e7}text{fill:#191c20}.lead{font-size:15px;font-weight:600}.muted,.axis text{fill:#5b6470}\
.name{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12.5px}\
.grid{stroke:#eceef0}.zero{stroke:#c9ced4}.part{fill:#b9d7f0}.ci{stroke:#0a5fae;stroke-width:3;stroke-linecap:round}\
.more{fill:#b1450a}.less{fill:#006f66}.open{fill:#84458a}.alarm{fill:#ad141a}\
@media(prefers-color-scheme:dark){.card{fill:#171a1d;stroke:#2b3035}text{fill:#e7e9ec}.muted,.axis text{fill:#9ba5b0}\
.grid{stroke:#23272b}.zero{stroke:#454c54}.part{fill:#1d4467}.ci{stroke:#74b5fb}\
.more{fill:#ff9f62}.less{fill:#52cdbf}.open{fill:#d5a3dc}.alarm{fill:#ff8c88}}";

/// The picture; `None` where the record has no case with a cost, or too many cases. The view's summary stands above the rows.
pub fn render(record: &Record, view: &View) -> Option<String> {
    let summary = &view.summary;
    let groups = rows::groups(record);
    let cases = groups.iter().flat_map(|group| &group.rows);
    let cases: Vec<&CaseRow<'_>> = cases
        .filter(|row| row.case.status != Status::Unsupported)
        .collect();
    let most = cases.iter().filter_map(|row| reach(row.case));
    let most = most.fold(0.0, f64::max);
    if most <= 0.0 || cases.len() > MAX_ROWS {
        return None;
    }
    let scale = PictureScale::new(most, record.unit);
    let axis = Axis::from_zero(most / scale.size);
    let pairs = rows::pairs(record);
    let lines = wrap(summary, LETTERS, "");
    let lines: Vec<&str> = lines.lines().collect();
    let top = MARGIN + LINE * lines.len() as f64 + 10.0;
    let foot = top + ROW * cases.len() as f64;
    let height = foot + 52.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\"><title>{}</title><style>{STYLE}</style>\n\
         <rect class=\"card\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"10\"/>\n",
        escape(summary),
        WIDTH - 1.0,
        height - 1.0
    );
    for (place, line) in lines.iter().enumerate() {
        write_text(
            &mut out,
            "lead",
            MARGIN,
            MARGIN + 15.0 + LINE * place as f64,
            line,
        );
    }
    for (place, row) in cases.iter().enumerate() {
        let pair = pairs
            .iter()
            .find(|pair| pair.comparison.case == row.case.name);
        write_row(&mut out, top + ROW * place as f64, row, pair, &axis, &scale);
    }
    let (left, width) = PLOT;
    let _ = writeln!(
        out,
        "<svg x=\"{left}\" y=\"{foot}\" width=\"{width}\" height=\"20\">{}</svg>",
        axis.labels("")
    );
    // Below the names, because there is no room next to the axis.
    write_text(&mut out, "muted", MARGIN, foot + 14.0, &scale.unit);
    write_text(
        &mut out,
        "muted",
        MARGIN,
        height - 14.0,
        &cut(&view.origin, ORIGIN),
    );
    out.push_str("</svg>\n");
    Some(out)
}

/// Unit in which costs are shown.
struct PictureScale {
    /// Divisor of the recorded values.
    size: f64,
    unit: String,
}

impl PictureScale {
    fn new(most: f64, unit: Unit) -> Self {
        let name = unit.to_string();
        match name.strip_prefix("ns") {
            Some(rest) if most >= MICROSECONDS => PictureScale {
                size: 1e3,
                unit: format!("µs{rest}"),
            },
            _ => PictureScale {
                size: 1.0,
                unit: name,
            },
        }
    }
}

/// The largest value of a case that the axis must hold.
fn reach(case: &CaseRecord) -> Option<f64> {
    let raw = case.raw.as_ref()?;
    Some(raw.ci95.map_or(raw.value, |ends| ends[1].max(raw.value)))
}

fn write_row(
    out: &mut String,
    y: f64,
    row: &CaseRow<'_>,
    pair: Option<&PairRow<'_>>,
    axis: &Axis,
    scale: &PictureScale,
) {
    let middle = y + ROW / 2.0;
    write_text(out, "name", MARGIN, middle + 4.0, &cut(&row.name, NAME));
    let raw = valid(row.case);
    let mut svg = Svg::quiet("plot", ROW);
    axis.grid(&mut svg);
    let value = match raw {
        None => row.cost.value.clone(),
        Some(raw) => {
            let value = raw.value / scale.size;
            svg.band("part", (0.0, axis.place(value)), ROW / 2.0 - 7.0, 14.0);
            let ends = raw.ci95.map(|ends| ends.map(|end| end / scale.size));
            if let Some([low, high]) = ends {
                let at = |value| (axis.place(value), ROW / 2.0);
                svg.line("ci", at(low), at(high));
            }
            let decimals = number::estimate_decimals(value, ends);
            let interval = ends.map_or(String::new(), |ends| {
                format!(" {}", number::interval(ends, decimals))
            });
            format!("{}{interval}", number::fixed(value, decimals))
        }
    };
    let (left, width) = PLOT;
    let _ = writeln!(
        out,
        "<svg x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{ROW}\">{}</svg>",
        svg.finish()
    );
    let class = if raw.is_some() { "" } else { "alarm" };
    write_text(out, class, VALUES, middle + 4.0, &value);
    if let Some(pair) = pair.filter(|_| raw.is_some()) {
        let class = match pair.comparison.verdict {
            VerdictRecord::Slower => "more",
            VerdictRecord::Faster => "less",
            VerdictRecord::Same => "muted",
            _ => "open",
        };
        let verdict = format!(
            "{} {} {}",
            pair.relative,
            pair.interval,
            verdict::word(pair.comparison.verdict).0
        );
        write_text(out, class, VERDICTS, middle + 4.0, &verdict);
    }
}

fn write_text(out: &mut String, class: &str, x: f64, y: f64, words: &str) {
    let words = number::plain_spaces(words);
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>",
        escape(&words)
    );
}

/// The words, cut where they have more letters than that.
fn cut(words: &str, letters: usize) -> String {
    if words.chars().count() <= letters {
        return words.to_owned();
    }
    let mut kept: String = words.chars().take(letters - 1).collect();
    kept.push('…');
    kept
}
