//! Sessions on machines whose level moves with the day, the hour and now and then by a lot; and `compare`,
//! which knows of that only what earlier sessions and the sentinel showed.

use crate::machines::{ADDED, AT_REST, MACHINES, Machine};
use crate::noise::Dice;
use bpfcost_stats::estimate::Interval;
use bpfcost_stats::sample::median;
use bpfcost_stats::session_spread::{Level, SessionSpread, SessionSpreads};
use bpfcost_stats::sessions::{Session, Sides, judge_sessions};
use bpfcost_stats::{Estimate, Policy, Sense, Verdict};

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;
/// Standard error of a session's value within the session.
const OWN: f64 = 0.002;
/// The sentinel's own noise.
const SENTINEL: f64 = 0.002;
/// The move of the sentinel that counts as one: the margin of kernel costs.
const MOVED: f64 = 0.01;
/// The gate's threshold for costs, and for what probes add.
const THRESHOLD: f64 = 0.02;
const THRESHOLD_ADDED: f64 = 0.03;
/// The least spread assumed of what a small probe adds.
const ASSUMED_ADDED: SessionSpreads = SessionSpreads {
    within: SessionSpread::assumed(0.01),
    between: SessionSpread::assumed(0.01),
};

/// The quantity that is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    AsFound,
    /// Undisturbed costs: each case is judged by its own sessions.
    Undisturbed,
    /// The ratio of the cost with a probe to that without.
    Added,
}

/// When the sides were measured: for each session the hour, and whether it is of the new side.
#[derive(Clone, Copy)]
pub(crate) struct Arrangement {
    pub(crate) name: &'static str,
    sessions: usize,
    /// The hour of session `index` of a side.
    hour: fn(index: usize, is_new: bool) -> f64,
    pub(crate) cases: usize,
    pub(crate) compared: Compared,
}

fn later(is_new: bool, hours: f64) -> f64 {
    if is_new { hours } else { 0.0 }
}

impl Arrangement {
    const fn new(
        name: &'static str,
        sessions: usize,
        cases: usize,
        hour: fn(usize, bool) -> f64,
    ) -> Self {
        Arrangement {
            name,
            sessions,
            hour,
            cases,
            compared: Compared::AsFound,
        }
    }

    const fn comparing(self, compared: Compared) -> Self {
        Arrangement { compared, ..self }
    }

    /// The machines on which it is simulated.
    pub(crate) fn machines(&self) -> &'static [Machine] {
        match self.compared {
            Compared::AsFound => &MACHINES,
            Compared::Undisturbed => &AT_REST,
            Compared::Added => &ADDED,
        }
    }
}

/// Sessions 6 minutes apart, the new side so many hours later.
fn one_side_then(index: usize, is_new: bool, hours: f64) -> f64 {
    0.1 * index as f64 + later(is_new, hours)
}

/// The sides in turn, 6 minutes apart: a session of each, then the next after so many hours.
fn in_turn(index: usize, is_new: bool, hours: f64) -> f64 {
    hours * index as f64 + later(is_new, 0.1)
}

/// The arrangements that are simulated.
pub(crate) const ARRANGEMENTS: [Arrangement; 17] = [
    Arrangement::new("1 a side, minutes apart, 8 cases", 1, 8, |i, new| {
        one_side_then(i, new, 0.1)
    }),
    Arrangement::new("1 a side, days apart, 8 cases", 1, 8, |i, new| {
        one_side_then(i, new, 48.0)
    }),
    Arrangement::new("4 a side, a day each side, 1 case", 4, 1, |i, new| {
        one_side_then(i, new, 24.0)
    }),
    Arrangement::new("7 a side, a day each side, 25 cases", 7, 25, |i, new| {
        one_side_then(i, new, 24.0)
    }),
    Arrangement::new("4 a side, one after the other, 1 case", 4, 1, |i, new| {
        one_side_then(i, new, 0.4)
    }),
    Arrangement::new("4 a side, each a day, old first, 1 case", 4, 1, |i, new| {
        24.0 * i as f64 + later(new, 96.0)
    }),
    Arrangement::new("4 a side in turn, one sitting, 1 case", 4, 1, |i, new| {
        in_turn(i, new, 0.2)
    }),
    Arrangement::new(
        "7 a side in turn, one sitting, 25 cases",
        7,
        25,
        |i, new| in_turn(i, new, 0.2),
    ),
    Arrangement::new("4 a side in turn, a pair a day, 1 case", 4, 1, |i, new| {
        in_turn(i, new, 24.0)
    }),
    Arrangement::new(
        "undisturbed, 1 a side, minutes apart, 25 cases",
        1,
        25,
        |i, new| one_side_then(i, new, 0.1),
    )
    .comparing(Compared::Undisturbed),
    Arrangement::new(
        "undisturbed, 1 a side, days apart, 25 cases",
        1,
        25,
        |i, new| one_side_then(i, new, 48.0),
    )
    .comparing(Compared::Undisturbed),
    Arrangement::new(
        "undisturbed, 4 a side, a day each side, 1 case",
        4,
        1,
        |i, new| one_side_then(i, new, 24.0),
    )
    .comparing(Compared::Undisturbed),
    Arrangement::new(
        "undisturbed, 4 a side, a day each side, 25 cases",
        4,
        25,
        |i, new| one_side_then(i, new, 24.0),
    )
    .comparing(Compared::Undisturbed),
    Arrangement::new("added, 1 a side, 8 probes", 1, 8, |i, new| {
        in_turn(i, new, 0.2)
    })
    .comparing(Compared::Added),
    Arrangement::new("added, 2 a side in turn, 1 probe", 2, 1, |i, new| {
        in_turn(i, new, 0.2)
    })
    .comparing(Compared::Added),
    Arrangement::new("added, 2 a side in turn, 8 probes", 2, 8, |i, new| {
        in_turn(i, new, 0.2)
    })
    .comparing(Compared::Added),
    Arrangement::new("added, 3 a side in turn, 8 probes", 3, 8, |i, new| {
        in_turn(i, new, 0.2)
    })
    .comparing(Compared::Added),
];

/// The sessions that a machine has kept: days, and sessions on each.
#[derive(Clone, Copy)]
pub(crate) struct History {
    pub(crate) name: &'static str,
    days: usize,
    each: usize,
}

impl History {
    const fn new(name: &'static str, days: usize, each: usize) -> Self {
        History { name, days, each }
    }
}

/// The histories that are simulated.
pub(crate) const HISTORIES: [History; 4] = [
    History::new("none", 0, 0),
    History::new("one sitting of 6", 1, 6),
    History::new("5 days of 3", 5, 3),
    History::new("12 days of 2", 12, 2),
];

/// The results of `compare` where nothing had changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Share of 95 % intervals that hold no change; 1 without any.
    pub(crate) coverage: f64,
    /// Share of comparisons with a case that is said to differ.
    pub(crate) differs: f64,
    /// Share of comparisons in which the gate fails.
    pub(crate) gate: f64,
    /// Median half-width of a 95 % interval.
    pub(crate) half_width: f64,
}

/// Simulates `runs` comparisons of nothing with nothing.
pub(crate) fn compared(
    machine: Machine,
    arrangement: Arrangement,
    history: History,
    runs: usize,
    seed: u64,
) -> Outcome {
    let threshold = match arrangement.compared {
        Compared::AsFound | Compared::Undisturbed => THRESHOLD,
        Compared::Added => THRESHOLD_ADDED,
    };
    let policy = Policy {
        margin: threshold,
        budget: None,
        sense: Sense::Cost,
    };
    let (mut held, mut differs, mut gate) = (0usize, 0usize, 0usize);
    let mut widths = Vec::new();
    for run in 0..runs {
        let mut world = World::new(machine, arrangement.cases, seed ^ (run as u64) << 20);
        // The history ends ten days before.
        let mut kept = vec![Vec::new(); arrangement.cases];
        for day in 0..history.days {
            for index in 0..history.each {
                let hour = 24.0 * (day as f64 - 10.0 - history.days as f64) + 0.1 * index as f64;
                let session = world.session(hour);
                for (levels, value) in kept.iter_mut().zip(&session.values) {
                    levels.push(Level {
                        began_s: hour * HOUR,
                        value: *value,
                    });
                }
            }
        }
        let mut order: Vec<(f64, bool)> = [false, true]
            .into_iter()
            .flat_map(|is_new| {
                (0..arrangement.sessions).map(move |i| ((arrangement.hour)(i, is_new), is_new))
            })
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sessions = [Vec::new(), Vec::new()];
        for (hour, is_new) in order {
            sessions[usize::from(is_new)].push((hour, world.session(hour)));
        }
        // What one side's own sessions show counts as history does.
        let own = sessions.iter().flat_map(|side| {
            (0..arrangement.cases).map(|case| {
                let level = |(hour, one): &(f64, SimulatedSession)| Level {
                    began_s: hour * HOUR,
                    value: one.values[case],
                };
                side.iter().map(level).collect::<Vec<Level>>()
            })
        });
        kept.extend(own);
        let assumed = match arrangement.compared {
            Compared::AsFound => SessionSpreads::ASSUMED,
            Compared::Undisturbed => SessionSpreads::ASSUMED_UNDISTURBED,
            Compared::Added => ASSUMED_ADDED,
        };
        let pooled = SessionSpreads::learnt(&kept, &assumed);
        let spreads = |case: usize| {
            if arrangement.compared != Compared::Undisturbed {
                return pooled;
            }
            // Each case has a list of the history and one of each side.
            let own = kept.iter().skip(case).step_by(arrangement.cases);
            SessionSpreads::of_undisturbed(&own.collect::<Vec<_>>(), &pooled)
        };
        let sentinel = |side: &[(f64, SimulatedSession)]| {
            median(&side.iter().map(|one| one.1.sentinel).collect::<Vec<_>>()).unwrap_or(1.0)
        };
        let moved = sentinel(&sessions[1]) / sentinel(&sessions[0]) - 1.0;
        let sides: Vec<Sides> = (0..arrangement.cases)
            .map(|case| {
                let [old, new] = [&sessions[0], &sessions[1]].map(|side| {
                    let one = |(hour, one): &(f64, SimulatedSession)| Session {
                        began_s: hour * HOUR,
                        estimate: one.estimate(case),
                    };
                    side.iter().map(one).collect()
                });
                Sides {
                    machine: if moved.abs() > MOVED { moved } else { 0.0 },
                    spreads: spreads(case),
                    unassumed: arrangement.compared == Compared::Added,
                    ..Sides::new(old, new)
                }
            })
            .collect();
        let judged = judge_sessions(&sides, sides.len(), &policy);
        let alarm = |verdict| matches!(verdict, Verdict::Slower | Verdict::Faster);
        let beyond = |interval: Option<Interval>| {
            interval.is_some_and(|i| i.low > threshold || i.high < -threshold / (1.0 + threshold))
        };
        differs += usize::from(judged.iter().any(|one| alarm(one.verdict)));
        let failed = |one: &bpfcost_stats::sessions::SessionComparison| {
            one.verdict == Verdict::Slower && beyond(one.relative90)
        };
        gate += usize::from(judged.iter().any(failed));
        for interval in judged.iter().filter_map(|one| one.relative) {
            let interval = interval.interval();
            held += usize::from(interval.contains(0.0));
            widths.push(interval.half_width());
        }
    }
    let share = |count: usize| count as f64 / runs as f64;
    Outcome {
        // Where nothing can be said, nothing is false.
        coverage: if widths.is_empty() {
            1.0
        } else {
            held as f64 / widths.len() as f64
        },
        differs: share(differs),
        gate: share(gate),
        half_width: median(&widths).unwrap_or(f64::NAN),
    }
}

/// A machine through time.
struct World {
    machine: Machine,
    dice: Dice,
    /// The day, what it does to everything, and what to each case.
    day: (f64, f64, Vec<f64>),
    drift: f64,
    /// The part of a lower clock that each case shares.
    shares: Vec<f64>,
}

struct SimulatedSession {
    values: Vec<f64>,
    sentinel: f64,
}

impl SimulatedSession {
    fn estimate(&self, case: usize) -> Estimate {
        let (value, half) = (self.values[case], 1.96 * OWN);
        Estimate {
            value,
            low: value * (1.0 - half),
            high: value * (1.0 + half),
        }
    }
}

impl World {
    fn new(machine: Machine, cases: usize, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let shares = (0..cases).map(|_| 0.5 + 0.5 * dice.uniform()).collect();
        Self {
            machine,
            dice,
            day: (f64::NEG_INFINITY, 0.0, vec![0.0; cases]),
            drift: 0.0,
            shares,
        }
    }

    /// A session that begins in that hour. Half of what days and sessions do (as variances), they do to all
    /// cases alike.
    fn session(&mut self, hour: f64) -> SimulatedSession {
        let cases = self.shares.len();
        let Machine { within, days, .. } = self.machine;
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let day = (hour * HOUR / DAY).floor();
        if day > self.day.0 {
            let own = (0..cases)
                .map(|_| days * half * self.dice.normal())
                .collect();
            self.day = (day, days * half * self.dice.normal(), own);
            self.drift = 0.0;
        }
        self.drift += self.machine.drift * self.dice.normal();
        // Student's t with 2 degrees of freedom, or 1.
        let tail = if self.machine.heavy {
            1.0 / (-(1.0 - self.dice.uniform()).ln()).sqrt()
        } else {
            1.0
        };
        let clock = if self.dice.uniform() < self.machine.throttled {
            1.2f64.ln()
        } else {
            0.0
        };
        let all = self.day.1 + self.drift + within * half * tail * self.dice.normal();
        let values = (0..cases)
            .map(|case| {
                let own = within * half * tail * self.dice.normal() + OWN * self.dice.normal();
                let log = all + self.day.2[case] + own + clock * self.shares[case];
                50.0 * log.exp()
            })
            .collect();
        SimulatedSession {
            values,
            sentinel: (all
                + f64::from(u8::from(self.machine.sentinel_slows)) * clock
                + SENTINEL * self.dice.normal())
            .exp(),
        }
    }
}
