//! The cost of a case as text: raw, or net if cases span a grid ([`Record::cost`]).

use crate::{absent, rows, style::Tone, words};
use bpfcost_model::Role;
use bpfcost_record::{CaseRecord, Record, Status};
use bpfcost_text::{
    self,
    number::{self, MISSING},
};

/// Shown for a net cost that is indistinguishable from zero.
pub(crate) const NOTHING: &str = "≈\u{A0}0";

/// From here on the ends of a range are whole numbers, in instructions.
const WIDE: f64 = 10.0;

/// A cost, as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostText {
    /// The cost, or why there is none.
    pub value: String,
    /// Its 95 % interval, or how it spread over loads.
    pub spread: String,
    /// As `spread`, of counts only where loads differ, and without their number.
    pub range: String,
    /// Half the interval: `±0.2 %`, or `±0.3` of a net; empty for counts and without an interval.
    pub width: String,
    /// Of what it says beyond the words.
    pub tone: Tone,
    /// Why there is no number.
    pub why: Option<String>,
    /// What is to know beside it ([`Grid::note`](bpfcost_model::Grid)).
    pub note: String,
}

impl CostText {
    /// The text of a case.
    pub fn new(case: &CaseRecord, record: &Record) -> Self {
        match (record.layout.grid(), case.role) {
            (Some(_), Role::Case) => net(case, record),
            _ => raw(case, record),
        }
    }
}

fn raw(case: &CaseRecord, record: &Record) -> CostText {
    let row = rows::case_row(case, record);
    let why = (case.status != Status::Ok).then(|| row.note());
    let raw = case.raw.as_ref().filter(|_| case.status == Status::Ok);
    let counted = record.unit.is_counted();
    let width = raw.filter(|_| !counted).and_then(words::half_width);
    CostText {
        range: if counted {
            raw.and_then(|_| words::range(case)).unwrap_or_default()
        } else {
            row.interval.clone()
        },
        value: row.cost,
        spread: row.interval,
        width: width.map_or_else(String::new, |width| format!("±{}", number::percent(width))),
        tone: row.tone,
        why,
        ..CostText::default()
    }
}

fn net(case: &CaseRecord, record: &Record) -> CostText {
    let note = record
        .layout
        .grid()
        .map(|grid| bpfcost_text::line(&case.note(grid)));
    let text = CostText {
        note: note.unwrap_or_default(),
        ..CostText::default()
    };
    let quiet = |value: &str| CostText {
        value: value.to_owned(),
        tone: Tone::Quiet,
        ..text.clone()
    };
    let why = rows::case_row(case, record).note();
    match case.status {
        Status::Invalid => {
            return CostText {
                tone: Tone::Alarm,
                why: Some(why),
                ..quiet("INVALID")
            };
        }
        Status::Unsupported => {
            return CostText {
                // The way out belongs to rows of which nothing runs.
                why: Some(absent::parted(&why).0.to_owned()),
                ..quiet(MISSING)
            };
        }
        Status::Ok => {}
    }
    let counted = record.unit.is_counted();
    let Some(cost) = record.cost(case) else {
        // A bracket is shown as one; else a part is missing.
        return match words::net(case.net.as_ref(), record.unit).as_str() {
            "" | MISSING => {
                let floor = case.floor.as_deref().unwrap_or("its floor");
                let why = format!("there is no net cost without {floor}");
                CostText {
                    why: Some(bpfcost_text::line(&why)),
                    ..quiet(MISSING)
                }
            }
            bracket => CostText {
                value: bracket.to_owned(),
                ..text
            },
        };
    };
    let ci95 = cost.ends.filter(|_| !counted);
    let decimals = words::decimals(cost.value, ci95, record.unit);
    if counted {
        let range = cost.range().map_or_else(String::new, |ends| {
            // Hundredths of a range that is wide say nothing.
            let wide = ends[1] - ends[0] >= WIDE;
            let most = if wide { 0 } else { usize::MAX };
            let [low, high] =
                ends.map(|end| number::fixed(end, number::counted_decimals(end).min(most)));
            format!("{low}–{high}")
        });
        let loads = number::plural(case.raw.as_ref().map_or(0, |raw| raw.epochs), "load");
        return CostText {
            value: number::fixed(cost.value, decimals),
            spread: match range.as_str() {
                "" if words::same_in_loads(case) => format!("same in {loads}"),
                "" => loads,
                range => format!("{range} over {loads}"),
            },
            range,
            ..text
        };
    }
    let spread = ci95.map_or_else(String::new, |ends| number::interval(ends, decimals));
    let nothing = case.net.as_ref().is_some_and(|net| !net.distinguishable);
    CostText {
        range: spread.clone(),
        spread,
        width: ci95.map_or_else(String::new, |[low, high]| {
            if nothing {
                String::new()
            } else {
                format!("±{}", number::fixed((high - low) / 2.0, decimals))
            }
        }),
        ..if nothing {
            quiet(NOTHING)
        } else {
            CostText {
                value: number::fixed(cost.value, decimals),
                ..text
            }
        }
    }
}
