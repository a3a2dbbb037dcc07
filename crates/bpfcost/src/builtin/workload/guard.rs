//! `--abort-above`: detaches a probe from a running service once it costs too much. The noise of the service is learnt
//! before the first probe is attached, from readings at the same ages ([`bpfcost_stats::alarm`]).

use std::{collections::BTreeMap, time::Duration};

use bpfcost_stats::alarm::{Alarm, Judgement, REFERENCE};

use bpfcost_model::{ABORTED, Fault};
use bpfcost_workload::Error;

/// Age of the first reading of a stretch. Each later one is twice as old, for readings of nearly the same time are
/// nearly the same.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// Longest stretch: longer windows consist of several.
const LONGEST_STRETCH: Duration = Duration::from_secs(1);

/// The CPU time of the probe's own processes is judged over no less than this.
const TOOL_TIME: Duration = Duration::from_secs(1);

/// Windows in a row that the service itself disturbs, after which none is tried again.
const MAX_DISTURBED: usize = 3;

/// CPU time of a service, in nanoseconds, below which there is no cost that could rise.
const IDLE_NS: f64 = 1.0;

/// A limit is named in an error up to this one.
const LARGEST_LIMIT: f64 = 100.0;

/// Total that a service and a probe's processes have spent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Account {
    /// Time of the reading.
    pub(super) at: Duration,
    /// Operations, or seconds where they are not counted.
    pub(super) ops: f64,
    /// CPU time of the service, in nanoseconds.
    pub(super) service_ns: f64,
    /// CPU time of the probe's own processes, in nanoseconds.
    pub(super) tool_ns: f64,
}

pub(super) trait Service {
    /// Name of the service for messages.
    fn name(&self) -> String;

    /// Returns whether the service's operations are counted.
    fn counts(&self) -> bool;

    /// Waits until this time. Fails if the service ends before.
    fn wait_until(&mut self, time: Duration) -> Result<(), Fault>;

    /// Reads what it has spent.
    fn read(&mut self) -> Result<Account, Fault>;
}

/// A limit, and what is known of the service that it protects.
#[derive(Debug)]
pub(super) struct Guard {
    alarm: Alarm,
    /// Ages of the readings in a stretch.
    looks: Vec<Duration>,
    /// The reading that was too high, until it is judged.
    over: Option<Over>,
    /// Windows in a row that were cut off because of the service itself.
    disturbed: usize,
    /// Cost in the last stretch without a probe; `None` where it is not known.
    latest: Option<f64>,
    /// CPU time of a probe's own processes, in nanoseconds, and the time that they had it in, by variant.
    tools: BTreeMap<String, (f64, Duration)>,
}

/// A reading that was too high.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Over {
    look: usize,
    cost: f64,
}

impl Account {
    /// CPU time of an operation since then. Where none ended, an operation costs at least what was spent.
    fn cost_since(&self, before: &Account) -> Cost {
        let ops = self.ops - before.ops;
        let spent_ns = self.service_ns - before.service_ns;
        if ops > 0.0 {
            Cost::Known(spent_ns / ops)
        } else {
            Cost::AtLeast(spent_ns)
        }
    }
}

/// CPU time of an operation, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cost {
    Known(f64),
    AtLeast(f64),
}

impl Cost {
    fn known(self) -> Option<f64> {
        match self {
            Cost::Known(cost) => Some(cost),
            Cost::AtLeast(_) => None,
        }
    }

    fn least(self) -> f64 {
        let (Cost::Known(cost) | Cost::AtLeast(cost)) = self;
        cost
    }
}

impl Guard {
    /// A guard for windows of about this length.
    pub(super) fn new(limit: f64, window: Duration) -> Self {
        let stretch = window.min(LONGEST_STRETCH);
        let doubled = |age: &Duration| Some(2 * *age);
        let ages = std::iter::successors(Some(FIRST_LOOK), doubled);
        // The last reading is no twin of the one before.
        let looks = ages.take_while(|age| 5 * *age < 4 * stretch);
        Guard {
            alarm: Alarm::new(limit),
            looks: looks.chain([stretch]).collect(),
            over: None,
            disturbed: 0,
            latest: None,
            tools: BTreeMap::new(),
        }
    }

    /// Time that learning the noise of a service takes.
    pub(super) fn learning_time(&self) -> Duration {
        self.stretch() * REFERENCE as u32
    }

    fn stretch(&self) -> Duration {
        self.looks.last().copied().unwrap_or(FIRST_LOOK)
    }

    /// Learns the noise of a service without a probe, unless it is known. Refuses a limit within that noise.
    pub(super) fn learn(&mut self, service: &mut dyn Service) -> Result<(), Fault> {
        if self.alarm.is_ready() {
            return Ok(());
        }
        let mut unknown = 0;
        while !self.alarm.is_ready() {
            if self.watch(service)?.is_some() {
                continue;
            }
            unknown += 1;
            if unknown == REFERENCE {
                return Err(Error::Definition(self.too_seldom(&*service)).into());
            }
        }
        let refusal = self.refusal(&*service);
        refusal.map_or(Ok(()), |text| Err(Error::Definition(text).into()))
    }

    /// Watches a stretch without a probe. Returns the cost in it, where operations ended by each of its readings.
    fn watch(&mut self, service: &mut dyn Service) -> Result<Option<f64>, Fault> {
        let stretch = self.stretch();
        self.window(service, stretch, None)?;
        Ok(self.latest)
    }

    /// Waits until the service costs as much as usual, or its new cost is known. Fails if that moves too much.
    fn settle(&mut self, service: &mut dyn Service) -> Result<(), Fault> {
        let before = self.alarm.expected(self.looks.len() - 1);
        for _ in 0..REFERENCE {
            let cost = self.watch(service)?;
            if cost.is_some_and(|cost| before.is_some_and(|before| cost <= before.upper)) {
                return Ok(());
            }
        }
        self.alarm.forget();
        let refusal = self.refusal(&*service);
        refusal.map_or(Ok(()), |text| {
            Err(aborted(format!(
                "The run ended, without a probe attached: the load of {} has changed. {text}",
                service.name()
            )))
        })
    }

    /// Watches a window, with the probe of a variant attached or without; the accounts at its ends.
    pub(super) fn window(
        &mut self,
        service: &mut dyn Service,
        window: Duration,
        variant: Option<&str>,
    ) -> Result<[Account; 2], Fault> {
        let first = service.read()?;
        let end = first.at + window;
        let (mut start, mut costs) = (first, Vec::new());
        loop {
            let look = start.at + self.looks[costs.len()];
            service.wait_until(look.min(end))?;
            let now = service.read()?;
            let over = look <= end && {
                costs.push(now.cost_since(&start));
                variant.is_some() && self.is_over(&costs)
            };
            if over {
                return Err(enough(first, now, "the service became more expensive"));
            }
            if let Some(variant) = variant {
                self.bill(variant, &first, &now)?;
            }
            if costs.len() == self.looks.len() {
                if variant.is_none() {
                    let known: Option<Vec<f64>> = costs.iter().map(|cost| cost.known()).collect();
                    self.latest = known.and_then(|known| {
                        self.alarm.add_reference(&known);
                        known.last().copied()
                    });
                }
                costs.clear();
                start = now;
            }
            if now.at >= end {
                if let Some(variant) = variant {
                    self.alarm.pass();
                    self.disturbed = 0;
                    let (spent_ns, time) = self.tools.entry(variant.to_owned()).or_default();
                    *spent_ns += now.tool_ns - first.tool_ns;
                    *time += now.at - first.at;
                }
                return Ok([first, now]);
            }
        }
    }

    /// Returns whether the latest of these costs is higher than that of a service within the limit, and keeps it if so.
    fn is_over(&mut self, costs: &[Cost]) -> bool {
        let Some((cost, earlier)) = costs.split_last() else {
            return false;
        };
        let (look, cost) = (earlier.len(), cost.least());
        let over = self.alarm.is_over(look, cost);
        self.over = over.then_some(Over { look, cost });
        over
    }

    /// Fails if the probe's own processes have taken more of a CPU than the limit, in all windows so far.
    fn bill(&self, variant: &str, first: &Account, now: &Account) -> Result<(), Fault> {
        let before = self.tools.get(variant).copied().unwrap_or_default();
        let spent_ns = before.0 + now.tool_ns - first.tool_ns;
        let time = (before.1 + now.at.saturating_sub(first.at)).max(TOOL_TIME);
        let share = spent_ns / time.as_nanos() as f64;
        let limit = self.alarm.limit();
        if share <= limit {
            return Ok(());
        }
        let text = format!(
            "its own processes took {} of a CPU, and {} is allowed",
            percent(share),
            percent(limit)
        );
        Err(enough(*first, *now, &text))
    }

    /// Judges a window that was cut off, after the probe is detached, by the service without it. Fails if the probe is not
    /// to be attached again: with `cut`, the reason why the window was cut off, where no reading was too high.
    pub(super) fn judge(&mut self, service: &mut dyn Service, cut: Fault) -> Result<(), Fault> {
        let Some(Over { look, cost }) = self.over.take() else {
            return Err(cut);
        };
        let usual = self.alarm.expected(look).map_or(cost, |one| one.usual);
        let noise = self.alarm.smallest_limit(look).unwrap_or_default();
        let first = service.read()?;
        service.wait_until(first.at + self.looks[look])?;
        let without = service.read()?.cost_since(&first).known();
        match self.alarm.judge(cost, without) {
            Judgement::Suspected => Ok(()),
            Judgement::Confirmed => Err(aborted(format!(
                "The probe was detached after {:.1} s: {} took {} more CPU time with it in each of two tries, and {} is \
                 allowed (without it, noise reaches {}).",
                self.looks[look].as_secs_f64(),
                what(service),
                percent(cost / usual - 1.0),
                percent(self.alarm.limit()),
                percent(noise),
            ))),
            Judgement::NotIt if self.disturbed == MAX_DISTURBED => Err(aborted(format!(
                "The run ended, without a probe attached: the load of {} changes too often to show within {:.1} s what a \
                 probe costs it.",
                service.name(),
                self.looks[look].as_secs_f64(),
            ))),
            Judgement::NotIt => {
                self.disturbed += 1;
                self.settle(service)
            }
        }
    }

    /// Reason why the service's noise can't be learnt: stretches without an operation.
    fn too_seldom(&self, service: &dyn Service) -> String {
        let first = self.looks.first().unwrap_or(&FIRST_LOOK).as_secs_f64();
        format!(
            "--abort-above has too little to compare with: {REFERENCE} times no operation of {} ended within {first:.1} s\n  \
             Watch it while it has work, or leave out --ops, so that CPU time per second is compared",
            service.name()
        )
    }

    /// Reason why the limit can't be held apart from the service's noise, if it can't.
    fn refusal(&self, service: &dyn Service) -> Option<String> {
        let look = self.looks.len() - 1;
        let (limit, expected) = (self.alarm.limit(), self.alarm.expected(look)?);
        let name = service.name();
        let seconds = self.stretch().as_secs_f64();
        if expected.upper < IDLE_NS {
            return Some(format!(
                "{name} used no CPU time in {:.0} s, so --abort-above has no cost to compare with\n  Watch it while it \
                 has work, or leave out --abort-above",
                self.learning_time().as_secs_f64()
            ));
        }
        let least = expected.noise();
        if least <= limit {
            return None;
        }
        let noise = if least < LARGEST_LIMIT {
            format!("moves by up to {}", percent(least))
        } else {
            "comes and goes".to_owned()
        };
        let works = if least < LARGEST_LIMIT {
            format!(
                "The smallest limit that works now is --abort-above {}",
                rounded_up(least)
            )
        } else {
            "No limit works while it does".to_owned()
        };
        let quieter = match service.counts() {
            true => "",
            false => "; the cost of an operation moves less (--ops CMD)",
        };
        Some(format!(
            "--abort-above {} is within the noise: {}, without a probe, {noise} within {seconds:.1} s\n  {works}{quieter}",
            percent(limit).replace(' ', ""),
            cpu_time(service),
        ))
    }
}

/// The cost that is judged, for people.
fn what(service: &dyn Service) -> String {
    if service.counts() {
        format!("an operation of {}", service.name())
    } else {
        service.name()
    }
}

/// The same as a quantity.
fn cpu_time(service: &dyn Service) -> String {
    let per = if service.counts() {
        "operation"
    } else {
        "second"
    };
    format!("the CPU time of {} per {per}", service.name())
}

/// No further window may follow.
fn aborted(text: String) -> Fault {
    Fault::Enough {
        code: ABORTED,
        text,
    }
}

/// The same, of a window that is cut off now.
fn enough(first: Account, now: Account, why: &str) -> Fault {
    let seconds = now.at.saturating_sub(first.at).as_secs_f64();
    aborted(format!(
        "The probe was detached after {seconds:.1} s: {why}."
    ))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// A share as an option, rounded up to two digits.
fn rounded_up(share: f64) -> String {
    let percent = 100.0 * share;
    let step = 10_f64.powf((percent.log10().floor() - 1.0).max(0.0));
    format!("{:.0}%", (percent / step).ceil() * step)
}

#[cfg(test)]
mod tests;
