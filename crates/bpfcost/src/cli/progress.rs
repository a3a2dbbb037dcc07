//! Progress on stderr: a bar on a terminal, now and then a line elsewhere.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use bpfcost_stats::looks::first_look;

use super::output::{Bar, note};
use bpfcost_measure::{Event, LONGEST_S, Plan};
use bpfcost_text::number::{duration, plural};

/// How often the bar is drawn, in Hz: seldom, since drawing takes CPU time from what is measured.
const DRAWN_HZ: u8 = 2;

/// How long a run that is no terminal's may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// What a run shows of itself while it goes on.
pub(super) struct Progress {
    bar: Bar,
    terminal: bool,
    begun: Instant,
    earlier_s: f64,
    spoken: Instant,
    /// What the run will take at most, in seconds.
    seconds: f64,
    /// The epochs after which it ends, where that is known.
    last: Option<usize>,
    /// The epochs that the first look needs, where it is waited for beyond the time.
    first_look: Option<usize>,
    epochs: usize,
    /// How many epochs there were when the first that this saw was over, and at what second of the run.
    first: Option<(usize, f64)>,
    /// At what second the last one was over.
    finished_s: f64,
    names: Vec<String>,
    /// Whether a precision was asked for.
    precision: bool,
    /// Cases that are not yet precise enough.
    open: Option<usize>,
    /// The target, where lines of several runs mix.
    target: Option<String>,
}

impl Progress {
    /// Of a run whose earlier parts took `earlier_s` seconds.
    pub(super) fn new(plan: &Plan, earlier_s: f64) -> Self {
        let steps = epochs_of(plan).map_or(longest_s(plan) as u64, |epochs| epochs as u64);
        let bar = Bar::new(steps, DRAWN_HZ, "{bar:30} {msg}");
        // Until the first event: programs are loaded, servers start.
        bar.set_words("loading …");
        Progress::shown_by(bar, None, plan, earlier_s)
    }

    /// The same, in lines that say which run they are of: others go on at the same time.
    pub(super) fn in_lines(plan: &Plan, earlier_s: f64) -> Self {
        Progress::shown_by(Bar::hidden(), Some(plan.target.clone()), plan, earlier_s)
    }

    fn shown_by(bar: Bar, target: Option<String>, plan: &Plan, earlier_s: f64) -> Self {
        let now = Instant::now();
        Progress {
            bar,
            terminal: target.is_none() && stderr().is_terminal(),
            begun: now,
            earlier_s,
            spoken: now,
            seconds: longest_s(plan),
            last: epochs_of(plan),
            first_look: plan.patient.then(|| first_look(plan.comparisons())),
            epochs: 0,
            first: None,
            finished_s: 0.0,
            names: plan.cases.iter().map(|case| case.name.clone()).collect(),
            precision: plan.precision.is_some(),
            open: None,
            target,
        }
    }

    /// Takes an event, and shows it when it is time.
    pub(super) fn show(&mut self, event: &Event) {
        let spent = self.earlier_s + self.begun.elapsed().as_secs_f64();
        let doing = match event {
            Event::Calibrated { case, .. } => {
                format!(
                    "calibrating {}",
                    self.names.get(*case).map_or("", String::as_str)
                )
            }
            Event::EpochFinished { epoch, .. } => {
                self.epochs = epoch + 1;
                self.finished_s = spent;
                self.first.get_or_insert((self.epochs, spent));
                plural(self.epochs, "epoch")
            }
            Event::Trial { .. } => plural(self.epochs, "epoch"),
            Event::Looked { open, .. } => {
                self.open = self.precision.then_some(*open);
                plural(self.epochs, "epoch")
            }
            _ => return,
        };
        let open = match self.open {
            Some(open) => format!(", {} not yet precise enough", plural(open, "case")),
            None => String::new(),
        };
        let left = |epochs: usize| {
            let left = epochs.saturating_sub(self.epochs) as f64;
            match self.finished_s + self.epoch_s() * left - spent {
                // Of an epoch that takes longer than others, the rest is unknown.
                left if left < 1.0 => "a little left".to_owned(),
                left => format!("about {} left", duration(left)),
            }
        };
        // A default time is dropped where it would show nothing.
        let late =
            |looks: &usize| self.epoch_s() * *looks as f64 > self.seconds && self.epochs < *looks;
        let text = match (self.last, self.first_look.filter(late)) {
            (Some(last), _) if self.epochs > 0 => {
                let spent = duration(spent);
                format!("{doing} of {last}, {spent}, {}", left(last))
            }
            (Some(_), _) => format!("{doing}, {}", duration(spent)),
            (None, Some(looks)) if self.epochs > 0 => format!(
                "{doing} of {looks} until the first look, {}, {}",
                duration(spent),
                left(looks)
            ),
            (None, Some(looks)) => {
                format!(
                    "{doing} of {looks} until the first look, {}",
                    duration(spent)
                )
            }
            (None, None) => format!(
                "{doing}, {} of at most {}{open}",
                duration(spent),
                duration(self.seconds)
            ),
        };
        if self.terminal {
            self.bar
                .set_steps(self.last.map_or(spent as u64, |_| self.epochs as u64));
            self.bar.set_words(&text);
        } else if self.spoken.elapsed() >= SILENCE {
            self.spoken = Instant::now();
            match &self.target {
                Some(target) => note!("{target}: {text}"),
                None => note!("{text}"),
            }
        }
    }

    /// What an epoch takes, in seconds. The first does what the others need not, and counts where it is the only one.
    fn epoch_s(&self) -> f64 {
        match self.first {
            Some((first, first_s)) if self.epochs > first => {
                (self.finished_s - first_s) / (self.epochs - first) as f64
            }
            _ => self.finished_s / self.epochs.max(1) as f64,
        }
    }

    /// Prints a line that stays.
    pub(super) fn say(&mut self, text: &str) {
        self.spoken = Instant::now();
        self.bar.suspend(|| note!("{text}"));
    }

    pub(super) fn end(&self) {
        self.bar.clear();
    }
}

/// The longest time of a run, in seconds.
fn longest_s(plan: &Plan) -> f64 {
    plan.seconds.unwrap_or(LONGEST_S)
}

/// The epochs after which a run ends whatever it sees.
fn epochs_of(plan: &Plan) -> Option<usize> {
    plan.loads()
        .or_else(|| plan.quick.then(|| first_look(plan.comparisons())))
}
