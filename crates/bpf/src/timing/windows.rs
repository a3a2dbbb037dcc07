//! Batches that are made of windows: runs of a program that can have only a few bodies each.

use super::{MAX_CPUS, Observation, Request, TimingSample, slice, wait_for_tick};
use crate::{
    error::{Error, Result, cpu_number},
    globals::Globals,
    run::{self, SharedProgram, TestRun},
};

/// Has a batch on one CPU made of windows of at most so many bodies. Each is a run of the program, which times it; the times
/// are added up.
pub(crate) fn batch_in_windows(
    program: &SharedProgram,
    area: &mut Globals,
    request: &Request<'_>,
    packet: &[u8],
    window: u64,
) -> Result<Observation> {
    let &[cpu] = request.cpus else {
        return Err(Error::Refused("windows run on one CPU".to_owned()));
    };
    if cpu >= MAX_CPUS {
        return Err(cpu_number(cpu, MAX_CPUS));
    }
    if request.after_tick {
        wait_for_tick();
    }
    let ops = request.ops.max(1);
    let per_slice = match slice(ops, request.after_tick) {
        0 => u64::MAX,
        bodies => bodies.next_multiple_of(window),
    };
    let mut windows = Windows::new(per_slice);
    let (mut left, mut asked) = (ops, 0);
    let ran = run::on_cpu_while(program, cpu, packet, || {
        if asked > 0 {
            windows.add(&area.sample(cpu));
        }
        asked = left.min(window);
        left -= asked;
        if asked > 0 {
            area.ask(&Request {
                ops: asked,
                // No window is cut.
                after_tick: true,
                ..*request
            });
        }
        Ok(asked > 0)
    })?;
    Ok(windows.observation(cpu, ran))
}

/// The windows of a batch, added up.
struct Windows {
    /// Bodies of a slice.
    per_slice: u64,
    sum: TimingSample,
    elapsed_ns: u64,
    /// Bodies and nanoseconds of the slice under way.
    slice: (u64, u64),
    slices: Vec<f64>,
    /// True while the clock went back in none of them.
    in_order: bool,
}

impl Windows {
    fn new(per_slice: u64) -> Self {
        Windows {
            per_slice,
            sum: TimingSample {
                start_ns: u64::MAX,
                together: 1,
                ..TimingSample::default()
            },
            elapsed_ns: 0,
            slice: (0, 0),
            slices: Vec::new(),
            in_order: true,
        }
    }

    fn add(&mut self, window: &TimingSample) {
        let ns = window.end_ns.saturating_sub(window.start_ns);
        self.in_order &= window.start_ns <= window.end_ns;
        self.sum.start_ns = self.sum.start_ns.min(window.start_ns);
        self.sum.together &= window.together;
        self.sum.cpu_counter = window.cpu_counter;
        self.sum.ops += window.ops;
        self.sum.ticks += window.ticks;
        self.elapsed_ns += ns;
        self.slice = (self.slice.0 + window.ops, self.slice.1 + ns);
        let (bodies, ns) = self.slice;
        if bodies >= self.per_slice {
            self.slices.push(ns as f64 / bodies as f64);
            self.slice = (0, 0);
        }
    }

    /// As if they had followed each other.
    fn observation(self, cpu: u32, ran: TestRun) -> Observation {
        let sample = TimingSample {
            end_ns: self.sum.start_ns.saturating_add(self.elapsed_ns),
            ..self.sum
        };
        Observation {
            slices: self.slices,
            edges_in_order: self.in_order,
            ..Observation::new(cpu, 0, sample, ran)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::OutsideTime;

    #[test]
    fn windows_are_added_up() {
        let window = |start_ns, ns, ops| TimingSample {
            start_ns,
            end_ns: start_ns + ns,
            ops,
            together: 1,
            ticks: 1,
            ..TimingSample::default()
        };
        let mut windows = Windows::new(64);
        for at in 0..5 {
            windows.add(&window(1000 * at, 320 + 32 * (at / 2), 32));
        }
        let ran = || TestRun {
            code: 1,
            output: Vec::new(),
            outside: OutsideTime::default(),
        };
        let seen = windows.observation(0, ran());
        assert_eq!((seen.ops, seen.ticks, seen.together), (160, 5, true));
        assert_eq!(seen.elapsed_ns(), 320.0 * 5.0 + 32.0 * 4.0);
        // The last one is no whole slice.
        assert_eq!(seen.slices, [10.0, 11.0]);
        assert!(seen.edges_in_order);
        let mut back = Windows::new(64);
        back.add(&window(1000, 320, 32));
        let window = window(2000, 0, 32);
        back.add(&TimingSample {
            end_ns: 1999,
            ..window
        });
        assert!(!back.observation(0, ran()).edges_in_order);
    }
}
