//! Runs beside a service that does its work at a cost that moves by itself, with an alarm: how often a probe that does
//! nothing is taken off, how often the limit is refused before, and how soon a probe is off that doubles the cost.

use bpfcost_stats::alarm::{Alarm, Judgement, REFERENCE};

use crate::noise::Dice;

/// Cost of an operation of the service, by itself, in each tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Service {
    /// Scatters by this share from a tenth to the next.
    Steady(f64),
    /// Bursts begin in this share of the tenths, make it 2 to 3 times as expensive, and last some three tenths.
    Bursts(f64),
    /// Logs have Student's t with 3 degrees of freedom, of this scale.
    Heavy(f64),
    /// Moves a little with each tenth and stays there: by a fifth within ten seconds.
    Drifting,
    /// Once in 20 seconds the load changes, and the cost with it: by up to a half, up or down.
    Stepping,
    /// Works in some tenths and hardly in others: CPU time by the second, of a load that comes and goes.
    OnAndOff,
}

impl Service {
    pub(crate) const ALL: [Self; 10] = [
        Self::Steady(0.02),
        Self::Steady(0.1),
        Self::Steady(0.5),
        Self::Bursts(0.002),
        Self::Bursts(0.02),
        Self::Bursts(0.2),
        Self::Heavy(0.03),
        Self::Drifting,
        Self::Stepping,
        Self::OnAndOff,
    ];
}

/// A service under way.
struct Machine {
    service: Service,
    dice: Dice,
    /// Log of its level, and tenths that a burst goes on.
    level: f64,
    burst: usize,
    busy: bool,
}

impl Machine {
    /// Cost of the next tenth of a second.
    fn tenth(&mut self) -> f64 {
        let (mut noise, dice) = (0.02, &mut self.dice);
        let mut factor = 1.0;
        match self.service {
            Service::Steady(scatter) => noise = scatter,
            Service::Bursts(share) => {
                if dice.uniform() < share {
                    self.burst = 1 + (5.0 * dice.uniform()) as usize;
                }
                if self.burst > 0 {
                    self.burst -= 1;
                    factor = 2.0 + dice.uniform();
                }
            }
            Service::Heavy(scale) => {
                let chi: f64 = (0..3).map(|_| dice.normal().powi(2)).sum();
                factor = (scale * dice.normal() / (chi / 3.0).sqrt()).exp();
            }
            Service::Drifting => self.level += 0.02 * dice.normal(),
            Service::Stepping => {
                if dice.uniform() < 1.0 / 200.0 {
                    self.level = (0.5 + dice.uniform()).ln();
                }
            }
            Service::OnAndOff => {
                self.busy ^= dice.uniform() < 0.2;
                factor = if self.busy { 1.0 } else { 0.05 };
            }
        }
        factor * (self.level + noise * dice.normal()).exp()
    }

    /// Cumulative readings of a stretch that ends at the first that is over.
    fn stretch(&mut self, by: f64, over: impl Fn(usize, f64) -> bool) -> Vec<f64> {
        let (mut sum, mut readings) = (0.0, Vec::new());
        for tenth in 1..=LOOKS[LOOKS.len() - 1] {
            sum += by * self.tenth();
            if LOOKS.contains(&tenth) {
                let reading = sum / tenth as f64;
                readings.push(reading);
                if over(readings.len() - 1, reading) {
                    break;
                }
            }
        }
        readings
    }
}

/// Ages of the looks at a stretch, in tenths of a second.
const LOOKS: [usize; 4] = [1, 2, 4, 7];

/// Windows with the probe in a run: three in each of 15 epochs.
const WINDOWS: usize = 45;

/// Results of many runs, as shares.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Runs {
    /// The limit was refused before the probe was on.
    pub(crate) refused: f64,
    /// The probe was taken off for good.
    pub(crate) aborted: f64,
    /// The same before it was on for two seconds, of the runs that were not refused.
    pub(crate) soon: f64,
    /// At least one window was cut off and run again.
    pub(crate) cut: f64,
}

/// Runs with a probe that multiplies the cost by `by`, and with this limit.
pub(crate) fn runs(service: Service, by: f64, limit: f64, runs: usize, seed: u64) -> Runs {
    let (mut refused, mut aborted, mut soon, mut cut) = (0, 0, 0, 0);
    for run in 0..runs {
        let mut machine = Machine {
            service,
            dice: Dice::new(seed.wrapping_add(7919 * run as u64)),
            level: 0.0,
            burst: 0,
            busy: true,
        };
        match one(&mut machine, by, limit) {
            None => refused += 1,
            Some((tenths, again)) => {
                aborted += usize::from(tenths.is_some());
                soon += usize::from(tenths.is_some_and(|tenths| tenths <= 20));
                cut += usize::from(again);
            }
        }
    }
    let share = |count: usize| count as f64 / runs as f64;
    Runs {
        refused: share(refused),
        aborted: share(aborted),
        soon: soon as f64 / (runs - refused).max(1) as f64,
        cut: share(cut),
    }
}

/// One run: for how many tenths the probe was on when the alarm came, and whether a window was run again. `None` where the
/// limit is refused.
fn one(machine: &mut Machine, by: f64, limit: f64) -> Option<(Option<usize>, bool)> {
    let mut alarm = Alarm::new(limit);
    let last = LOOKS.len() - 1;
    let works = |alarm: &Alarm| {
        let least = alarm.smallest_limit(last);
        least.is_some_and(|least| least <= limit)
    };
    let off = |alarm: &mut Alarm, machine: &mut Machine| {
        let readings = machine.stretch(1.0, |_, _| false);
        alarm.add_reference(&readings);
        readings[last]
    };
    for _ in 0..REFERENCE {
        off(&mut alarm, machine);
    }
    if !works(&alarm) {
        return None;
    }
    let (mut tenths, mut again) = (0, false);
    for _ in 0..WINDOWS {
        loop {
            let with = machine.stretch(by, |look, reading| alarm.is_over(look, reading));
            let look = with.len() - 1;
            tenths += LOOKS[look];
            if !alarm.is_over(look, with[look]) {
                alarm.pass();
                break;
            }
            let without = machine.stretch(1.0, |age, _| age == look);
            match alarm.judge(with[look], Some(without[look])) {
                Judgement::Confirmed => return Some((Some(tenths), again)),
                Judgement::Suspected => again = true,
                Judgement::NotIt => {
                    again = true;
                    let upper = alarm.expected(last)?.upper;
                    if !(0..REFERENCE).any(|_| off(&mut alarm, machine) <= upper) {
                        alarm.forget();
                        // The run ends where the limit no longer works.
                        if !works(&alarm) {
                            return Some((None, again));
                        }
                    }
                }
            }
        }
        off(&mut alarm, machine);
    }
    Some((None, again))
}
