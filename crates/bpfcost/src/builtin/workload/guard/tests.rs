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
    /// True at times at which operations end.
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
    // The burst of a single short window is not taken for a share of a CPU.
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
