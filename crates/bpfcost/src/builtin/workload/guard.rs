//! `--abort-above`: detaches a probe from a running service once it costs too much. The noise of the service is learnt
//! before the first probe is attached, from readings at the same ages ([`bpfcost_stats::alarm`]).

use std::{collections::BTreeMap, time::Duration};

use bpfcost_stats::alarm::{Alarm, Judgement, REFERENCE};

use crate::workload::Error;
use bpfcost_model::{ABORTED, Fault};

/// Age of the first reading of a stretch. Each later one is twice as old, for readings of nearly the same time are
/// nearly the same.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// Longest stretch: longer windows consist of several.
const LONGEST_STRETCH: Duration = Duration::from_secs(1);

/// Windows of less get longer without `--quick`.
const QUIET_STRETCH: Duration = Duration::from_millis(500);

/// The CPU time of the probe's own processes is judged over no less than this.
const TOOL_TIME: Duration = Duration::from_secs(1);

/// Windows in a row that the service itself disturbs, after which none is tried again.
const MOST_DISTURBED: usize = 3;

/// CPU time of a service, in nanoseconds, below which there is no cost that could rise.
const IDLE_NS: f64 = 1.0;

/// A limit is named in an error up to this one.
const LARGEST_LIMIT: f64 = 100.0;

/// What a service and a probe's processes have spent so far.
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

/// A running service.
pub(super) trait Service {
    /// Its name, for people.
    fn name(&self) -> String;

    /// Whether its operations are counted.
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

    /// Whether the latest of these readings is too high.
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
            Judgement::NotIt if self.disturbed == MOST_DISTURBED => Err(aborted(format!(
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
        let mut quieter = Vec::new();
        if !service.counts() {
            quieter.push("the cost of an operation moves less (--ops CMD)");
        }
        if self.stretch() < QUIET_STRETCH {
            quieter.push("longer windows move less (no --quick)");
        }
        let quieter = quieter
            .iter()
            .map(|one| format!("; {one}"))
            .collect::<String>();
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
mod tests {
    use super::*;

    /// A service of 1,000 operations per second, and a clock that only waiting moves.
    struct Mock {
        now: Duration,
        /// CPU time of an operation at a time, in nanoseconds, without a probe.
        cost: fn(Duration) -> f64,
        /// Factor of the cost that the probe makes.
        probe: f64,
        /// Share of a CPU that the probe's processes take.
        tool: f64,
        account: Account,
        /// Time with the probe.
        probed: Duration,
        /// Whether operations end at a time.
        works: fn(Duration) -> bool,
    }

    impl Mock {
        fn new(cost: fn(Duration) -> f64) -> Self {
            Mock {
                now: Duration::ZERO,
                cost,
                probe: 1.0,
                tool: 0.0,
                account: Account::default(),
                probed: Duration::ZERO,
                works: |_| true,
            }
        }
    }

    impl Service for Mock {
        fn name(&self) -> String {
            "redis".to_owned()
        }

        fn counts(&self) -> bool {
            true
        }

        fn wait_until(&mut self, time: Duration) -> Result<(), Fault> {
            const STEP: Duration = Duration::from_millis(10);
            while self.now < time {
                self.now += STEP;
                if self.probe > 1.0 {
                    self.probed += STEP;
                }
                self.account.tool_ns += self.tool * STEP.as_nanos() as f64;
                if !(self.works)(self.now) {
                    continue;
                }
                self.account.ops += 10.0;
                self.account.service_ns += 10.0 * self.probe * (self.cost)(self.now);
            }
            self.account.at = self.now;
            Ok(())
        }

        fn read(&mut self) -> Result<Account, Fault> {
            Ok(self.account)
        }
    }

    /// Costs that move by some percent from a tenth of a second to the next.
    fn calm(at: Duration) -> f64 {
        const MOVES: [f64; 11] = [
            0.0, 30.0, -20.0, 10.0, 40.0, -30.0, 20.0, -10.0, -40.0, 20.0, -20.0,
        ];
        1000.0 + MOVES[at.as_millis() as usize / 100 % 11]
    }

    /// The same, where four seconds in seven are busy: with ten times as much.
    fn bursty(at: Duration) -> f64 {
        let busy = at.as_millis() as usize / 1000 % 7 < 4;
        calm(at) * if busy { 10.0 } else { 1.0 }
    }

    const WINDOW: Duration = Duration::from_millis(700);

    fn guard(limit: f64, service: &mut Mock) -> Guard {
        let mut guard = Guard::new(limit, WINDOW);
        guard.learn(service).expect("the limit works");
        guard
    }

    /// Windows with and without the probe, as a run has them; the reason why it ends.
    fn windows(guard: &mut Guard, service: &mut Mock, probe: f64) -> Option<String> {
        for _ in 0..45 {
            loop {
                service.probe = probe;
                let outcome = guard.window(service, WINDOW, Some("probe"));
                service.probe = 1.0;
                let judged = outcome.map(drop).or_else(|cut| {
                    guard.judge(service, cut)?;
                    Err(aborted("again".to_owned()))
                });
                match judged {
                    Ok(()) => break,
                    Err(Fault::Enough { text, .. }) if text == "again" => {}
                    Err(Fault::Enough { code, text }) => {
                        assert_eq!(code, ABORTED);
                        return Some(text);
                    }
                    Err(fault) => panic!("{fault:?}"),
                }
            }
            guard.window(service, WINDOW, None).expect("a window");
        }
        None
    }

    #[test]
    fn a_probe_within_the_limit_stays_and_one_above_is_detached() {
        for (limit, probe, stays) in [
            (0.2, 1.0, true),
            (0.2, 1.15, true),
            (0.2, 1.6, false),
            (0.2, 2.0, false),
            (1.5, 2.0, true),
            (1.5, 4.0, false),
        ] {
            let mut service = Mock::new(calm);
            let mut guard = guard(limit, &mut service);
            let ended = windows(&mut guard, &mut service, probe);
            assert_eq!(ended.is_none(), stays, "{limit} {probe}: {ended:?}");
            if let Some(text) = ended {
                assert!(
                    service.probed <= Duration::from_secs(2),
                    "{:?}",
                    service.probed
                );
                assert!(text.starts_with("The probe was detached after"), "{text}");
                assert!(text.contains("an operation of redis took"), "{text}");
            }
        }
    }

    #[test]
    fn it_says_what_it_measured() {
        let mut service = Mock::new(calm);
        let mut guard = guard(0.2, &mut service);
        let text = windows(&mut guard, &mut service, 2.0).expect("it ends");
        assert!(
            text.starts_with("The probe was detached after 0."),
            "{text}"
        );
        assert!(
            text.contains("more CPU time with it in each of two tries, and 20 % is allowed"),
            "{text}"
        );
    }

    #[test]
    fn a_limit_within_the_noise_is_refused_with_one_that_works() {
        let mut service = Mock::new(bursty);
        let mut guard = Guard::new(0.2, WINDOW);
        let Err(Fault::Broken(error)) = guard.learn(&mut service) else {
            panic!("it works");
        };
        assert!(error.is::<Error>(), "{error:#}");
        let text = format!("{error:#}");
        assert!(
            text.starts_with("--abort-above 20% is within the noise"),
            "{text}"
        );
        let (_, works) = text
            .split_once("works now is --abort-above ")
            .expect("a limit");
        let (works, _) = works.split_once('%').expect("a percentage");
        let works = works.parse::<f64>().expect("a number") / 100.0;
        Guard::new(works, WINDOW)
            .learn(&mut Mock::new(bursty))
            .expect("it works");
    }

    #[test]
    fn a_service_without_work_has_no_cost_that_could_rise() {
        let mut guard = Guard::new(0.2, WINDOW);
        let Err(Fault::Broken(error)) = guard.learn(&mut Mock::new(|_| 0.0)) else {
            panic!("it works");
        };
        assert!(
            format!("{error:#}").contains("used no CPU time in 14 s"),
            "{error:#}"
        );
    }

    /// A service that rests for two seconds in ten: no stretch without an operation is one that costs nothing.
    #[test]
    fn stretches_without_an_operation_say_nothing() {
        let works: fn(Duration) -> bool = |at| at.as_secs() % 10 >= 2;
        for (probe, stays) in [(1.0, true), (2.0, false)] {
            let mut service = Mock::new(calm);
            service.works = works;
            let mut guard = guard(0.2, &mut service);
            let ended = windows(&mut guard, &mut service, probe);
            assert_eq!(ended.is_none(), stays, "{probe}: {ended:?}");
        }
        let mut service = Mock::new(calm);
        service.works = |_| false;
        let mut guard = Guard::new(0.2, WINDOW);
        let Err(Fault::Broken(error)) = guard.learn(&mut service) else {
            panic!("it works");
        };
        let text = format!("{error:#}");
        assert!(
            text.contains("20 times no operation of redis ended"),
            "{text}"
        );
        assert!(text.contains("leave out --ops"), "{text}");
    }

    /// Bursts that come seldom: none while the noise is learnt.
    #[test]
    fn a_burst_cuts_a_window_off_and_the_probe_stays() {
        fn burst(at: Duration) -> f64 {
            let burst = at > Duration::from_secs(20) && at.as_millis() % 10_000 < 300;
            calm(at) * if burst { 5.0 } else { 1.0 }
        }
        let mut service = Mock::new(burst);
        let mut guard = guard(0.2, &mut service);
        assert_eq!(windows(&mut guard, &mut service, 1.0), None);
        // The bursts are part of the noise by then.
        assert!(windows(&mut guard, &mut service, 5.0).is_some());
    }

    #[test]
    fn a_load_that_changes_is_learnt_again() {
        fn step(at: Duration) -> f64 {
            calm(at)
                * if at > Duration::from_secs(20) {
                    3.0
                } else {
                    1.0
                }
        }
        let mut service = Mock::new(step);
        let mut guard = guard(0.2, &mut service);
        assert_eq!(windows(&mut guard, &mut service, 1.0), None);
        let usual = guard.alarm.expected(0).expect("a reference").usual;
        assert!(usual > 2900.0, "{usual}");
        // And the limit holds for the new load.
        assert!(windows(&mut guard, &mut service, 2.0).is_some());
    }

    #[test]
    fn a_load_that_becomes_too_noisy_ends_the_run() {
        fn noisy(at: Duration) -> f64 {
            if at > Duration::from_secs(20) {
                10.0 * bursty(at)
            } else {
                calm(at)
            }
        }
        let mut service = Mock::new(noisy);
        let mut guard = guard(0.2, &mut service);
        let text = windows(&mut guard, &mut service, 1.0).expect("it ends");
        assert!(
            text.starts_with("The run ended, without a probe attached"),
            "{text}"
        );
    }

    #[test]
    fn the_processes_of_a_probe_are_billed_over_all_of_its_windows() {
        for (share, stays) in [(0.0, true), (0.15, true), (0.3, false), (1.0, false)] {
            let mut service = Mock::new(calm);
            let mut guard = guard(0.2, &mut service);
            service.tool = share;
            let ended = windows(&mut guard, &mut service, 1.0);
            assert_eq!(ended.is_none(), stays, "{share}: {ended:?}");
            if let Some(text) = ended {
                assert!(text.contains("its own processes took"), "{text}");
            }
        }
        // Of a single short window, a burst is no share of a CPU.
        let mut service = Mock::new(calm);
        let mut guard = guard(0.5, &mut service);
        service.tool = 0.9;
        let window = Duration::from_millis(200);
        assert!(guard.window(&mut service, window, Some("probe")).is_ok());
        let mut ends = |_| guard.window(&mut service, window, Some("probe")).is_err();
        assert!((0..5).any(&mut ends), "of several it is");
    }

    #[test]
    fn readings_are_no_twins_and_end_with_the_stretch() {
        let looks = |ms| Guard::new(0.2, Duration::from_millis(ms)).looks;
        let ms = |all: &[u64]| {
            all.iter()
                .map(|ms| Duration::from_millis(*ms))
                .collect::<Vec<_>>()
        };
        assert_eq!(looks(50), ms(&[50]));
        assert_eq!(looks(200), ms(&[100, 200]));
        assert_eq!(looks(700), ms(&[100, 200, 400, 700]));
        assert_eq!(looks(60_000), ms(&[100, 200, 400, 1000]));
    }

    #[test]
    fn limits_are_rounded_up() {
        for (share, option) in [
            (0.031, "4%"),
            (0.372, "38%"),
            (1.83, "190%"),
            (42.1, "4300%"),
        ] {
            assert_eq!(rounded_up(share), option);
        }
    }
}
