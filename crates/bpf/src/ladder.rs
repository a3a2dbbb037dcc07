//! The ladder: programs with known amounts of added work. `self-test` checks that they are measured; one rung is
//! the sentinel. The anchor beside it is work that others on the same core slow.

use crate::{
    error::{Error, Result},
    timed::{OpenObject, TimedObject},
    timing::{Loop, Observation, Request},
};

/// Instructions added by each rung.
pub const RUNGS: [u32; 6] = [0, 1, 10, 100, 1000, 1010];

/// Times that the anchor adds to the first of its sums, one at a time (`ANCHOR_STEPS`).
const ANCHOR_STEPS: u64 = 64;

const ANCHOR: &str = "ladder_anchor";

/// Any packet will do: the rungs do not look at it.
const PACKET: [u8; 64] = [0; 64];

/// Loaded rungs.
#[derive(Debug)]
pub struct Ladder(TimedObject);

impl Ladder {
    /// Loads the programs of these rungs.
    pub fn load(rungs: &[u32], looping: Loop) -> Result<Self> {
        let mut open = OpenObject::open("ladder", looping)?;
        for &rung in rungs {
            open.time(&program_name(rung))?;
        }
        open.load().map(Ladder)
    }

    /// Loads the program of one rung, and the anchor.
    pub fn with_anchor(rung: u32, looping: Loop) -> Result<Self> {
        let mut open = OpenObject::open("ladder", looping)?;
        open.time(&program_name(rung))?;
        open.time(ANCHOR)?;
        open.load().map(Ladder)
    }

    /// Times `ops` runs of the anchor on `cpu`, fewer if the kernel cuts the loop short. Its sum shows that they were
    /// made.
    pub fn anchor(&mut self, ops: u64, cpu: u32) -> Result<Observation> {
        let request = Request {
            ops,
            resets: 1,
            cpus: &[cpu],
            after_tick: false,
        };
        let sum = |ladder: &TimedObject| ladder.bytes("sums_so_far").map(word);
        let before = sum(&self.0)?;
        let mut seen = self.0.batch(ANCHOR, &request, &[PACKET.to_vec()])?;
        let grown = sum(&self.0)?.wrapping_sub(before);
        match seen.pop() {
            Some(seen) if grown == seen.ops * ANCHOR_STEPS => Ok(seen),
            seen => Err(Error::Refused(format!(
                "the anchor failed its check: its sum grew by {grown}, not by {ANCHOR_STEPS} in each of {} operations",
                seen.map_or(0, |seen| seen.ops)
            ))),
        }
    }

    /// The product of all multiplications so far.
    pub fn product(&self) -> Result<u64> {
        self.0.variable("product_so_far")
    }

    /// Times `ops` runs of a rung on `cpu`, just after a tick where that is asked for. `None` where the rung
    /// was not loaded.
    pub fn batch(
        &mut self,
        rung: u32,
        ops: u64,
        cpu: u32,
        after_tick: bool,
    ) -> Result<Option<Observation>> {
        let request = Request {
            ops,
            resets: 1,
            cpus: &[cpu],
            after_tick,
        };
        match self
            .0
            .batch(&program_name(rung), &request, &[PACKET.to_vec()])
        {
            Ok(mut seen) => Ok(seen.pop()),
            Err(Error::NotLoaded(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn program_name(rung: u32) -> String {
    format!("ladder_{rung}")
}

/// The first word of these bytes.
fn word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_ne_bytes(*word))
}
