//! Costs that come seldom: a probe that costs nothing in most windows, and much in a few. How often the interval
//! of the total holds, and how often `same` and `within` are said of such a probe, before and after they are held
//! against the total.

use crate::bounds::BoundsCheck;
use crate::claims::seeded;
use crate::noise::{Dice, Noise, NoisyMachine};
use bpfcost_stats::sample::epoch_medians;
use bpfcost_stats::{
    Budget, Comparison, Differences, Policy, Sense, Total, TotalRatio, Verdict,
    hold_against_totals, judge,
};

/// The margin of CPU time and the budget of the README.
const POLICY: Policy = Policy {
    margin: 0.03,
    budget: Some(0.05),
    sense: Sense::Cost,
};

/// The cost of a probe: one in every window, or a larger one in a share of them.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    /// The share of windows that it falls into.
    share: f64,
    /// The relative cost that it adds there.
    extra: f64,
    /// True if windows have a fixed time, in which less is done where it costs more; otherwise they have a fixed number
    /// of operations.
    timed: bool,
}

const fn shape(name: &'static str, share: f64, extra: f64) -> Shape {
    Shape {
        name,
        share,
        extra,
        timed: false,
    }
}

const NOTHING: Shape = shape("nothing", 0.0, 0.0);
const RARE: [Shape; 6] = [
    shape("+300 % in 1 of 10", 0.1, 3.0),
    shape("+200 % in 1 of 20", 0.05, 2.0),
    shape("+1000 % in 1 of 50", 0.02, 10.0),
    shape("+100 % in 1 of 4", 0.25, 1.0),
    shape("+50 % in 1 of 10", 0.1, 0.5),
    Shape {
        timed: true,
        ..shape("+300 % in 1 of 10, timed", 0.1, 3.0)
    },
];
/// Epochs, and windows of a case in each.
const SIZES: [(usize, usize); 4] = [(10, 2), (10, 5), (20, 5), (40, 5)];

impl Shape {
    /// The true ratio of totals.
    fn ratio(&self) -> f64 {
        if self.timed {
            1.0 / (1.0 - self.share + self.share / (1.0 + self.extra))
        } else {
            1.0 + self.share * self.extra
        }
    }

    /// The chance that none of so many windows has the cost.
    fn unseen(&self, (epochs, windows): (usize, usize)) -> f64 {
        (1.0 - self.share).powf((epochs * windows) as f64)
    }
}

/// The answers of a run by the typical window, by the total, and by both.
struct Answer {
    typical: Comparison,
    total: TotalRatio,
    both: Comparison,
}

impl Answer {
    /// A run with a probe of that shape, which costs `level` times as much throughout.
    fn simulate(
        noise: Noise,
        shape: Shape,
        level: f64,
        (epochs, windows): (usize, usize),
        seed: u64,
    ) -> Self {
        let mut machine = NoisyMachine::new(noise, seed);
        let mut dice = Dice::new(!seed);
        let mut sides: [Vec<Vec<f64>>; 2] = Default::default();
        for _ in 0..epochs {
            let trials = machine.epoch(&[1.0, level], windows).trials;
            for (side, values) in sides.iter_mut().zip(trials) {
                side.push(values);
            }
            for value in sides[1].last_mut().into_iter().flatten() {
                if dice.uniform() < shape.share {
                    *value *= 1.0 + shape.extra;
                }
            }
        }
        let totals = |side: &[Vec<f64>]| -> Vec<Option<Total>> {
            let ops = |value: &f64| if shape.timed { 1.0 / value } else { 1.0 };
            let total = |values: &Vec<f64>| {
                Total::of_cost(values, &values.iter().map(ops).collect::<Vec<_>>())
            };
            side.iter().map(total).collect()
        };
        let [base, case] = &sides;
        let differences = Differences::pair(&epoch_medians(case), &epoch_medians(base));
        let typical = judge(&[differences], &POLICY)[0];
        let total = TotalRatio::from_epochs(&totals(case), &totals(base)).unwrap();
        Answer {
            typical,
            total,
            both: hold_against_totals(typical, Some(&total), &POLICY, false),
        }
    }
}

fn is_same(judged: &Comparison) -> bool {
    matches!(judged.verdict, Verdict::Same { .. })
}

fn is_within(judged: &Comparison) -> bool {
    judged.budget == Some(Budget::Within)
}

fn is_over(judged: &Comparison) -> bool {
    judged.budget == Some(Budget::Over)
}

/// The share of runs for each question.
fn shares<const N: usize>(
    runs: usize,
    run: impl Fn(u64) -> Answer,
    questions: [fn(&Answer) -> bool; N],
) -> [f64; N] {
    let mut counts = [0usize; N];
    for i in 0..runs {
        let answer = run(seeded(12, i));
        for (count, question) in counts.iter_mut().zip(questions) {
            *count += usize::from(question(&answer));
        }
    }
    counts.map(|count| count as f64 / runs as f64)
}

pub(crate) fn print(ledger: &mut BoundsCheck, runs: usize) {
    coverage(ledger, runs);
    println!();
    print_answers(ledger, runs);
    println!();
    print_losses(ledger, runs);
}

fn size((epochs, windows): (usize, usize)) -> String {
    format!("{epochs} x {windows}")
}

/// The interval of the total.
fn coverage(ledger: &mut BoundsCheck, runs: usize) {
    println!(
        "The total's 95 % interval holds (at least 93.5, less what no window shows), and ends too low"
    );
    println!("noise       probe                     epochs   unseen    holds   too low");
    for noise in [Noise::Normal, Noise::LogNormal, Noise::Burst] {
        for shape in std::iter::once(NOTHING).chain(RARE) {
            for epochs in SIZES {
                let truth = shape.ratio().ln();
                let (mut held, mut low) = (0usize, 0usize);
                for i in 0..runs {
                    let answer = Answer::simulate(noise, shape, 1.0, epochs, seeded(11, i));
                    let shown = answer.total.shown.unwrap();
                    held += usize::from(shown.contains(truth));
                    low += usize::from(shown.high < truth);
                }
                let unseen = if shape.share > 0.0 {
                    shape.unseen(epochs)
                } else {
                    0.0
                };
                let least = 0.935f64.min(0.97 - unseen);
                let held = ledger.figure(held as f64 / runs as f64, least, 1.0);
                println!(
                    "{:<12}{:<26}{:<7}{:>8.2}{held:>10}{:>9.2}",
                    noise.name(),
                    shape.name,
                    size(epochs),
                    100.0 * unseen,
                    100.0 * low as f64 / runs as f64
                );
            }
        }
    }
}

/// Prints the answers on costs that come seldom, all of them of 5 % or more in total.
fn print_answers(ledger: &mut BoundsCheck, runs: usize) {
    println!(
        "Said of such a probe, by the typical window alone, and with the total (at most 6.5 beyond what no \
         window shows); and that the two differ"
    );
    println!(
        "noise       probe                     epochs   same:   alone  with total  within:  alone  with total   differ"
    );
    for noise in Noise::ALL {
        for shape in RARE {
            for epochs in SIZES {
                let [same, same_too, within, within_too, apart] = shares(
                    runs,
                    |seed| Answer::simulate(noise, shape, 1.0, epochs, seed),
                    [
                        |one| is_same(&one.typical),
                        |one| is_same(&one.both),
                        |one| is_within(&one.typical),
                        |one| is_within(&one.both),
                        |one| one.total.is_apart(&one.typical),
                    ],
                );
                let most = shape.unseen(epochs) + 0.065;
                let same_too = ledger.figure(same_too, 0.0, most);
                let within_too = ledger.figure(within_too, 0.0, most);
                println!(
                    "{:<12}{:<26}{:<7}{:>15.1}{same_too:>12}{:>15.1}{within_too:>12}{:>9.1}",
                    noise.name(),
                    shape.name,
                    size(epochs),
                    100.0 * same,
                    100.0 * within,
                    100.0 * apart
                );
            }
        }
    }
}

/// Prints the answers lost where nothing is wrong, and the errors where the cost is exactly the budget in every
/// window.
fn print_losses(ledger: &mut BoundsCheck, runs: usize) {
    println!(
        "Said of a probe that costs nothing, alone and with the total; that the two differ (at most 1); and of one \
         that costs exactly the budget (within at most 5.5, over at most 8)"
    );
    println!(
        "noise       epochs  same:   alone  with total  within:  alone  with total   differ  within    over"
    );
    for noise in Noise::ALL {
        for epochs in SIZES {
            let nothing = |seed| Answer::simulate(noise, NOTHING, 1.0, epochs, seed);
            let [same, same_too, within, within_too, apart] = shares(
                runs,
                nothing,
                [
                    |one| is_same(&one.typical),
                    |one| is_same(&one.both),
                    |one| is_within(&one.typical),
                    |one| is_within(&one.both),
                    |one| one.total.is_apart(&one.typical),
                ],
            );
            let edge = |seed| Answer::simulate(noise, NOTHING, 1.05, epochs, seed);
            let [wrong_within, wrong_over] = shares(
                runs,
                edge,
                [|one| is_within(&one.both), |one| is_over(&one.both)],
            );
            let apart = ledger.figure(apart, 0.0, 0.01);
            let wrong_within = ledger.figure(wrong_within, 0.0, 0.055);
            let wrong_over = ledger.figure(wrong_over, 0.0, 0.08);
            println!(
                "{:<12}{:<7}{:>14.1}{:>12.1}{:>15.1}{:>12.1}{apart:>10}{wrong_within}{wrong_over}",
                noise.name(),
                size(epochs),
                100.0 * same,
                100.0 * same_too,
                100.0 * within,
                100.0 * within_too,
            );
        }
    }
}
