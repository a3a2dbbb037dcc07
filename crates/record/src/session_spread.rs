//! The spread between sessions: as a record states it of its machine, and as the machine's stored sessions and the
//! compared records show it.

use std::collections::BTreeMap;

use bpfcost_stats::{
    sample::median,
    session_spread::{FEWEST_FREEDOM, Level, SessionSpread, SessionSpreads},
};

use crate::{
    Record, SessionSpreadRecord, SessionSpreadsRecord, SpreadRecord,
    history::{CaseLevels, began_s, levels, series},
    reading::Reading,
};

/// The spread assumed of the ratio of a probe to none, where too little is known, for a probe that adds up to
/// [`SMALL_ADDITION`]. A server's level moves with the machine, and this ratio moves less (docs/evidence/sessions.md).
const ASSUMED_RATIO: SessionSpreads = SessionSpreads {
    within: SessionSpread::assumed(0.01),
    between: SessionSpread::assumed(0.01),
};

/// The logarithm of the ratio above which what a probe adds scatters in proportion to it: a probe that doubles the
/// cost of a server meets the same neighbours as the server.
const SMALL_ADDITION: f64 = 0.05;

/// The scatter of a ratio with that logarithm, as a multiple of that of a small one.
pub(super) fn ratio_leverage(log_ratio: f64) -> f64 {
    (log_ratio.abs() / SMALL_ADDITION).max(1.0)
}

/// Ratios of each case as those of a probe that adds little.
fn as_of_small(lists: Vec<CaseLevels>) -> Vec<CaseLevels> {
    let scaled = |list: CaseLevels| {
        let logs: Vec<f64> = list.levels.iter().map(|level| level.value.ln()).collect();
        let leverage = ratio_leverage(median(&logs).unwrap_or(0.0));
        let level = |(level, log): (Level, f64)| Level {
            value: (log / leverage).exp(),
            ..level
        };
        CaseLevels {
            levels: list.levels.into_iter().zip(logs).map(level).collect(),
            ..list
        }
    };
    lists.into_iter().map(scaled).collect()
}

impl SessionSpreadsRecord {
    /// The record of spreads; `None` if neither is known.
    pub(super) fn from_known(spreads: SessionSpreads) -> Option<Self> {
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
    /// The spreads assumed of sessions of its kind.
    fn assumed_spreads(&self, reading: Reading) -> SessionSpreads {
        match reading {
            _ if self.layout.times_windows() => ASSUMED_RATIO,
            Reading::AsFound => SessionSpreads::ASSUMED,
            Reading::Undisturbed => SessionSpreads::ASSUMED_UNDISTURBED,
        }
    }

    /// States how far sessions of its kind differ on its machine, if these levels of such sessions show it.
    pub(super) fn state_spreads(&mut self, levels: impl Fn(Reading) -> Vec<CaseLevels>) {
        if self.unit.is_counted() {
            return;
        }
        let learnt = |reading| {
            let levels = match levels(reading) {
                ratios if self.layout.times_windows() => as_of_small(ratios),
                levels => levels,
            };
            SessionSpreadsRecord::from_known(SessionSpreads::learnt(
                &levels,
                &self.assumed_spreads(reading),
            ))
        };
        let (found, undisturbed) = (learnt(Reading::AsFound), learnt(Reading::Undisturbed));
        self.spread.sessions = found;
        self.spread.undisturbed_sessions = undisturbed;
    }

    /// The spreads that the sessions before it showed, or those assumed.
    pub(super) fn stated_spreads(&self, reading: Reading) -> SessionSpreads {
        let assumed = self.assumed_spreads(reading);
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
            (None, Some(share)) if !self.layout.times_windows() => SessionSpreads {
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

/// The spread between sessions of each case, in one reading.
pub(super) struct CaseSpreads {
    reading: Reading,
    /// The spreads over all cases.
    pooled: SessionSpreads,
    known: Vec<CaseLevels>,
    /// The series of the records that are compared.
    series: Vec<String>,
}

impl CaseSpreads {
    /// Estimates the spreads on the machines of these records, all of one kind: from the machines' stored sessions
    /// (`history`), from the records as sessions of a side, and from what they state.
    pub(super) fn new(
        sides: [&[&Record]; 2],
        reading: Reading,
        history: impl Fn(&Record, Reading) -> Vec<CaseLevels>,
    ) -> Self {
        let mut machines: Vec<(&str, &str)> = Vec::new();
        let mut known = Vec::new();
        // What is compared must not pass for what sessions differ by: each side is its own list.
        let compared: Vec<f64> = sides.concat().into_iter().map(began_s).collect();
        let apart = |mut list: CaseLevels| {
            list.levels
                .retain(|level| !compared.contains(&level.began_s));
            list
        };
        for record in sides.concat() {
            let machine = (&*record.machine.cpu, &*record.machine.kernel);
            if !machines.contains(&machine) {
                machines.push(machine);
                known.extend(history(record, reading).into_iter().map(apart));
            }
        }
        for side in sides {
            known.extend(case_levels(side.iter().copied(), reading));
        }
        let records = || sides.into_iter().flatten();
        if records().any(|record| record.layout.times_windows()) {
            known = as_of_small(known);
        }
        let stated = records().map(|record| record.stated_spreads(reading));
        let stated = stated.reduce(SessionSpreads::larger);
        let assumed = records().map(|record| record.assumed_spreads(reading));
        let assumed = assumed.reduce(SessionSpreads::larger);
        let assumed = assumed.unwrap_or(SessionSpreads::ASSUMED);
        let learnt = SessionSpreads::learnt(&known, &assumed);
        CaseSpreads {
            reading,
            pooled: stated.map_or(learnt, |stated| stated.better_known(learnt)),
            known,
            series: records().map(|record| series(record)).collect(),
        }
    }

    /// The spreads of a case.
    pub(super) fn case(&self, name: &str) -> SessionSpreads {
        let is_own = |list: &&CaseLevels| list.case == name && self.series.contains(&list.series);
        let own = self.known.iter().filter(is_own);
        match self.reading {
            Reading::AsFound => self.pooled,
            Reading::Undisturbed => {
                SessionSpreads::of_undisturbed(&own.collect::<Vec<_>>(), &self.pooled)
            }
        }
    }
}

/// The levels of each case in these records, which are sessions of the same.
pub fn case_levels<'a>(
    sessions: impl IntoIterator<Item = &'a Record>,
    reading: Reading,
) -> Vec<CaseLevels> {
    let mut lists: BTreeMap<String, CaseLevels> = BTreeMap::new();
    for record in sessions {
        for (case, value) in levels(record, reading) {
            let level = Level {
                began_s: began_s(record),
                value,
            };
            let list = lists.entry(case).or_insert_with_key(|case| CaseLevels {
                series: series(record),
                case: case.clone(),
                levels: Vec::new(),
            });
            list.levels.push(level);
        }
    }
    lists.into_values().collect()
}
