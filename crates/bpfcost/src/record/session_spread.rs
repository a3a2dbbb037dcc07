//! How far sessions differ: what a record states of its machine, what the machine's kept sessions show, and what the
//! records at hand do.

use std::collections::BTreeMap;

use bpfcost_stats::{
    sample::median,
    session_spread::{FEWEST_FREEDOM, Level, SessionSpread, SessionSpreads},
};

use super::{
    Record, SessionSpreadRecord, SessionSpreadsRecord, SpreadRecord,
    history::{began_s, levels},
    reading::Reading,
};

/// What is assumed of the ratio of a probe to none, where too little is known, of a probe that adds up to
/// [`SMALL_ADDITION`]. A server's level moves with the machine, and this ratio less (docs/evidence/sessions.md).
const ASSUMED_RATIO: SessionSpreads = SessionSpreads {
    within: SessionSpread {
        share: 0.01,
        freedom: None,
    },
    between: SessionSpread {
        share: 0.01,
        freedom: None,
    },
};

/// The logarithm of the ratio above which what a probe adds scatters in proportion to it: a probe that doubles the
/// cost of a server meets the same neighbours as the server.
const SMALL_ADDITION: f64 = 0.05;

/// How many times as much as a small one a ratio of that logarithm scatters.
pub(super) fn ratio_leverage(log_ratio: f64) -> f64 {
    (log_ratio.abs() / SMALL_ADDITION).max(1.0)
}

/// Ratios of each case as those of a probe that adds little.
fn as_of_small(lists: Vec<Vec<Level>>) -> Vec<Vec<Level>> {
    let scaled = |list: Vec<Level>| {
        let logs: Vec<f64> = list.iter().map(|level| level.value.ln()).collect();
        let leverage = ratio_leverage(median(&logs).unwrap_or(0.0));
        let level = |(level, log): (Level, f64)| Level {
            value: (log / leverage).exp(),
            ..level
        };
        list.into_iter().zip(logs).map(level).collect()
    };
    lists.into_iter().map(scaled).collect()
}

impl SessionSpreadsRecord {
    /// Of spreads of which at least one is known.
    pub(super) fn of(spreads: SessionSpreads) -> Option<Self> {
        let known = |spread: SessionSpread| {
            Some(SessionSpreadRecord {
                percent: 100.0 * spread.share,
                freedom: spread.freedom?,
            })
        };
        let (within, between) = (known(spreads.within), known(spreads.between));
        (within.is_some() || between.is_some()).then_some(Self { within, between })
    }
}

impl SpreadRecord {
    /// Percent by which sessions of one sitting differ, as far as it was known.
    pub fn within_sitting(&self) -> Option<f64> {
        match self.sessions {
            Some(sessions) => Some(sessions.within?.percent),
            None => self.session,
        }
    }
}

impl Record {
    /// What is assumed of sessions of its kind.
    pub(super) fn assumed_spreads(&self) -> SessionSpreads {
        match self.layout.workload() {
            Some(_) => ASSUMED_RATIO,
            None => SessionSpreads::ASSUMED,
        }
    }

    /// States how far sessions of its kind differ on its machine, if these levels of such sessions show it.
    pub(super) fn state_spreads(&mut self, levels: impl Fn(Reading) -> Vec<Vec<Level>>) {
        if self.unit.is_counted() {
            return;
        }
        let learnt = |reading| {
            let levels = match self.layout.workload() {
                Some(_) => as_of_small(levels(reading)),
                None => levels(reading),
            };
            SessionSpreadsRecord::of(SessionSpreads::learnt(&levels, &self.assumed_spreads()))
        };
        let (found, undisturbed) = (learnt(Reading::AsFound), learnt(Reading::Undisturbed));
        self.spread.sessions = found;
        self.spread.undisturbed_sessions = undisturbed;
    }

    /// What the sessions before it showed, or what is assumed.
    pub(super) fn stated_spreads(&self, reading: Reading) -> SessionSpreads {
        let assumed = self.assumed_spreads();
        let usable =
            |percent: f64| (percent.is_finite() && percent >= 0.0).then_some(percent / 100.0);
        let stated = |spread: Option<SessionSpreadRecord>, or: SessionSpread| {
            let known = |one: SessionSpreadRecord| {
                Some(SessionSpread {
                    share: usable(one.percent)?,
                    freedom: Some(one.freedom),
                })
            };
            spread.and_then(known).unwrap_or(or)
        };
        let (sessions, session) = match reading {
            Reading::AsFound => (self.spread.sessions, self.spread.session),
            Reading::Undisturbed => (self.spread.undisturbed_sessions, None),
        };
        match (sessions, session.and_then(usable)) {
            (Some(sessions), _) => SessionSpreads {
                within: stated(sessions.within, assumed.within),
                between: stated(sessions.between, assumed.between),
            }
            .ordered(),
            // From before sessions were kept: of some minutes of `self-test`, and of kernel costs.
            (None, Some(share)) if self.layout.workload().is_none() => SessionSpreads {
                within: SessionSpread {
                    share,
                    freedom: Some(FEWEST_FREEDOM),
                },
                ..assumed
            }
            .ordered(),
            (None, _) => assumed,
        }
    }
}

/// How far sessions differ on the machines of these records, all of one kind: from the sessions kept of them
/// (`kept`), from the records as sessions of a side, and from what they state, in one reading.
pub(super) fn spreads(
    sides: [&[&Record]; 2],
    reading: Reading,
    kept: impl Fn(&Record, Reading) -> Vec<Vec<Level>>,
) -> SessionSpreads {
    let mut machines: Vec<(&str, &str)> = Vec::new();
    let mut lists = Vec::new();
    // What is compared must not pass for what sessions differ by: each side is its own list.
    let compared: Vec<f64> = sides.concat().into_iter().map(began_s).collect();
    let apart = |mut list: Vec<Level>| {
        list.retain(|level| !compared.contains(&level.began_s));
        list
    };
    for record in sides.concat() {
        let machine = (&*record.machine.cpu, &*record.machine.kernel);
        if !machines.contains(&machine) {
            machines.push(machine);
            lists.extend(kept(record, reading).into_iter().map(apart));
        }
    }
    for side in sides {
        lists.extend(case_levels(side.iter().copied(), reading));
    }
    let records = || sides.into_iter().flatten();
    if records().any(|record| record.layout.workload().is_some()) {
        lists = as_of_small(lists);
    }
    let stated = records().map(|record| record.stated_spreads(reading));
    let stated = stated.reduce(SessionSpreads::larger);
    let assumed = records().map(|record| record.assumed_spreads());
    let assumed = assumed.reduce(SessionSpreads::larger);
    let learnt = SessionSpreads::learnt(&lists, &assumed.unwrap_or(SessionSpreads::ASSUMED));
    stated.map_or(learnt, |stated| stated.better_known(learnt))
}

/// The levels of each case in these records, which are sessions of the same.
pub(crate) fn case_levels<'a>(
    sessions: impl IntoIterator<Item = &'a Record>,
    reading: Reading,
) -> Vec<Vec<Level>> {
    let mut lists: BTreeMap<String, Vec<Level>> = BTreeMap::new();
    for record in sessions {
        for (case, value) in levels(record, reading) {
            let level = Level {
                began_s: began_s(record),
                value,
            };
            lists.entry(case).or_default().push(level);
        }
    }
    lists.into_values().collect()
}
