//! Cost of a case as text, raw or net ([`Record::cost`]), with the spread that stands beside it.

use crate::{
    absent,
    estimate::{half_width, value},
    notes,
    style::Tone,
};
use bpfcost_model::{Role, Unit};
use bpfcost_record::{CaseRecord, Cost, Net, Raw, Record, Status, recorded_rounding};
use bpfcost_text::{
    line,
    number::{self, MISSING},
};

/// Shown for a net cost that is indistinguishable from zero.
pub(crate) const NOTHING: &str = "≈\u{A0}0";
/// Shown for a net cost that is indistinguishable from the harness.
const HARNESS: &str = "≈ harness";
/// Width in instructions from which the ends of a range are whole numbers.
const WIDE: f64 = 10.0;

/// A cost, as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostText {
    /// The cost, or a word for why there is none.
    pub value: String,
    /// The 95 % interval, or how a count spread over loads: `293–295 over 3 loads`.
    pub spread: String,
    /// As `spread`; of counts only where loads differ, and without their number.
    pub range: String,
    /// Half the interval: `±0.2 %`, or `±0.3` of a net; empty for counts and without an interval.
    pub width: String,
    /// [`Tone::Alarm`] for an invalid case, [`Tone::Quiet`] without a number.
    pub tone: Tone,
    /// Reason that there is no number.
    pub why: Option<String>,
    /// Remark beside a net cost ([`Grid::note`](bpfcost_model::Grid)).
    pub note: String,
}

impl CostText {
    /// Returns the cost of a case: net where cases span a grid, else as measured.
    pub fn new(case: &CaseRecord, record: &Record) -> Self {
        match (record.layout.grid(), case.role) {
            (Some(grid), Role::Case) => CostText {
                note: line(&case.note(grid)),
                ..CostText::net(case, record)
            },
            _ => CostText::raw(case, record),
        }
    }

    /// Returns the cost as measured.
    pub(crate) fn raw(case: &CaseRecord, record: &Record) -> Self {
        let Some(raw) = valid(case) else {
            let (word, tone) = no_result(case.status);
            let has_reason = case.status != Status::Ok;
            return CostText {
                why: has_reason.then(|| notes::in_one_line(case, record)),
                ..CostText::word(word, tone)
            };
        };
        let text = value(raw.value, raw.ci95, record.unit);
        if record.unit.is_counted() {
            return CostText::counted(text, range(case), case);
        }
        let decimals = number::estimate_decimals(raw.value, raw.ci95);
        let width = half_width(raw).map(|width| format!("±{}", number::percent(width)));
        CostText::timed(text, raw.ci95, decimals, width)
    }

    fn net(case: &CaseRecord, record: &Record) -> Self {
        let missing = |why: &str| CostText {
            why: Some(why.to_owned()),
            ..CostText::word(MISSING, Tone::Quiet)
        };
        match case.status {
            Status::Invalid => return CostText::raw(case, record),
            // The remedy belongs to rows of which nothing runs.
            Status::Unsupported => {
                return missing(absent::split_remedy(&notes::in_one_line(case, record)).0);
            }
            Status::Ok => {}
        }
        let unit = record.unit;
        match (record.cost(case), &case.net) {
            (Some(cost), _) if unit.is_counted() => {
                let text = value(cost.value, None, unit);
                CostText::counted(text, cost.range().map(rounded_range), case)
            }
            (Some(cost), Some(found)) => timed_net(&cost, found),
            (None, Some(found)) if is_known(found, unit) => {
                CostText::word(&net(Some(found), unit), Tone::Plain)
            }
            _ => {
                let floor = case.floor.as_deref().unwrap_or("its floor");
                missing(&line(&format!("there is no net cost without {floor}")))
            }
        }
    }

    fn word(value: &str, tone: Tone) -> Self {
        CostText {
            value: value.to_owned(),
            tone,
            ..CostText::default()
        }
    }

    fn counted(value: String, range: Option<String>, case: &CaseRecord) -> Self {
        let loads = number::plural(case.raw.as_ref().map_or(0, |raw| raw.epochs), "load");
        CostText {
            value,
            spread: match &range {
                Some(range) => format!("{range} over {loads}"),
                None if same_in_loads(case) => format!("same in {loads}"),
                None => loads,
            },
            range: range.unwrap_or_default(),
            ..CostText::default()
        }
    }

    fn timed(
        value: String,
        ci95: Option<[f64; 2]>,
        decimals: usize,
        width: Option<String>,
    ) -> Self {
        let interval = ci95.map_or_else(String::new, |ends| number::interval(ends, decimals));
        CostText {
            value,
            spread: interval.clone(),
            range: interval,
            width: width.unwrap_or_default(),
            ..CostText::default()
        }
    }
}

fn timed_net(cost: &Cost, net: &Net) -> CostText {
    let decimals = number::estimate_decimals(cost.value, cost.ends);
    if !net.distinguishable {
        return CostText {
            tone: Tone::Quiet,
            ..CostText::timed(NOTHING.to_owned(), cost.ends, decimals, None)
        };
    }
    let half = cost.ends.map(|[low, high]| (high - low) / 2.0);
    let width = half.map(|half| format!("±{}", number::fixed(half, decimals)));
    let text = number::fixed(cost.value, decimals);
    CostText::timed(text, cost.ends, decimals, width)
}

/// `293–295`, without decimals where they say nothing beside the width.
fn rounded_range(ends: [f64; 2]) -> String {
    let wide = ends[1] - ends[0] >= WIDE;
    let most = if wide { 0 } else { usize::MAX };
    let [low, high] = ends.map(|end| number::fixed(end, number::counted_decimals(end).min(most)));
    format!("{low}–{high}")
}

/// Returns true if a net is a number or a range, or indistinguishable from the harness.
fn is_known(net: &Net, unit: Unit) -> bool {
    let ends = net.value.map_or(net.bracket, |value| [value; 2]);
    is_harness(net, unit) || ends.iter().any(|end| end.is_finite())
}

/// Returns true if a net is indistinguishable from the harness. A count that is one number never is.
pub(crate) fn is_harness(net: &Net, unit: Unit) -> bool {
    let is_count = unit.is_counted() && net.value.is_some();
    !net.distinguishable && !is_count
}

/// Returns the word for a case without a result, and its tone.
pub(crate) fn no_result(status: Status) -> (&'static str, Tone) {
    match status {
        Status::Invalid => ("INVALID", Tone::Alarm),
        Status::Unsupported => ("not run", Tone::Quiet),
        Status::Ok => (MISSING, Tone::Quiet),
    }
}

/// Returns the raw cost of a valid case.
pub(crate) fn valid(case: &CaseRecord) -> Option<&Raw> {
    case.raw.as_ref().filter(|_| case.status == Status::Ok)
}

/// `100 (+53 %)`: the cost as found, and the increase over the undisturbed cost.
pub(crate) fn as_found(found: f64, undisturbed: f64) -> String {
    let more = number::change(found / undisturbed - 1.0, None).0;
    let found = number::fixed(found, number::estimate_decimals(undisturbed, None));
    format!("{found} ({more})")
}

/// Heading above [`CostText::spread`].
pub(crate) fn spread_heading(unit: Unit) -> &'static str {
    if unit.is_counted() {
        "loads"
    } else {
        "95 % interval"
    }
}

/// Returns true if a count is the same in all of several loads, but for the rounding of the clock.
pub(crate) fn same_in_loads(case: &CaseRecord) -> bool {
    let raw = case.raw.as_ref().filter(|raw| raw.epochs > 1);
    raw.and_then(|raw| raw.loads)
        .is_some_and(|[low, high]| high - low <= recorded_rounding(case))
}

/// `293–295`, where a count differs from load to load.
pub(crate) fn range(case: &CaseRecord) -> Option<String> {
    let loads = case.raw.as_ref()?.loads;
    let [low, high] = loads.filter(|[low, high]| high - low > recorded_rounding(case))?;
    let [low, high] = number::apart([low, high]);
    Some(format!("{low}–{high}"))
}

/// Net cost: one number, a range, or that it is indistinguishable from the harness.
pub(crate) fn net(net: Option<&Net>, unit: Unit) -> String {
    let Some(net) = net else {
        return String::new();
    };
    if is_harness(net, unit) {
        return HARNESS.to_owned();
    }
    if let Some(one) = net.value {
        return value(one, net.ci95, unit);
    }
    let [low, high] = net.bracket;
    let [low, high] = [low, high].map(|end| number::fixed(end, number::decimals(high - low)));
    if low == high {
        low
    } else {
        format!("{low}–{high}")
    }
}

/// Interval of a net that is one number; empty otherwise.
pub(crate) fn net_interval(net: &Net) -> String {
    match (net.value, net.ci95) {
        (Some(value), Some(ci95)) if net.distinguishable => {
            number::interval(ci95, number::estimate_decimals(value, Some(ci95)))
        }
        _ => String::new(),
    }
}
