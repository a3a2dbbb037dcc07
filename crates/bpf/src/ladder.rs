//! The ladder: known amounts of added work. `self-test` reads it back; one rung is the sentinel.

use libbpf_rs::{
    ProgramMut,
    skel::{OpenSkel as _, SkelBuilder as _},
};

use crate::{
    error::Result,
    object::Owned,
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
            for mut program in open.open_object_mut().progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                program.set_autoload(
                    rungs
                        .iter()
                        .any(|&rung| name == program_name(rung, looping)),
                );
            }
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
        let looping = self.looping;
        let skeleton = &mut *self.skeleton;
        let programs = &skeleton.progs;
        let program: &ProgramMut<'_> = match (rung, looping) {
            (0, Loop::CanLoop) => &programs.ladder_0,
            (1, Loop::CanLoop) => &programs.ladder_1,
            (10, Loop::CanLoop) => &programs.ladder_10,
            (100, Loop::CanLoop) => &programs.ladder_100,
            (1000, Loop::CanLoop) => &programs.ladder_1000,
            (0, Loop::BpfLoop) => &programs.ladder_0__bpf_loop,
            (1, Loop::BpfLoop) => &programs.ladder_1__bpf_loop,
            (10, Loop::BpfLoop) => &programs.ladder_10__bpf_loop,
            (100, Loop::BpfLoop) => &programs.ladder_100__bpf_loop,
            (1000, Loop::BpfLoop) => &programs.ladder_1000__bpf_loop,
            _ => return Ok(None),
        };
        let Some(area) = skeleton.maps.bss_data.as_deref_mut() else {
            return Ok(None);
        };
        let request = Request {
            ops,
            resets: 1,
            cpus: &[cpu],
            after_tick,
        };
        Ok(timing::batch(&program.into(), area, &request, &[PACKET.to_vec()])?.pop())
    }
}

fn program_name(rung: u32, looping: Loop) -> String {
    format!("ladder_{rung}{}", looping.suffix())
}
