//! One case in full (`--case NAME --verbose`): how its batch was found, whether it proved itself,
//! what it costs, and how its batch means lie.

use std::fmt::Write;

use crate::{
    experiment::Unit,
    record::{CaseRecord, Raw, Record, Status},
    report::{
        histogram::{self, Histogram},
        number, rows,
        style::Style,
        target, terminal, text, trials, words,
    },
};

/// A tail this many times longer than the other is worth a note.
const LONG_TAIL: f64 = 2.0;
/// The column at which what stands beside a label starts.
const LABEL: usize = 16;

/// The case called `name` in full; `None` where the record does not have it.
pub fn render(record: &Record, name: &str, style: Style) -> Option<String> {
    let case = record.cases.iter().find(|case| case.name == name)?;
    let mut page = Page {
        out: String::new(),
        style,
    };
    page.head(case, record);
    page.trust(case, record.unit);
    match (case.status, &case.raw) {
        (Status::Unsupported, _) => {
            let reason = case.reason.as_deref().unwrap_or("not on this target");
            page.line("Not run", &text::line(reason));
        }
        (Status::Ok, Some(raw)) => {
            page.value(case, raw, record);
            page.percentiles(case, raw, record);
            page.secondary(case);
            page.pairs(case, record);
            page.histogram(case, record);
        }
        _ => {}
    }
    Some(number::plain_spaces(&page.out))
}

struct Page {
    out: String,
    style: Style,
}

impl Page {
    /// A label and what stands beside it, wrapped into its column.
    fn line(&mut self, label: &str, words: &str) {
        let indent = " ".repeat(LABEL);
        let wrapped = text::wrap(words, self.style.width, &indent);
        let label = self.style.dim(&format!("{label:<LABEL$}"));
        let rest = wrapped.get(LABEL..).unwrap_or_default();
        let _ = writeln!(self.out, "{label}{rest}");
    }

    fn head(&mut self, case: &CaseRecord, record: &Record) {
        let name = format!(
            "{} {}",
            text::line(&record.experiment),
            text::line(&case.name)
        );
        let about = text::line(&case.about);
        let _ = writeln!(self.out, "{}  {about}", self.style.bold(&name));
        if !case.factors.is_empty() {
            let factors: Vec<String> = case
                .factors
                .iter()
                .map(|(name, value)| format!("{} = {}", text::line(name), text::line(value)))
                .collect();
            self.line("Factors", &factors.join(", "));
        }
    }

    fn trust(&mut self, case: &CaseRecord, unit: Unit) {
        if let Some(found) = case.calibration {
            let batch_ns = found.ns_per_op * found.batch.0 as f64;
            // The clock of an exact target counts instructions: a ns is one.
            let (decimals, length) = match unit.is_counted() {
                true => (
                    number::counted_decimals(found.ns_per_op),
                    format!("{} instructions", number::fixed(batch_ns, 0)),
                ),
                false => (
                    number::plain_decimals(found.ns_per_op),
                    number::duration(batch_ns / 1e9),
                ),
            };
            self.line(
                "Calibration",
                &format!(
                    "{} {unit}, so {} operations make a batch of {length}",
                    number::fixed(found.ns_per_op, decimals),
                    number::count(found.batch.0),
                ),
            );
            let proportional = match found.ratio {
                None => "not checked: the size of the batch is part of the case".to_owned(),
                Some(ratio) => format!(
                    "twice the batch took {} times {} ({}{})",
                    number::fixed(ratio, 4),
                    words::as_much(unit),
                    match (ratio / 2.0 - 1.0).abs() <= 0.05 {
                        true => "within 5 % of 2",
                        false => "more than 5 % off 2: the cost depends on the batch",
                    },
                    match found.attempts {
                        0 | 1 => String::new(),
                        more => format!(", attempt {more}"),
                    }
                ),
            };
            self.line("Proportional", &proportional);
        }
        match case.status {
            Status::Ok => {
                let trials: usize = case.samples.iter().map(Vec::len).sum();
                let loads = case
                    .samples
                    .iter()
                    .filter(|epoch| !epoch.is_empty())
                    .count();
                self.line(
                    "Validation",
                    &format!(
                        "passed: {} in {}, each checked while it was timed",
                        number::plural(trials, "trial"),
                        number::plural(loads, "load")
                    ),
                );
            }
            Status::Invalid if case.problems.is_empty() => self.line("Validation", "FAILED"),
            Status::Invalid => {
                for problem in &case.problems {
                    self.line(
                        "Validation",
                        &format!("FAILED  {}", text::line(&problem.to_string())),
                    );
                    for line in text::block(&problem.detail).lines() {
                        let _ = writeln!(self.out, "{:LABEL$}{}", "", line.trim_end());
                    }
                }
                self.line("", "Nothing is reported for this case.");
            }
            Status::Unsupported => {}
        }
    }

    fn value(&mut self, case: &CaseRecord, raw: &Raw, record: &Record) {
        let row = rows::case_row(case, record);
        let width = words::half_width(raw)
            .map(|width| format!(", ±{}", number::percent(width)))
            .unwrap_or_default();
        let spread = match (record.unit.is_counted(), row.interval.as_str()) {
            (true, loads) => format!("({loads})"),
            (false, "") => "(no interval)".to_owned(),
            (false, interval) => format!("{interval} (95 %{width})"),
        };
        self.line("Cost", &format!("{} {} {spread}", row.cost, record.unit));
        if !row.net.is_empty() {
            let floor = case.floor.as_deref().map(text::line).unwrap_or_default();
            let against = if floor.is_empty() {
                floor
            } else {
                format!(", against {floor}")
            };
            let net = match row.net.as_str() {
                "≈ harness" => "not distinguishable from the harness".to_owned(),
                net if record.unit.is_counted() => format!("{net} {}", record.unit),
                net => {
                    let interval = words::net_interval(case.net.as_ref());
                    format!("{net} {} {interval}", record.unit)
                        .trim_end()
                        .to_owned()
                }
            };
            self.line("Net", &format!("{net}{against}"));
        }
        for note in &row.notes {
            self.line("Note", &note.text);
        }
        let told = [target::unit_caption(record), target::identity(record)];
        for words in told.into_iter().flatten() {
            self.line("", &words);
        }
    }

    fn percentiles(&mut self, case: &CaseRecord, raw: &Raw, record: &Record) {
        let unit = record.unit;
        let values = histogram::sorted(&case.samples);
        let decimals = number::decimals(raw.stddev);
        let fixed = |value| match unit.is_counted() {
            true => words::value(value, None, unit),
            false => number::fixed(value, decimals),
        };
        let trials = trials::name(record);
        self.line(
            &rows::heading(trials),
            &format!(
                "median {}, stddev {}, CV {}, min {}, max {}; outliers, kept: {}",
                fixed(raw.p50),
                fixed(raw.stddev),
                number::percent(raw.cv),
                fixed(raw.min),
                fixed(raw.max),
                number::count(raw.outliers as u64)
            ),
        );
        let of = |percent: f64| histogram::percentile(&values, percent / 100.0);
        let listed: Vec<String> = [50.0, 75.0, 90.0, 95.0, 99.0]
            .into_iter()
            .filter_map(|percent| Some(format!("p{percent} {}", fixed(of(percent)?))))
            .collect();
        if !listed.is_empty() {
            self.line(
                "Percentiles",
                &format!("{} (of {trials})", listed.join(", ")),
            );
        }
    }

    fn secondary(&mut self, case: &CaseRecord) {
        let values: Vec<String> = case
            .secondary
            .iter()
            .filter_map(|(name, values)| {
                let middle = histogram::percentile(&histogram::sorted(values), 0.5)?;
                let decimals = if middle.fract() == 0.0 {
                    0
                } else {
                    number::plain_decimals(middle)
                };
                Some(format!(
                    "{} {}",
                    text::line(name),
                    number::fixed(middle, decimals)
                ))
            })
            .collect();
        if !values.is_empty() {
            self.line("Also (medians)", &values.join(", "));
        }
    }

    fn pairs(&mut self, case: &CaseRecord, record: &Record) {
        for pair in rows::pairs(record) {
            let comparison = pair.comparison;
            if comparison.case != case.name && comparison.baseline != case.name {
                continue;
            }
            self.line(
                "Comparison",
                &format!(
                    "{} against {}: {}, {}",
                    pair.case,
                    pair.baseline,
                    format!("{} {}", pair.relative, pair.interval).trim_end(),
                    pair.verdict
                ),
            );
        }
    }

    fn histogram(&mut self, case: &CaseRecord, record: &Record) {
        let values = histogram::sorted(&case.samples);
        let Some(histogram) = Histogram::new(&values) else {
            return;
        };
        let step = histogram.step_text();
        let trials = rows::heading(trials::name(record));
        let head = format!("{trials}, {} (bins of {step})", record.unit);
        let _ = writeln!(self.out, "\n{}", self.style.bold(&head));
        self.out.push_str(&histogram.render("  "));
        // Counts have a tail by their nature: what a timer tick adds.
        let skew = histogram::skew(&values).filter(|_| !record.unit.is_counted());
        if let Some(skew) = skew {
            let (side, other, times) = match skew > 1.0 {
                true => ("right", "p1 lies below it", skew),
                false => ("left", "p99 lies above it", 1.0 / skew),
            };
            if times >= LONG_TAIL {
                let far = if skew > 1.0 { "p99 lies" } else { "p1 lies" };
                let words = format!(
                    "NOTE: long tail to the {side}. {far} {} times as far from the median as {other}; \
                     the estimate rests on medians and does not follow it.",
                    number::fixed(times, 1)
                );
                let words = text::wrap(&words, self.style.width, "");
                let _ = writeln!(self.out, "{}", self.style.caution(&words));
            }
        }
        terminal::caption(
            &mut self.out,
            trials::percentile_caption(record),
            self.style,
        );
    }
}
