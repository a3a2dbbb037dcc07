//! What a model of cache lines says of machines that nobody measured here, and how it does where others
//! published what they measured.

use serde::{Deserialize, Serialize};

/// What the model says. Nothing in it was measured but [`Lines`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// What the model was calibrated with.
    pub lines: Lines,
    /// This machine's curves, and on to more CPUs; none where what the loop costs by itself was not measured.
    pub curves: Vec<PredictedCurve>,
    /// Published tables beside what the model says of their machines.
    pub tables: Vec<PublishedTable>,
}

impl Prediction {
    /// What a pool should do with so many threads on this machine, per second.
    pub fn rate(&self, series: &str, threads: u32) -> Option<f64> {
        let curve = self.curves.iter().find(|curve| curve.series == series)?;
        let point = curve.points.iter().find(|point| point.threads == threads)?;
        Some(point.rate)
    }

    /// Whether a parameter of the model was fitted to this point, on the machine that it was written on: how
    /// long a core keeps a line that another has asked for. Then it tests little.
    pub fn fitted(series: &str, threads: u32) -> bool {
        (series, threads) == ("freelist", 2)
    }
}

/// What moving a cache line costs, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lines {
    /// An atomic change of a line that this CPU owns.
    pub own_ns: f64,
    /// The same, of a line that another CPU of the socket owned last.
    pub near_ns: f64,
    /// The same, where that was a CPU of another socket.
    pub far_ns: f64,
    /// What of these was not measured, and what it was taken from.
    pub assumed: Vec<String>,
}

/// What one pool should do at several numbers of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedCurve {
    /// The value of the factor that names curves: `freelist`.
    pub series: String,
    /// Threads and operations per second of all together, by threads.
    pub points: Vec<PredictedPoint>,
}

/// One point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedPoint {
    /// Threads, one on each CPU.
    pub threads: u32,
    /// Operations per second of all together.
    pub rate: f64,
}

/// A table that was published elsewhere, of another machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedTable {
    /// What was measured, and on what.
    pub title: String,
    /// Where it stands.
    pub source: String,
    /// What of the machine the model was told, in a line.
    pub machine: String,
    /// What its numbers are counted in, of all threads together.
    pub unit: String,
    /// By pool, then by threads.
    pub rows: Vec<PublishedRow>,
}

/// One published number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedRow {
    /// `freelist`, `array`, …
    pub series: String,
    /// Threads.
    pub threads: u32,
    /// As published.
    pub published: f64,
    /// As the model says, in the same unit.
    pub predicted: f64,
    /// Whether the point decided a parameter of the model: then it tests nothing.
    pub fitted: bool,
    /// What a reader should know of the point ("looks like a misprint").
    pub note: Option<String>,
}

impl PublishedRow {
    /// How far the model is off, as a factor of at least 1; `None` unless both are above 0.
    pub fn factor(&self) -> Option<f64> {
        if !(self.predicted > 0.0 && self.published > 0.0) {
            return None;
        }
        let ratio = self.predicted / self.published;
        let factor = ratio.max(1.0 / ratio);
        factor.is_finite().then_some(factor)
    }

    /// Whether the model is within 2 times of what was published.
    pub fn within(&self) -> bool {
        self.factor().is_some_and(|factor| factor <= 2.0)
    }
}
