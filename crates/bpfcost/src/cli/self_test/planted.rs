//! Planted faults: a self-test must find each at least 19 times in 20, and pass a healthy machine as often.

use std::thread;

use bpfcost_bpf::OutsideTime;
use rand::RngExt;
use rand_pcg::{Pcg64Mcg, rand_core::SeedableRng};

use super::{
    Observed, RUNS, THOROUGH_RUNS,
    batches::{BatchReading, SliceReading},
    checks::{self, Outcome},
    clock::ClockReading,
    ladder::{LadderReading, product},
};
use bpfcost_measure::{CaseData, Measurements, Plan};
use bpfcost_model::{Case, Pair};
use bpfcost_record::{Record, SessionSpreadRecord, SessionSpreadsRecord, VerdictRecord};

/// Self-tests that are simulated for each fault.
const SELF_TESTS: u64 = 100;
const CASES: usize = 4;
const EPOCHS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// Two cases that cost the same differ by 1 % in each load, and not in the same direction from load to load.
    Placement,
    /// Whatever is loaded first is 2 % slower.
    Bias,
    FloorOfZero,
    /// The floor holds 50 ns that are of something else.
    FloorTooHigh,
    /// Intervals are too narrow by so much.
    Narrow(f64),
    /// What an epoch brings resembles what the one before it brought, by this correlation.
    Dependent(f64),
    /// A comparison is said to differ in 15 of 100, whatever its interval.
    LooseVerdicts,
    /// One operation in a thousand is not done.
    DroppedHit,
    /// Sessions differ by 10 %.
    SessionsApart,
    /// Records say that sessions differ by a tenth of what they do.
    SpreadTooSmall,
    /// The clock's rate drifts by 1 % over the self-test.
    DriftingClock,
    /// Every batch takes this share of its time by the clock of its program.
    BatchClock(f64),
    /// Reads of the clock are not subtracted from slices.
    ReadsInSlices,
    /// They are not subtracted from batches.
    ReadsInBatches,
}

struct Machine {
    fault: Fault,
    /// A/A runs of a self-test.
    runs: u32,
    rng: Pcg64Mcg,
}

impl Machine {
    fn normal(&mut self) -> f64 {
        // The sum of twelve uniform numbers is near enough.
        (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0
    }

    /// The rungs of a machine on which a cycle takes 0.35 ns.
    fn ladder(&mut self) -> Vec<LadderReading> {
        let ops = 1000;
        let reading = |rung: u32| {
            let noise = 1.0 + 0.01 * self.normal();
            let done = match self.fault {
                Fault::DroppedHit => ops - ops / 1000,
                _ => ops,
            };
            let wrong = rung > 0 && product(3, rung, done) != product(3, rung, ops);
            let cost = match (self.fault, rung) {
                (Fault::FloorOfZero, 0) => 0.0,
                (Fault::FloorTooHigh, _) => 51.6 + 1.05 * f64::from(rung) * noise,
                _ => (1.6 + 1.05 * f64::from(rung)) * noise * done as f64 / ops as f64,
            };
            LadderReading {
                rung,
                cost,
                wrong: usize::from(wrong),
            }
        };
        bpfcost_bpf::ladder::RUNGS.map(reading).to_vec()
    }

    /// 20 runs of 5 s, by a counter of 2.1 GHz.
    fn clock(&mut self) -> Vec<ClockReading> {
        let drift = match self.fault {
            Fault::DriftingClock => 0.01,
            _ => 0.0,
        };
        let readings = 0..=self.runs;
        let reading = |number: u32| {
            let s = 5.0 * f64::from(number);
            let share = f64::from(number) / f64::from(self.runs);
            ClockReading {
                // The rate rises in proportion to time; a reading is some microseconds late.
                kernel_ns: 1e9 * s * (1.0 + drift * share / 2.0) + 1e4 * self.normal().abs(),
                counter: 2.1e9 * s,
            }
        };
        readings.map(reading).collect()
    }

    /// Batches of 5 and 10 ms, each with 20 µs around it and some interrupts; in half of them the thread lost its CPU behind
    /// it for some milliseconds, and in one of ten the host took the CPU away for a tenth of the time.
    fn batches(&mut self) -> Vec<BatchReading> {
        let rate = match self.fault {
            Fault::BatchClock(rate) => rate,
            _ => 1.0,
        };
        let reading = |number: u32| {
            let twice = number % 2 == 1;
            let length_ns = if twice { 1e7 } else { 5e6 };
            let stolen_ns = if self.rng.random::<f64>() < 0.1 {
                length_ns / 10.0
            } else {
                0.0
            };
            let lost_ns = if self.rng.random() { 3e6 } else { 0.0 };
            let inside_ns = length_ns * (1.0 + 0.05 * self.normal().abs()) + stolen_ns;
            let around_ns = 2e4 + 2e4 * self.normal().abs();
            BatchReading {
                twice,
                inside_ns: (inside_ns * rate) as u64,
                outside: OutsideTime {
                    elapsed_ns: (inside_ns + around_ns + lost_ns) as u64,
                    cpu_ns: (inside_ns + around_ns - stolen_ns) as u64,
                    waits: 0,
                },
            }
        };
        (0..40).map(reading).collect()
    }

    /// Operations of 12 ns, in slices of 8, between which the clock is read in 25 ns.
    fn slices(&mut self) -> Vec<SliceReading> {
        let read_ns = 25.0;
        let reads = |is_left: bool| if is_left { read_ns / 8.0 } else { 0.0 };
        let left = [Fault::ReadsInSlices, Fault::ReadsInBatches].map(|fault| self.fault == fault);
        let reading = |_| SliceReading {
            ops: 8,
            slice_ns: 12.0 * (1.0 + 0.02 * self.normal()) + reads(left[0]),
            batch_ns: 12.0 * (1.0 + 0.05 * self.normal().abs()) + reads(left[1]),
            long_ns: 12.0,
            read_ns,
        };
        (0..20).map(reading).collect()
    }

    /// An A/A run of loads that scatter by 1 % and trials that do by 2 %.
    fn session(&mut self, number: u32) -> Record {
        let apart = match self.fault {
            Fault::SessionsApart => 0.10,
            _ => 0.015,
        };
        let placed = match self.fault {
            Fault::Placement => 0.01,
            _ => 0.0,
        };
        let bias = match self.fault {
            Fault::Bias => 0.02,
            _ => 0.0,
        };
        let mut measured = Measurements::default();
        for _ in 0..CASES {
            let level = 50.0 * (apart * self.normal()).exp();
            for bias in [bias, 0.0] {
                let mut luck: Option<f64> = None;
                let median = |_| {
                    let new = 0.01 * self.normal() + 0.02 * 0.67 * self.normal();
                    let drawn = match (luck, self.fault) {
                        (Some(last), Fault::Dependent(share)) => {
                            share * last + (1.0 - share * share).sqrt() * new
                        }
                        _ => new,
                    };
                    luck = Some(drawn);
                    vec![level * (drawn + placed * self.normal() + bias).exp()]
                };
                measured.cases.push(CaseData {
                    samples: (0..EPOCHS).map(median).collect(),
                    ..CaseData::default()
                });
            }
        }
        let started = format!("2026-11-24T00:{:02}:{:02}Z", number / 12, 5 * (number % 12));
        let machine = bpfcost_record::Machine::default();
        let mut record = Record::build(&plan(), &measured, &started, machine);
        for one in &mut record.comparisons {
            if self.fault == Fault::LooseVerdicts && one.p <= 0.15 {
                one.verdict = VerdictRecord::Slower;
            }
            if let Fault::Narrow(times) = self.fault {
                let middle = one.relative;
                one.relative_ci95 = one
                    .relative_ci95
                    .map(|ends| ends.map(|end| middle + (end - middle) / times));
            }
        }
        if self.fault == Fault::SpreadTooSmall {
            let within = Some(SessionSpreadRecord {
                percent: 0.15,
                freedom: 1000,
            });
            record.spread.sessions = Some(SessionSpreadsRecord {
                within,
                between: None,
            });
        }
        record
    }

    /// The worst outcome of a self-test's checks.
    fn outcome(mut self) -> Outcome {
        let observed = Observed {
            ladder: self.ladder(),
            clock: self.clock(),
            batches: self.batches(),
            slices: self.slices(),
            sessions: (0..self.runs).map(|number| self.session(number)).collect(),
        };
        let checks = checks::all(&observed).expect("its records can be compared");
        let outcomes = checks.iter().map(|check| check.outcome);
        outcomes.max().expect("checks")
    }
}

/// Cases, each against itself.
fn plan() -> Plan {
    let case = |name: String| Case {
        name,
        ..Case::default()
    };
    let twins = |number: usize| [format!("{number}"), format!("{number}~again")];
    let pair = |[first, again]: [String; 2]| Pair {
        case: again,
        baseline: first,
        about: String::new(),
    };
    Plan {
        cases: (0..CASES).flat_map(twins).map(case).collect(),
        pairs: (0..CASES).map(twins).map(pair).collect(),
        margin: 0.01,
        ..Plan::default()
    }
}

/// The share of self-tests with this outcome.
fn share(fault: Fault, runs: u32, outcome: Outcome) -> f64 {
    let such = (0..SELF_TESTS).filter(|seed| {
        let rng = Pcg64Mcg::seed_from_u64(*seed);
        Machine { fault, runs, rng }.outcome() == outcome
    });
    such.count() as f64 / SELF_TESTS as f64
}

#[test]
fn a_healthy_machine_passes() {
    // Loads that scatter are no fault: the tool is to see them as noise.
    for fault in [Fault::Nothing, Fault::Placement] {
        let passed = share(fault, RUNS, Outcome::Passed);
        println!("{fault:?}: {passed}");
        assert!(passed >= 0.95, "{fault:?} passes in {passed}");
    }
}

#[test]
fn planted_faults_are_found() {
    let faults = [
        Fault::Bias,
        Fault::FloorOfZero,
        Fault::FloorTooHigh,
        Fault::Narrow(3.0),
        Fault::Narrow(1.7),
        Fault::Dependent(0.5),
        Fault::BatchClock(0.9),
        Fault::BatchClock(1.1),
        Fault::ReadsInSlices,
        Fault::ReadsInBatches,
        Fault::LooseVerdicts,
        Fault::DroppedHit,
        Fault::SpreadTooSmall,
        Fault::DriftingClock,
    ];
    thread::scope(|scope| {
        let found = |fault| scope.spawn(move || share(fault, RUNS, Outcome::Failed));
        for (fault, failed) in faults.map(|fault| (fault, found(fault))) {
            let failed = failed.join().expect("it does not panic");
            println!("{fault:?}: {failed}");
            assert!(failed >= 0.95, "{fault:?} is found in {failed}");
        }
    });
}

/// A busy neighbour makes no self-test fail.
#[test]
fn sessions_apart_are_the_machine_and_no_fault() {
    let noisy = share(Fault::SessionsApart, RUNS, Outcome::Noisy);
    assert!(noisy >= 0.95, "{noisy}");
}

/// Smaller ones, as docs/experiments/ladder.md has them.
#[test]
#[ignore = "prints a table: cargo test -p bpfcost --lib planted -- --ignored --nocapture"]
fn how_often_small_faults_are_found() {
    for fault in [
        Fault::Nothing,
        Fault::Placement,
        Fault::Narrow(1.2),
        Fault::Narrow(1.3),
        Fault::Narrow(1.5),
        Fault::Narrow(1.7),
        Fault::Dependent(0.2),
        Fault::Dependent(0.3),
        Fault::Dependent(0.5),
        Fault::BatchClock(0.97),
        Fault::BatchClock(0.95),
        Fault::BatchClock(0.93),
    ] {
        let [usual, thorough] =
            [RUNS, THOROUGH_RUNS].map(|runs| share(fault, runs, Outcome::Failed));
        println!("{fault:?}: found in {usual:.2}, with --thorough in {thorough:.2}");
    }
}
