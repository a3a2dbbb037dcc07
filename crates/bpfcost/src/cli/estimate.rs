//! What a run takes on this machine, and what it can detect: known once its first epochs are measured, and printed then.

use bpfcost_measure::{Event, Expectation, Measurements, Plan, expect, time_option};
use bpfcost_text::number::{duration, plural, round_percent};

/// No longer run is recommended, in seconds: over more than a day a machine drifts anyway.
const MAX_S: f64 = 86_400.0;

/// Waits for the first epochs of a run.
pub(super) struct Estimate {
    plan: Plan,
    /// The first epochs; `None` after the estimate.
    measured: Option<Measurements>,
}

impl Estimate {
    /// An estimate of a run that has measured this before; of runs other than workloads there is none.
    pub(super) fn new(plan: &Plan, measured: &Measurements) -> Self {
        let waits = plan.subject.is_workload();
        Estimate {
            plan: plan.clone(),
            measured: waits.then(|| measured.clone()),
        }
    }

    /// Takes an event; returns the estimate, once.
    pub(super) fn take(&mut self, event: &Event) -> Option<String> {
        let measured = self.measured.as_mut()?;
        measured.apply(event);
        if !matches!(event, Event::EpochFinished { .. }) {
            return None;
        }
        let expected = expect(&self.plan, measured)?;
        self.measured = None;
        let operation = self.plan.layout.operation().unwrap_or_default();
        Some(sentence(&self.plan, &expected, operation))
    }
}

/// The estimate in a sentence. A machine on which the question can't be answered comes first.
fn sentence(plan: &Plan, expected: &Expectation, operation: &str) -> String {
    let takes = format!(
        "{} in all ({} of about {})",
        duration(expected.seconds),
        plural(expected.epochs, "epoch"),
        duration(expected.epoch_s)
    );
    let Some(effect) = expected.detectable else {
        return format!("about {takes}");
    };
    let detects = format!(
        "{} in CPU time per {operation} in three of four runs",
        round_percent(effect)
    );
    if effect <= expected.wanted {
        return format!("about {takes}; it would detect a difference of {detects}");
    }
    let question = match plan.budget {
        Some(budget) => format!("judge a budget of {}", round_percent(budget)),
        None => format!("resolve {}", round_percent(expected.wanted)),
    };
    let quick = if plan.quick { " without --quick" } else { "" };
    let remedy = match expected.resolve_s {
        Some(seconds) if seconds <= MAX_S => {
            format!("--time {}{quick} would do", time_option(seconds))
        }
        _ => "a day would not be enough: make it quieter (bpfcost check shows what disturbs it)"
            .to_owned(),
    };
    format!(
        "this machine is too noisy to {question} in this run, which takes about {takes} and would detect {detects}; {remedy}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bpfcost_measure::FIRST_EPOCHS;

    fn expected(detectable: Option<f64>, resolve_s: f64) -> Expectation {
        Expectation {
            measured: FIRST_EPOCHS,
            epoch_s: 11.0,
            epochs: 10,
            seconds: 115.0,
            detectable,
            wanted: 0.03,
            resolve_s: Some(resolve_s),
        }
    }

    fn said(plan: &Plan, expected: &Expectation) -> String {
        sentence(plan, expected, "command").replace('\u{a0}', " ")
    }

    #[test]
    fn a_quiet_machine_has_its_time_and_its_effect() {
        assert_eq!(
            said(&Plan::default(), &expected(Some(0.02), 60.0)),
            "about 115 s in all (10 epochs of about 11 s); it would detect a difference of 2 % in CPU time per command in \
             three of four runs"
        );
        assert_eq!(
            said(&Plan::default(), &expected(None, 60.0)),
            "about 115 s in all (10 epochs of about 11 s)"
        );
    }

    #[test]
    fn a_machine_too_noisy_for_the_question_says_so_first() {
        let quick = Plan {
            quick: true,
            budget: Some(0.05),
            ..Plan::default()
        };
        let text = said(&quick, &expected(Some(0.12), 17_174.0));
        assert!(
            text.starts_with("this machine is too noisy to judge a budget of 5 % in this run"),
            "{text}"
        );
        assert!(text.contains("would detect 12 % in CPU time"), "{text}");
        assert!(
            text.ends_with("; --time 4h50m without --quick would do"),
            "{text}"
        );
        let text = said(&Plan::default(), &expected(Some(0.12), 1e6));
        assert!(text.contains("too noisy to resolve 3 %"), "{text}");
        assert!(text.contains("a day would not be enough"), "{text}");
    }
}
