//! The count of a case as its record has it.

use bpfcost_measure::Calibration;
use bpfcost_stats::Sample;

use crate::CaseRecord;

/// Rounding of the counts of a case, from its record.
pub fn recorded_rounding(case: &CaseRecord) -> f64 {
    rounding(case.calibration)
}

/// The number of loads that must agree to represent a case whose trials don't: two may by chance.
const AGREEING_LOADS: usize = 3;

/// The range of a case that a comparison goes by, from its record alone. What the clock rounds is no range.
pub(super) fn recorded_range(case: &CaseRecord) -> Option<[f64; 2]> {
    let raw = case.raw.as_ref()?;
    let [low, high] = raw.loads?;
    let repeats = raw.repeats != Some(0) || raw.epochs >= AGREEING_LOADS;
    let [low, high] = if repeats && high - low <= recorded_rounding(case) {
        [raw.value; 2]
    } else if raw.repeats == Some(0) {
        [raw.min, raw.max]
    } else {
        [low, high]
    };
    let mean = rare_work(case).map_or(raw.value, |rare| rare.mean);
    Some([low.min(mean), high.max(mean)])
}

/// Batches that disagree with the count on which most agree: work that is done now and then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RareWork {
    /// Batches that disagree, and all.
    pub batches: [usize; 2],
    /// The mean of all.
    pub mean: f64,
}

/// The fewest disagreeing batches that are no accident: one may have been interrupted without notice.
const FEWEST_RARE: usize = 2;

/// The mean number of instructions from which work that is done now and then counts: half of the one that a gate sees.
const MIN_RARE: f64 = 0.5;

/// The batches of a counted case that disagree with its count, if they are more than an accident; `None` where no count
/// repeats.
pub fn rare_work(case: &CaseRecord) -> Option<RareWork> {
    let raw = case.raw.as_ref().filter(|raw| raw.repeats > Some(0))?;
    let [low, high] = raw.loads?;
    let rounding = recorded_rounding(case);
    let samples = Sample::new(&case.samples.concat())?;
    let agrees = |value: &&f64| (low - rounding..=high + rounding).contains(*value);
    let agree = samples.values().iter().filter(agrees).count();
    let batches = [samples.len() - agree, samples.len()];
    let mean = samples.mean();
    let beyond = f64::max(mean - high, low - mean);
    let differs = batches[0] >= FEWEST_RARE && beyond > MIN_RARE.max(rounding);
    differs.then_some(RareWork { batches, mean })
}

/// Operations over which the clock's rounding is spread.
pub(super) fn ops(calibration: Option<Calibration>) -> u64 {
    calibration.map_or(1, |calibration| calibration.batch.0)
}

/// The largest difference between two values that are the same: the clock rounds.
pub(super) fn rounding(calibration: Option<Calibration>) -> f64 {
    match calibration {
        Some(Calibration { traced: true, .. }) => 0.0,
        _ => 4.0 / ops(calibration) as f64,
    }
}
