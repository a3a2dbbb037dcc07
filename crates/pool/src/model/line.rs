//! One cache line: who has it, from when to when, and what an access to it takes.
//!
//! A line is owned by one core, or shared by any number. A core that lacks what it needs asks the line's
//! directory, which serves one request after another. The core that has the line can go on using it until the
//! request has reached it, and that is what keeps a contended line useful at all.

use std::vec::Vec;

use super::{ModelMachine, random::Random};

/// Picoseconds since the simulation began: whole numbers, so that nothing depends on the order of sums.
pub(super) type Time = u64;

/// A hold that no core has asked for yet.
const OPEN: Time = Time::MAX;

/// The mean time for which a core keeps a line that another has asked for, as a share of the transfer; it varies from
/// nothing to twice that. Fitted once: with it, two threads on the machine that this was written on take as long as
/// they did with the freelist and with an array of compare-and-exchanges.
const KEPT: f64 = 0.2;

/// The relative variation of transfers, either way: cores are not all as far from each other.
const JITTER: f64 = 0.2;

pub(super) fn time(ns: f64) -> Time {
    (ns * 1000.0).round() as Time
}

/// An access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Load,
    /// A write without a read: local where the line is owned.
    Store,
    /// A read and a write in one step, or an attempt at it.
    Change,
}

/// The time for which a core has the line.
#[derive(Clone, Copy, Debug)]
struct Hold {
    core: u32,
    from: Time,
    until: Time,
    owned: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedLine {
    holds: Vec<Hold>,
    /// When the directory has served all that has asked so far.
    free: Time,
}

/// The outcome of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessOutcome {
    /// The line was there; the access takes effect at once.
    Hit,
    /// The line comes at that time, and the access takes effect then.
    Comes(Time),
}

impl SimulatedLine {
    /// A core's access that begins at a time; no later access may begin earlier.
    pub(super) fn access(
        &mut self,
        machine: &ModelMachine,
        core: u32,
        at: Time,
        access: Access,
        random: &Random,
    ) -> AccessOutcome {
        self.holds.retain(|hold| hold.until > at);
        let writes = access != Access::Load;
        let mine = |hold: &&Hold| hold.core == core && (hold.owned || !writes);
        if let Some(hold) = self.holds.iter().find(mine) {
            // Of two threads of a core, the second waits for what the first has asked for.
            return if hold.from <= at {
                AccessOutcome::Hit
            } else {
                AccessOutcome::Comes(hold.from)
            };
        }
        let others = self.holds.iter().filter(|hold| hold.until == OPEN);
        let distances = others
            .filter(|hold| hold.core != core)
            .map(|hold| machine.distance_ns(hold.core, core));
        // A writer waits for the last to give it up, a reader takes it from the nearest.
        let distance = if writes {
            distances.max_by(f64::total_cmp)
        } else {
            distances.min_by(f64::total_cmp)
        };
        let Some(distance) = distance else {
            // No core has had it yet. The cost of one fetch from memory is not the pool's.
            self.holds.push(Hold {
                core,
                from: at,
                until: OPEN,
                owned: true,
            });
            return AccessOutcome::Hit;
        };
        let transfer = distance * random.around_one(JITTER);
        let kept = distance * KEPT * random.around_one(1.0);
        let begins = at.max(self.free);
        let (taken, comes) = (begins + time(kept), begins + time(transfer));
        let owned = self
            .holds
            .iter()
            .any(|hold| hold.until == OPEN && hold.owned);
        if writes {
            // Everybody loses it.
            for hold in &mut self.holds {
                hold.until = hold.until.min(taken);
            }
        } else if owned {
            self.demote(taken);
        }
        self.holds.push(Hold {
            core,
            from: comes,
            until: OPEN,
            owned: writes,
        });
        if writes || owned {
            self.free = comes;
        }
        AccessOutcome::Comes(comes)
    }

    /// The owner becomes one who shares it.
    fn demote(&mut self, at: Time) {
        let owner = self.holds.iter_mut().find(|hold| hold.until == OPEN);
        if let Some(owner) = owner {
            owner.until = at;
            let shared = Hold {
                from: at,
                until: OPEN,
                owned: false,
                ..*owner
            };
            self.holds.push(shared);
        }
    }
}
