//! The ladder: known amounts of added work. `self-test` reads it back; one rung is the sentinel.

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use crate::{
    error::Result,
    object::{Owned, choose},
    run::Program,
    skel::ladder::{LadderSkel, LadderSkelBuilder, types},
    timing::{self, Loop, Request, Seen},
};

crate::timing_area!(types::bss);

/// Instructions added by each rung.
pub const RUNGS: [u32; 5] = [0, 1, 10, 100, 1000];

/// Any packet will do: the rungs do not look at it.
const PACKET: [u8; 64] = [0; 64];

/// Loaded rungs.
pub struct Ladder {
    skeleton: Owned<LadderSkel<'static>>,
    looping: Loop,
}

impl Ladder {
    /// Loads the programs of these rungs.
    pub fn load(rungs: &[u32], looping: Loop) -> Result<Self> {
        let skeleton = Owned::new("ladder", |storage| {
            let mut open = LadderSkelBuilder::default().open(storage)?;
            choose(open.open_object_mut(), |program| {
                rungs
                    .iter()
                    .any(|&rung| program == program_name(rung, looping))
            });
            open.load()
        })?;
        Ok(Ladder { skeleton, looping })
    }

    /// The product of all multiplications so far.
    pub fn product(&self) -> u64 {
        let bss = self.skeleton.maps.data_data.as_deref();
        bss.map_or(0, |data| timing::fetch(&data.product_so_far))
    }

    /// Times `ops` runs of a rung on `cpu`, just after a tick where that is asked for. `None` where the rung
    /// was not loaded.
    pub fn batch(
        &mut self,
        rung: u32,
        ops: u64,
        cpu: u32,
        after_tick: bool,
    ) -> Result<Option<Seen>> {
        let Ok(program) = self.skeleton.program(&program_name(rung, self.looping)) else {
            return Ok(None);
        };
        let program = Program::of(&program)?;
        let Some(area) = self.skeleton.maps.bss_data.as_deref_mut() else {
            return Ok(None);
        };
        let request = Request {
            ops,
            resets: 1,
            cpus: &[cpu],
            after_tick,
        };
        Ok(timing::batch(&program, area, &request, &[PACKET.to_vec()])?.pop())
    }
}

fn program_name(rung: u32, looping: Loop) -> String {
    format!("ladder_{rung}{}", looping.suffix())
}
