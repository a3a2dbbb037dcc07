//! The spread between the sessions of a machine, estimated from the sessions that it has measured.
//!
//! Two sessions of one sitting resemble each other more than sessions of different days. So the spread has two
//! values: within a sitting, and between sittings. Each is a relative standard deviation of one session's level
//! (0.01 is 1 %), set so that it explains both the typical distance between two sessions and the distance that
//! 95 % stay below, since sessions stray further now and then than a normal distribution allows.
//!
//! All cases of a session share the machine's state. What the spread is estimated from is therefore the number
//! of sessions or sittings, not of cases: its degrees of freedom, by which Student's distribution widens the
//! intervals. Below [`FEWEST_FREEDOM`] the estimate says too little, and an assumption takes its place unless
//! what was seen is larger.
//!
//! That is so of costs as found. Undisturbed costs of a case have a spread of their own
//! ([`SessionSpreads::of_undisturbed`]).

use crate::normal;
use crate::sample::Sample;
use crate::sittings::sittings;

/// The degrees of freedom from which an estimate is used by itself: 4 sessions in a sitting, 4 sittings.
pub const FEWEST_FREEDOM: u32 = 3;

/// The distance at this quantile counts as one that this share stay below.
const FAR: [f64; 2] = [0.95, 0.95];

/// The same of a single case, whose sessions are few: of all that were seen, the largest.
const FAR_OF_ONE: [f64; 2] = [1.0, 0.90];

/// The degrees of freedom from which a case's own sessions show its spread.
const FEWEST_FREEDOM_OF_ONE: u32 = 9;

/// Undisturbed costs that agree better did so by chance, or are as fine as slices are kept.
const MIN_UNDISTURBED: f64 = 0.001;

/// The spread of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionSpread {
    /// Relative standard deviation of one session's level; 0.01 is 1 %.
    pub share: f64,
    /// Degrees of freedom of the estimate; `None` where it is assumed.
    pub freedom: Option<u32>,
}

impl SessionSpread {
    /// One that was not estimated.
    #[must_use]
    pub const fn assumed(share: f64) -> Self {
        Self {
            share,
            freedom: None,
        }
    }
}

/// The spread between the sessions of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionSpreads {
    /// Sessions of one sitting.
    pub within: SessionSpread,
    /// Sessions of different sittings; includes the spread within.
    pub between: SessionSpread,
}

/// One case's value in a session that began at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// When the session began, in seconds from any fixed moment.
    pub began_s: f64,
    /// The cost of the case.
    pub value: f64,
}

impl SessionSpreads {
    /// The spreads assumed of a machine with too few known sessions. On the shared virtual machine where bpfcost was
    /// developed, two sessions of a kernel cost minutes apart typically differed by 1.6 %, which is a spread of 1.7 %,
    /// and at worst by 19 %.
    pub const ASSUMED: Self = Self {
        within: SessionSpread::assumed(0.03),
        between: SessionSpread::assumed(0.05),
    };

    /// The same of undisturbed costs. What neighbours do is not in them, and what differs from load to load is in the
    /// interval of each session (docs/evidence/sessions.md). Of different days nothing is known, so the same is assumed
    /// as of costs as found.
    pub const ASSUMED_UNDISTURBED: Self = Self {
        within: SessionSpread::assumed(0.01),
        between: Self::ASSUMED.between,
    };

    const NOTHING: Self = Self {
        within: SessionSpread::assumed(0.0),
        between: SessionSpread::assumed(0.0),
    };

    /// The spreads of a case's undisturbed cost, as its own past sessions show, which are a list for each series.
    /// Neighbours strike all cases, but undisturbed costs scatter each in its own way, from hundredths of a percent to
    /// percents. With too few sessions of its own, the spread of all cases (`pooled`) or an assumption is used, but
    /// never less than its own sessions show.
    #[must_use]
    pub fn of_undisturbed<C: AsRef<[Level]>>(own: &[C], pooled: &Self) -> Self {
        let own = Self::shown_by(own, &Self::NOTHING, FAR_OF_ONE);
        let is_known = |spread: SessionSpread| spread.freedom >= Some(FEWEST_FREEDOM_OF_ONE);
        let known = |own: SessionSpread, pooled: SessionSpread, assumed: SessionSpread| {
            let spread = if is_known(own) { own } else { pooled };
            let share = spread.share.max(own.share).max(MIN_UNDISTURBED);
            if is_known(spread) || share > assumed.share {
                SessionSpread { share, ..spread }
            } else {
                assumed
            }
        };
        let assumed = Self::ASSUMED_UNDISTURBED;
        let between = known(own.between, pooled.between, assumed.between);
        let within = known(own.within, pooled.within, assumed.within);
        // Sittings of one session each: what differs between them includes what differs within.
        let includes = is_known(own.between) && !is_known(own.within);
        let within = if includes && within.share > between.share {
            between
        } else {
            within
        };
        Self { within, between }.ordered()
    }

    /// The spreads that past sessions show; `cases` lists the levels of each case. A spread that too few sessions show
    /// is assumed, and no smaller than they show.
    #[must_use]
    pub fn learnt<C: AsRef<[Level]>>(cases: &[C], assumed: &Self) -> Self {
        Self::shown_by(cases, assumed, FAR).ordered()
    }

    fn shown_by<C: AsRef<[Level]>>(cases: &[C], assumed: &Self, far: [f64; 2]) -> Self {
        let (mut within, mut between) = (Vec::new(), Vec::new());
        let (mut sessions, mut separate) = (0, 0);
        for levels in cases {
            let kept: Vec<Level> = levels
                .as_ref()
                .iter()
                .copied()
                .filter(|level| level.began_s.is_finite())
                .filter(|level| level.value.is_finite() && level.value > 0.0)
                .collect();
            let began: Vec<f64> = kept.iter().map(|level| level.began_s).collect();
            let numbers = sittings(&began);
            for (i, a) in kept.iter().enumerate() {
                for (j, b) in kept.iter().enumerate().skip(i + 1) {
                    let distance = (a.value.ln() - b.value.ln()).abs();
                    if numbers[i] == numbers[j] {
                        within.push(distance);
                    } else {
                        between.push(distance);
                    }
                }
            }
            let count = numbers.iter().max().map_or(0, |last| last + 1);
            // The cases of a session share its luck: the longest list counts, not their sum.
            sessions = sessions.max(kept.len() - count);
            separate = separate.max(count.saturating_sub(1));
        }
        let within = spread(&within, far, sessions, assumed.within);
        let between = spread(&between, far, separate, assumed.between);
        Self { within, between }
    }

    /// Sessions of different sittings can't differ less than those of one: sittings that happened to agree say no
    /// such thing, nor does an assumption.
    #[must_use]
    pub fn ordered(self) -> Self {
        let Self { within, between } = self;
        if between.share >= within.share {
            return self;
        }
        let freedom = between.freedom.or(within.freedom);
        let share = within.share;
        Self {
            within,
            between: SessionSpread { share, freedom },
        }
    }

    /// The larger of two machines' spreads, kind by kind.
    #[must_use]
    pub fn larger(self, other: Self) -> Self {
        let larger = |a: SessionSpread, b: SessionSpread| if b.share > a.share { b } else { a };
        Self {
            within: larger(self.within, other.within),
            between: larger(self.between, other.between),
        }
        .ordered()
    }

    /// The better known of two accounts of one machine, kind by kind; the larger, where they are as good.
    #[must_use]
    pub fn better_known(self, other: Self) -> Self {
        let better = |a: SessionSpread, b: SessionSpread| match a.freedom.cmp(&b.freedom) {
            std::cmp::Ordering::Greater => a,
            std::cmp::Ordering::Less => b,
            std::cmp::Ordering::Equal if b.share > a.share => b,
            std::cmp::Ordering::Equal => a,
        };
        Self {
            within: better(self.within, other.within),
            between: better(self.between, other.between),
        }
        .ordered()
    }
}

/// The spread that distances between sessions show, or what is assumed. It explains the typical distance, and one that is
/// far: at which quantile, and which share stay below it.
fn spread(
    distances: &[f64],
    [far, below]: [f64; 2],
    freedom: usize,
    assumed: SessionSpread,
) -> SessionSpread {
    let share = Sample::new(distances).map_or(0.0, |distances| {
        let explained =
            |at: f64, below: f64| distances.quantile(at) / normal::quantile(0.5 + below / 2.0);
        explained(0.5, 0.5).max(explained(far, below)) / std::f64::consts::SQRT_2
    });
    let freedom = u32::try_from(freedom).unwrap_or(u32::MAX);
    if freedom >= FEWEST_FREEDOM {
        SessionSpread {
            share,
            freedom: Some(freedom),
        }
    } else {
        SessionSpread {
            share: share.max(assumed.share),
            ..assumed
        }
    }
}
