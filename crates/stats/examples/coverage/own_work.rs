//! Work that a case does now and then, by itself and beside neighbours: what is said of its cost, and of its difference
//! from a case that is alike but for that work.

use bpfcost_stats::{
    Budget, Differences, Estimate, Policy, Sense, Total, TotalRatio, Verdict, hold_against_totals,
    judge,
    own_work::CalmSlices,
    undisturbed::{Unknown, undisturbed},
};

use super::neighbours::{BATCHES, Machine, Neighbours, SLICES};
use super::noise::Dice;

/// The work of a case beside its usual work of 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// Nothing: slices scatter by so much.
    Usual(f64),
    /// This share of the slices costs so much more, at random.
    Random(f64, f64),
    /// Each so many slices of 40 µs, this share of them costs so much more, one after the other.
    Periodic(f64, f64, f64),
    /// One operation in so many slices of 40 µs takes so many of them longer.
    Sweep(f64, f64),
    /// This share of the loads costs so much more, and their slices scatter by 0.4 %.
    Loads(f64, f64),
    /// Each slice has an exponential delay of this mean.
    Exponential(f64),
    /// The cost of slices wanders by so much (standard deviation), over some 25 of them.
    Wandering(f64),
}

/// The relative scatter of slices of usual work.
const SCATTER: f64 = 0.0005;

impl Work {
    /// The true mean cost of an operation.
    pub(crate) fn truth(self) -> f64 {
        1.0 + match self {
            Work::Usual(_) | Work::Wandering(_) => 0.0,
            Work::Random(share, more)
            | Work::Periodic(_, share, more)
            | Work::Loads(share, more) => share * more,
            Work::Sweep(every, slices) => slices / every,
            Work::Exponential(mean) => mean,
        }
    }

    /// The chance that no batch of a run contains any of it.
    pub(crate) fn unseen(self, plan: Plan) -> f64 {
        let slices = (plan.epochs * BATCHES * SLICES / plan.finer) as f64;
        match self {
            Work::Sweep(every, _) => (-slices / every).exp(),
            _ => 0.0,
        }
    }
}

/// Each kind that is simulated, by name.
pub(crate) const WORKS: [(&str, Work); 13] = [
    ("nothing", Work::Usual(SCATTER)),
    ("nothing, slices scatter 0.4 %", Work::Usual(0.004)),
    ("20 % of slices +30 %", Work::Random(0.2, 0.3)),
    ("10 % of slices +100 %", Work::Random(0.1, 1.0)),
    (
        "each 4 ms, 80 % of it +30 %",
        Work::Periodic(100.0, 0.8, 0.3),
    ),
    (
        "each 40 ms, 30 % of it +30 %",
        Work::Periodic(1000.0, 0.3, 0.3),
    ),
    ("half of the loads +5 %", Work::Loads(0.5, 0.05)),
    ("slices + exponential 1 %", Work::Exponential(0.01)),
    ("slices wander by 0.3 %", Work::Wandering(0.003)),
    ("slices wander by 1 %", Work::Wandering(0.01)),
    ("0.55 ms each 6.5 ms", Work::Sweep(163.0, 13.8)),
    ("20 µs each 6.5 ms", Work::Sweep(163.0, 0.5)),
    ("2 ms each 65 ms", Work::Sweep(1630.0, 50.0)),
];

/// The default, and `--quick`: fewer epochs, and batches of a fifth of the time.
pub(crate) const FULL: Plan = Plan {
    name: "14 × 10 ms",
    epochs: 14,
    finer: 1,
};
pub(crate) const QUICK: Plan = Plan {
    name: "10 × 2 ms",
    epochs: 10,
    finer: 5,
};

/// The length of a run: its epochs, and the factor of slices in the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) epochs: usize,
    pub(crate) finer: usize,
}

/// A case that does such work, slice by slice.
struct Worker {
    work: Work,
    finer: f64,
    /// Slices so far, and the start of the period.
    now: f64,
    /// The cost that the load adds, and whether it is one of the expensive loads.
    load: f64,
    dear: bool,
    wandering: f64,
}

impl Worker {
    fn new(work: Work, finer: usize, dice: &mut Dice) -> Self {
        Worker {
            work,
            finer: finer as f64,
            now: 1e4 * dice.uniform(),
            load: 1.0,
            dear: false,
            wandering: 0.0,
        }
    }

    fn load(&mut self, dice: &mut Dice) {
        self.load = 1.0 + 0.0005 * dice.normal();
        self.dear = match self.work {
            Work::Loads(share, _) => dice.uniform() < share,
            _ => false,
        };
    }

    /// The work of the next slice.
    fn slice(&mut self, dice: &mut Dice) -> f64 {
        self.now += 1.0 / self.finer;
        let scatter = match self.work {
            Work::Usual(scatter) => scatter,
            Work::Loads(..) if self.dear => 0.004,
            _ => SCATTER,
        };
        let more = match self.work {
            Work::Usual(_) => 0.0,
            Work::Random(share, more) if dice.uniform() < share => more,
            Work::Periodic(every, share, more) if self.now % every < share * every => more,
            Work::Sweep(every, slices) if self.now % every < 1.0 / self.finer => {
                slices * self.finer
            }
            Work::Loads(_, more) if self.dear => more,
            Work::Exponential(mean) => -mean * (1.0 - dice.uniform()).ln(),
            Work::Wandering(sigma) => {
                let keeps = 1.0 - 1.0 / 25.0;
                self.wandering =
                    keeps * self.wandering + sigma * f64::sqrt(1.0 - keeps * keeps) * dice.normal();
                self.wandering
            }
            _ => 0.0,
        };
        self.load * (1.0 + more + scatter * dice.normal())
    }
}

/// The results of runs of such a case.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Answers {
    /// The share of runs with an undisturbed number, and of these, those whose interval holds the true mean.
    pub(crate) known: f64,
    pub(crate) holds: f64,
    /// The share of runs that name the case's own work.
    pub(crate) named: f64,
    /// The mean half-width of the interval of the number, in percent.
    pub(crate) width: f64,
    /// The share that says each of these of the case against one that does usual work alone, with a margin of 1 % and a
    /// budget of 2 %.
    pub(crate) same: f64,
    pub(crate) within: f64,
    pub(crate) over: f64,
    pub(crate) more: f64,
    pub(crate) less: f64,
}

const POLICY: Policy = Policy {
    margin: 0.01,
    budget: Some(0.02),
    sense: Sense::Cost,
};

/// Simulates runs of a case that does such work and is so many times as sensitive to neighbours as the others: a case that does usual work
/// alone, a floor, and the anchor.
pub(crate) fn answers(
    work: Work,
    neighbours: Neighbours,
    sensitivity: f64,
    plan: Plan,
    runs: usize,
    seed: u64,
) -> Answers {
    let mut all = Answers::default();
    let count = |figure: &mut f64, is: bool| *figure += f64::from(u8::from(is));
    for run in 0..runs {
        let seed = seed ^ (run as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let one = Run::new(work, neighbours, sensitivity, plan, seed);
        count(&mut all.named, one.named);
        if let Some(own) = one.own {
            all.known += 1.0;
            count(&mut all.holds, own.interval().contains(work.truth()));
            all.width += 100.0 * own.half_width();
        }
        let judged = one.judged;
        count(
            &mut all.same,
            matches!(judged.verdict, Verdict::Same { .. }),
        );
        count(&mut all.more, judged.verdict == Verdict::Slower);
        count(&mut all.less, judged.verdict == Verdict::Faster);
        count(&mut all.within, judged.budget == Some(Budget::Within));
        count(&mut all.over, judged.budget == Some(Budget::Over));
    }
    all.holds /= f64::max(all.known, 1.0);
    all.width /= f64::max(all.known, 1.0);
    let shares = [
        &mut all.known,
        &mut all.named,
        &mut all.same,
        &mut all.within,
        &mut all.over,
        &mut all.more,
        &mut all.less,
    ];
    shares.into_iter().for_each(|share| *share /= runs as f64);
    all
}

/// The result of one run.
struct Run {
    own: Option<Estimate>,
    named: bool,
    judged: bpfcost_stats::Comparison,
}

impl Run {
    fn new(work: Work, neighbours: Neighbours, sensitivity: f64, plan: Plan, seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 1);
        let neighbours = neighbours.in_slices_shorter_by(plan.finer);
        let length = plan.epochs * BATCHES * 8 * SLICES;
        let mut machine = Machine::new(neighbours, length, seed);
        // The case, its baseline, a floor, the anchor.
        let usual = Work::Usual(SCATTER);
        let mut workers =
            [work, usual, usual, usual].map(|work| Worker::new(work, plan.finer, &mut dice));
        let mut slices: [Vec<Vec<Vec<f64>>>; 4] = Default::default();
        for _ in 0..plan.epochs {
            workers.iter_mut().for_each(|worker| worker.load(&mut dice));
            let mut batches: [Vec<Vec<f64>>; 4] = Default::default();
            for _ in 0..BATCHES {
                let mut order = [0, 1, 2, 3];
                dice.shuffle(&mut order);
                for case in order {
                    let sensitivity = if case == 0 { sensitivity } else { 1.0 };
                    let slice = |_| {
                        let own = workers[case].slice(&mut dice);
                        machine.sensitive_slice(own, sensitivity)
                    };
                    batches[case].push((0..SLICES).map(slice).collect());
                }
                machine.pass(4 * SLICES);
                workers[0].now += 4e3 * dice.uniform();
            }
            for (case, batches) in batches.into_iter().enumerate() {
                slices[case].push(batches);
            }
        }
        let alone = slices.each_ref().map(|epochs| undisturbed(epochs).ok());
        let calm = |case: usize| {
            Some(CalmSlices::by_epoch(
                &slices[case],
                alone[case].as_ref()?.calm(),
            ))
        };
        let reference = |case: usize| {
            Some(CalmSlices::of_reference(
                &slices[case],
                alone[case].as_ref()?.calm(),
            ))
        };
        let references: Vec<_> = [2, 3].into_iter().filter_map(reference).collect();
        let references = CalmSlices::together(&references);
        let held = |case: usize| {
            let known = alone[case].clone().ok_or(Unknown::Scatter)?;
            known.held_against(&calm(case).unwrap_or_default(), &references)
        };
        let [case, baseline] = [0, 1].map(held);
        let means = slices.each_ref().map(|epochs| {
            epochs
                .iter()
                .map(|epoch| mean(&epoch.concat()))
                .collect::<Vec<_>>()
        });
        let values = |case: usize| {
            slices[case]
                .iter()
                .map(|batches| {
                    let means: Vec<f64> = batches.iter().map(|batch| mean(batch)).collect();
                    bpfcost_stats::sample::median(&means).unwrap_or(f64::NAN)
                })
                .collect::<Vec<f64>>()
        };
        let own_work = |case: &Result<_, Unknown>| matches!(case, Err(Unknown::OwnWork(_)));
        let named = own_work(&case);
        let differences = match (&case, &baseline) {
            (Ok(case), Ok(baseline)) => case.differences(baseline),
            _ if named || own_work(&baseline) => Differences::pair(&means[0], &means[1]),
            _ => Differences::pair(&values(0), &values(1)),
        };
        let total = |means: &[f64]| {
            means
                .iter()
                .map(|mean| Total::of_cost(&[*mean], &[1.0]))
                .collect::<Vec<_>>()
        };
        let totals = TotalRatio::from_epochs(&total(&means[0]), &total(&means[1]));
        let undisturbed = case.is_ok() && baseline.is_ok();
        let typical = judge(&[differences], &POLICY)[0];
        Run {
            own: case.ok().and_then(|known| known.estimate()),
            named,
            judged: hold_against_totals(typical, totals.as_ref(), &POLICY, undisturbed),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
