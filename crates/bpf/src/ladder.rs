//! The ladder: programs with known amounts of added work. `self-test` checks that they are measured; one rung is
//! the sentinel.

use crate::{
    error::{Error, Result},
    timed::{OpenObject, TimedObject},
    timing::{Loop, Observation, Request},
};

/// Instructions added by each rung.
pub const RUNGS: [u32; 5] = [0, 1, 10, 100, 1000];

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
