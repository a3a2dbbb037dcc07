//! Neighbours on a shared machine, slice by slice: what they do to batches, and whether the undisturbed cost is still read.
//!
//! Time runs on through all batches. A neighbour works in bursts; while it does, every slice takes longer, by a part that
//! differs from burst to burst and a little from slice to slice. Cases take turns, so that the batches of one case lie
//! apart. What is not the neighbours' doing: each slice's own work, which may differ from slice to slice, and what a load
//! does to a case for an epoch.

use bpfcost_stats::{
    Differences, Estimate, Sample, hodges_lehmann, sample::median, undisturbed::undisturbed,
};

use super::noise::Dice;

/// Slices of a batch that count, and batches of an epoch.
pub(crate) const SLICES: usize = 254;
pub(crate) const BATCHES: usize = 3;

/// The other work on the machine, which comes in bursts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Neighbours {
    pub(crate) name: &'static str,
    /// The share of the time in which they work.
    share: f64,
    /// The mean length of a burst, in slices.
    burst: f64,
    /// The range of the slowdown of a slice in a burst, as a share.
    slowdown: [f64; 2],
    /// The standard deviation of a slice's slowdown from that of its burst, as a share of it.
    jitter: f64,
    /// The slowdown of everything by the end of the run: warmer, other clocks.
    drift: f64,
    /// One slice in so many is longer by a third: timer ticks; 0 for none.
    ticks: usize,
}

const NONE: Neighbours = Neighbours {
    name: "none",
    share: 0.0,
    burst: 1.0,
    slowdown: [0.0; 2],
    jitter: 0.2,
    drift: 0.0,
    ticks: 0,
};

impl Neighbours {
    /// The same in slices that are shorter by a factor: bursts take as many times more of them.
    pub(crate) fn in_slices_shorter_by(self, times: usize) -> Self {
        Self {
            burst: self.burst * times as f64,
            ticks: self.ticks * times,
            ..self
        }
    }

    pub(crate) const ALL: [Self; 10] = [
        NONE,
        Self {
            name: "ticks",
            ticks: 100,
            ..NONE
        },
        Self {
            name: "short bursts",
            share: 0.5,
            burst: 5.0,
            slowdown: [0.1, 0.6],
            ..NONE
        },
        Self {
            name: "bursts",
            share: 0.5,
            burst: 100.0,
            slowdown: [0.1, 0.6],
            ticks: 100,
            ..NONE
        },
        Self {
            name: "long bursts",
            share: 0.7,
            burst: 20_000.0,
            slowdown: [0.1, 0.6],
            ..NONE
        },
        Self {
            name: "busy",
            share: 0.9,
            burst: 300.0,
            slowdown: [0.05, 0.6],
            ticks: 100,
            ..NONE
        },
        Self {
            name: "slight",
            share: 0.7,
            burst: 300.0,
            slowdown: [0.01, 0.05],
            ..NONE
        },
        Self {
            name: "faint",
            share: 0.7,
            burst: 300.0,
            slowdown: [0.005, 0.02],
            ..NONE
        },
        Self {
            name: "busy, drifting",
            share: 0.8,
            burst: 300.0,
            slowdown: [0.1, 0.6],
            drift: 0.01,
            ..NONE
        },
        Self {
            name: "steady bursts",
            share: 0.5,
            burst: 100.0,
            slowdown: [0.1, 0.6],
            jitter: 0.0,
            ..NONE
        },
    ];

    /// The kind that is not noticed: it slows all slices of a batch alike.
    pub(crate) const UNNOTICED: [Self; 2] = [
        Self {
            name: "steady, rare",
            share: 0.1,
            burst: 2_500.0,
            slowdown: [0.1, 0.6],
            jitter: 0.0,
            ..NONE
        },
        Self {
            name: "steady, often",
            share: 0.5,
            burst: 2_500.0,
            slowdown: [0.1, 0.6],
            jitter: 0.0,
            ..NONE
        },
    ];
}

/// Relative standard deviations of the work of slices.
pub(crate) const WORKS: [f64; 5] = [0.0005, 0.003, 0.009, 0.012, 0.03];

/// The cost of the first case's floor, whose slices do the same work each.
const FLOOR: f64 = 0.3;

/// The machine, at a moment.
pub(crate) struct Machine {
    neighbours: Neighbours,
    dice: Dice,
    /// The slowdown of slices in the current burst; 0 between bursts.
    slowdown: f64,
    /// The number of slices so far.
    now: usize,
    /// Slices of the run.
    length: usize,
}

impl Machine {
    pub(crate) fn new(neighbours: Neighbours, length: usize, seed: u64) -> Self {
        let mut machine = Machine {
            neighbours,
            dice: Dice::new(seed),
            slowdown: 0.0,
            now: 0,
            length,
        };
        if machine.dice.uniform() < neighbours.share {
            machine.burst();
        }
        machine
    }

    fn burst(&mut self) {
        let [from, to] = self.neighbours.slowdown;
        self.slowdown = from + (to - from) * self.dice.uniform();
    }

    /// Returns the time of one slice of so much work.
    pub(crate) fn slice(&mut self, work: f64) -> f64 {
        self.sensitive_slice(work, 1.0)
    }

    /// The same of work that a burst slows `sensitivity` times as much.
    pub(crate) fn sensitive_slice(&mut self, work: f64, sensitivity: f64) -> f64 {
        let Neighbours {
            share,
            burst,
            jitter,
            drift,
            ticks,
            ..
        } = self.neighbours;
        self.now += 1;
        let turn = self.dice.uniform();
        if self.slowdown > 0.0 && turn < 1.0 / burst {
            self.slowdown = 0.0;
        } else if self.slowdown == 0.0 && share > 0.0 && turn < share / (1.0 - share) / burst {
            self.burst();
        }
        let scatter = 1.0 + jitter * self.dice.normal();
        let tick = if ticks > 0 && self.now.is_multiple_of(ticks) {
            0.33
        } else {
            0.0
        };
        let drift = drift * self.now as f64 / self.length as f64;
        work * (1.0 + sensitivity * self.slowdown * scatter.max(0.2) + tick) * (1.0 + drift)
    }

    /// Time in which another case is measured.
    pub(crate) fn pass(&mut self, slices: usize) {
        for _ in 0..slices {
            self.slice(1.0);
        }
    }
}

/// The accuracy of runs on a cost of 1, and on a difference of 2 % between two cases.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The share of runs whose interval holds the true cost, and the true difference.
    pub(crate) own: f64,
    pub(crate) difference: f64,
    /// The same of its cost without the floor.
    pub(crate) net: f64,
    /// Mean half-width of the interval of the cost, in percent; and of the one as found.
    pub(crate) width: f64,
    pub(crate) found_width: f64,
    /// Mean error in percent.
    pub(crate) bias: f64,
    /// The same of the 5th percentile of an epoch's slices, which was rejected; and as found.
    pub(crate) percentile_bias: f64,
    pub(crate) found_bias: f64,
    /// The share of runs that give the number at all.
    pub(crate) known: f64,
}

/// Simulates `runs` runs of `epochs` epochs.
pub(crate) fn reading(
    neighbours: Neighbours,
    work: f64,
    epochs: usize,
    runs: usize,
    seed: u64,
) -> Reading {
    let mut reading = Reading::default();
    let (mut known, mut compared) = (0.0, 0.0);
    for run in 0..runs {
        let run_seed = seed ^ (run as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let length = epochs * BATCHES * 10 * SLICES;
        let mut machine = Machine::new(neighbours, length, run_seed);
        let mut dice = Dice::new(run_seed ^ 1);
        let mut slices: [Vec<Vec<Vec<f64>>>; 3] = Default::default();
        let (mut found, mut percentile) = (vec![], vec![]);
        for _ in 0..epochs {
            let loads = [1.0, 1.02, FLOOR].map(|level| level * (1.0 + 0.003 * dice.normal()));
            let mut batches: [Vec<Vec<f64>>; 3] = Default::default();
            for _ in 0..BATCHES {
                for (case, load) in loads.into_iter().enumerate() {
                    let work = if case == 2 { WORKS[0] } else { work };
                    let slice = |_| {
                        let own = load * (1.0 + work * dice.normal());
                        machine.slice(own)
                    };
                    batches[case].push((0..SLICES).map(slice).collect());
                }
                machine.pass(7 * SLICES);
            }
            let means = batches[0]
                .iter()
                .map(|batch| batch.iter().sum::<f64>() / SLICES as f64);
            found.push(median(&means.collect::<Vec<f64>>()).unwrap_or(f64::NAN));
            let slices_of_epoch = Sample::new(&batches[0].concat());
            percentile.push(slices_of_epoch.map_or(f64::NAN, |all| all.quantile(0.05)));
            for (case, batches) in batches.into_iter().enumerate() {
                slices[case].push(batches);
            }
        }
        let [first, second, floor] = slices.map(|epochs| undisturbed(&epochs).ok());
        let truth = 1.0 + neighbours.drift / 2.0;
        reading.percentile_bias +=
            100.0 * (hodges_lehmann(&percentile).unwrap_or(f64::NAN) - truth) / runs as f64;
        if let Some(found) = Estimate::for_case(&found) {
            reading.found_bias += 100.0 * (found.value - truth) / runs as f64;
            reading.found_width += 100.0 * (found.high - found.low) / 2.0;
        }
        let (Some(first), Some(second), Some(floor)) = (first, second, floor) else {
            continue;
        };
        let Some(own) = first.estimate() else {
            continue;
        };
        known += 1.0;
        reading.width += 100.0 * (own.high - own.low) / 2.0;
        reading.bias += 100.0 * (own.value - truth);
        reading.own += f64::from(u8::from(own.low <= truth && truth <= own.high));
        let nets = first.values.iter().zip(&floor.values);
        if let Some(net) =
            Estimate::for_case(&nets.map(|(case, floor)| case - floor).collect::<Vec<_>>())
        {
            // As record/net.rs has it: either part may be too high by what a neighbour added without notice.
            let (low, high) = (net.low - first.blind, net.high + FLOOR * floor.blind);
            let truth = truth * (1.0 - FLOOR);
            reading.net += f64::from(u8::from(low <= truth && truth <= high));
        }
        let difference = Differences::pair(&second.values, &first.values);
        if let Some(difference) = Estimate::for_difference(&difference.log_ratio) {
            let truth = 1.02f64.ln();
            compared += 1.0;
            let holds = difference.low <= truth && truth <= difference.high;
            reading.difference += f64::from(u8::from(holds));
        }
    }
    let runs = runs as f64;
    reading.found_width /= runs;
    reading.known = known / runs;
    for figure in [
        &mut reading.width,
        &mut reading.bias,
        &mut reading.own,
        &mut reading.net,
    ] {
        *figure /= f64::max(known, 1.0);
    }
    reading.difference /= f64::max(compared, 1.0);
    reading
}
