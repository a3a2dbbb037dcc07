//! When a run is killed.

use std::time::Duration;

use rand::{Rng, RngExt as _};

use crate::running::Running;

/// A random moment: after something was seen in the journal, so that short parts of a run are hit as well as long ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    after: Seen,
    wait: Duration,
    /// Ctrl-C comes first, and the kill so much later: all that ends a run is done then.
    ending: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Seen {
    /// The run was started.
    Start,
    /// The journal has its first line.
    Header,
    /// The first trial is written.
    Trial,
}

/// Part of a run in which it was killed, by its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Arguments, checks, the boot of a guest: nothing is written yet.
    BeforeJournal,
    /// The first load.
    Setup,
    Calibration,
    Trials,
    End,
}

impl Moment {
    /// Any moment of a run. `haste` below 1 makes it come sooner, where the run was over before the last one.
    pub(crate) fn draw(random: &mut impl Rng, in_guest: bool, haste: f64) -> Self {
        let mut up_to = |seconds: f64| Duration::from_secs_f64(random.random::<f64>() * seconds);
        let start = up_to(if in_guest { 6.0 } else { 0.4 } * haste);
        let (calibration, trials) = (up_to(haste), up_to(4.0 * haste));
        let (before, ending) = (up_to(haste), up_to(1.5 * haste));
        let (after, wait, ending) = match random.random_range(0..10) {
            0 | 1 => (Seen::Start, start, None),
            2 | 3 => (Seen::Header, calibration, None),
            4..7 => (Seen::Trial, trials, None),
            _ => (Seen::Trial, before, Some(ending)),
        };
        Moment {
            after,
            wait,
            ending,
        }
    }

    /// Waits for it; `false` where the run was over before.
    pub(crate) fn comes(self, run: &mut Running) -> bool {
        let seen = match self.after {
            Seen::Start => true,
            Seen::Header => run.until_or_end(|journal| journal.contains('\n')),
            Seen::Trial => run.until_or_end(|journal| journal.contains("\n{\"trial\"")),
        };
        if !seen || run.ends_within(self.wait) {
            return false;
        }
        let Some(ending) = self.ending else {
            return true;
        };
        run.signal("INT");
        !run.ends_within(ending)
    }

    /// The part in which a run was that left this journal.
    pub(crate) fn part(self, journal: &str) -> Part {
        let has = |line: &str| journal.contains(line);
        if self.ending.is_some() || has("\n{\"stopped\"") {
            Part::End
        } else if has("\n{\"trial\"") {
            Part::Trials
        } else if has("\n{\"calibrated\"") {
            Part::Calibration
        } else if has("\n") {
            Part::Setup
        } else {
            Part::BeforeJournal
        }
    }
}
