//! An estimate as text, and how exact it is.

use bpfcost_model::Unit;
use bpfcost_record::Raw;
use bpfcost_text::number;

/// Decimals of a value: as many as its interval supports, or as a count needs.
pub fn decimals(value: f64, ci95: Option<[f64; 2]>, unit: Unit) -> usize {
    if unit.is_counted() {
        number::counted_decimals(value)
    } else {
        number::estimate_decimals(value, ci95)
    }
}

/// A value without its unit.
pub fn value(value: f64, ci95: Option<[f64; 2]>, unit: Unit) -> String {
    number::fixed(value, decimals(value, ci95, unit))
}

/// Half the width of a case's interval, as a share of its value.
pub(crate) fn half_width(raw: &Raw) -> Option<f64> {
    let [low, high] = raw.ci95?;
    let share = (high - low) / 2.0 / raw.value.abs();
    share.is_finite().then_some(share)
}

/// Uncertainty as a share of the value: half the interval, or the whole range over loads.
pub(crate) fn relative_spread(raw: &Raw, unit: Unit) -> Option<f64> {
    if unit.is_counted() {
        let [low, high] = raw.loads?;
        Some((high - low) / raw.value.abs()).filter(|share| share.is_finite())
    } else {
        half_width(raw)
    }
}
