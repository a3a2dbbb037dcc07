//! The Rust half of `bpf/timing.bpf.h`: asks a timed program for a batch and reads its samples.
//!
//! An outside program includes the header, and names its compiled object:
//!
//! ```text
//! let mut open = OpenObject::from_bytes("mine", include_bytes!("mine.bpf.o"), Loop::probe()?)?;
//! open.time("my_program")?;
//! let request = Request { ops, resets: 1, cpus: &[0], after_tick: false };
//! let seen = open.load()?.batch("my_program", &request, &[packet])?;
//! ```
//!
//! `tests/example.rs` does all of it with `bpf/example.bpf.c`.

#![allow(unsafe_code)]

mod ticks;
mod windows;

use std::{
    ptr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use crate::{
    cpu::{self, CpuPin, OutsideTime},
    error::{Error, Result, cpu_number, failed},
    feature::Feature,
    globals::Globals,
    run::{self, SharedProgram, TestRun},
};

pub use ticks::WorkTime;
pub(crate) use ticks::{time_work, wait_for_tick};
pub(crate) use windows::batch_in_windows;

/// CPUs that a timed program keeps samples for (`TIMING_MAX_CPUS`).
pub const MAX_CPUS: u32 = 1024;

/// Slices that a batch on one CPU is cut into: 40 µs each of a batch of 10 ms. At most `TIMING_MAX_SLICES`.
pub const SLICES: u64 = 256;

const _: () = assert!(SLICES <= 512, "TIMING_MAX_SLICES");

/// Most tries of CPUs to start together; each try waits some milliseconds for the others.
const STARTS: u32 = 300;

/// The loop of a timed program. Named by the suffix of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// `can_loop`: Linux 6.9 and later.
    CanLoop,
    /// `bpf_loop()`: Linux 5.17 and later.
    BpfLoop,
}

impl Loop {
    /// Returns the loop that this kernel takes: the cheaper one where it has both.
    pub fn probe() -> Result<Self> {
        if Feature::CanLoop.missing()?.is_none() {
            return Ok(Loop::CanLoop);
        }
        Feature::BpfLoop.require().map(|()| Loop::BpfLoop)
    }

    /// Returns what a timed program of this kind has behind its name.
    pub fn suffix(self) -> &'static str {
        match self {
            Loop::CanLoop => "",
            Loop::BpfLoop => "__bpf_loop",
        }
    }
}

/// A request for a batch.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Bodies, at least 1.
    pub ops: u64,
    /// Times that the reset is done between bodies: 1, or 2 to learn what it costs there.
    pub resets: u64,
    /// CPUs that run a batch each, starting together.
    pub cpus: &'a [u32],
    /// True for a batch that begins just after a tick of the timer, so that a batch shorter than the time between two
    /// of them has none in it. For one CPU, on a clock that counts instructions: the batch is not cut into slices
    /// either.
    pub after_tick: bool,
}

impl Request<'_> {
    /// Bodies in a slice; 0 where the batch is not cut.
    #[doc(hidden)]
    pub fn slice(&self) -> u64 {
        match self.cpus {
            [_] => slice(self.ops, self.after_tick),
            _ => 0,
        }
    }
}

/// Operations in a slice of a batch on one CPU; 0 where it is not cut.
pub(crate) fn slice(ops: u64, after_tick: bool) -> u64 {
    if after_tick { 0 } else { ops.div_ceil(SLICES) }
}

/// Returns true if a batch that ran whole has a reading of the clock for each slice but the last, in the order of time.
/// True for a batch in one piece, which has none. On a coarse clock several readings may be the same.
fn in_order(sample: &TimingSample, slice: u64) -> bool {
    let edges = &sample.edges;
    let slices = sample.ops.saturating_sub(1).div_ceil(slice.max(1));
    let moves = edges.windows(2).all(|two| two[0] <= two[1]);
    match (edges.first(), edges.last()) {
        (Some(&first), Some(&last)) => {
            let inside = sample.start_ns <= first && last <= sample.end_ns;
            edges.len() as u64 + 1 == slices && moves && inside
        }
        _ => true,
    }
}

/// Returns the cost of a reading of the clock between slices. `None` where all readings can't have cost what was
/// measured: an emulator translates the code that measures it meanwhile.
fn read_cost_ns(sample: &TimingSample) -> Option<u64> {
    let lasted_ns = sample.end_ns.saturating_sub(sample.start_ns);
    let all_ns = sample.clock_ns.checked_mul(sample.edges.len() as u64)?;
    // A coarse clock may show twice the cost.
    (all_ns / 2 <= lasted_ns).then_some(sample.clock_ns)
}

/// The time of a batch without the clock reads between its slices. They are not all of it, however short it is.
pub(crate) fn without_reads(elapsed_ns: u64, reads_ns: u64) -> f64 {
    elapsed_ns as f64 - (reads_ns as f64).min(elapsed_ns as f64 / 2.0)
}

/// Nanoseconds per operation of each slice that lies between two edges: of all whole ones but the first. None where the
/// clock is too coarse for them: where it did not move on in one.
pub(crate) fn slices(edges: &[u64], slice: u64, clock_ns: u64) -> Vec<f64> {
    if edges.windows(2).any(|two| two[0] == two[1]) {
        return Vec::new();
    }
    let of_slice = |edges: &[u64]| {
        let ns = edges[1].saturating_sub(edges[0]).saturating_sub(clock_ns);
        ns as f64 / slice as f64
    };
    edges.windows(2).map(of_slice).collect()
}

/// One CPU's timing of a batch.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The CPU that ran it.
    pub cpu: u32,
    /// Clock before the first body, in nanoseconds.
    pub start_ns: u64,
    /// Clock after the last body, in nanoseconds.
    pub end_ns: u64,
    /// Bodies that ran; fewer than asked where the kernel cut the loop short.
    pub ops: u64,
    /// True if all CPUs were there at the start; where not, nothing ran.
    pub together: bool,
    /// True if the clock was the CPU time counter, not `bpf_ktime_get_ns`.
    pub cpu_counter: bool,
    /// Timer ticks of the machine meanwhile. On a machine with one CPU, a batch without one was not
    /// interrupted by its timer.
    pub ticks: u64,
    /// The batch as the thread that ran it saw it. A batch never waits: where the thread did, the CPU may have been idle,
    /// and an emulated clock may have leapt.
    pub outside: OutsideTime,
    /// The cost of a clock read between two slices, in nanoseconds; it is subtracted from all values. 0 where it is not
    /// known.
    pub clock_ns: u64,
    /// Nanoseconds per body of each whole slice, in order, but for the first, whose first body follows no reset. None
    /// where the cost of a clock read is not known, and where the clock is too coarse.
    pub slices: Vec<f64>,
    /// Readings of the clock between slices.
    pub edges: u64,
    /// True if it was read after each slice but the last, and never went back.
    pub edges_in_order: bool,
    /// The return value of the last body.
    pub code: u32,
    /// The packet that the last body left.
    pub output: Vec<u8>,
}

impl Observation {
    fn new(cpu: u32, slice: u64, sample: TimingSample, ran: TestRun) -> Self {
        let cost_ns = read_cost_ns(&sample);
        let of = |cost_ns| slices(&sample.edges, slice, cost_ns);
        Observation {
            cpu,
            start_ns: sample.start_ns,
            end_ns: sample.end_ns,
            ops: sample.ops,
            together: sample.together == 1,
            cpu_counter: sample.cpu_counter == 1,
            ticks: sample.ticks,
            outside: ran.outside,
            clock_ns: cost_ns.unwrap_or(0),
            slices: cost_ns.map_or(Vec::new(), of),
            edges: sample.edges.len() as u64,
            edges_in_order: in_order(&sample, slice),
            code: ran.code,
            output: ran.output,
        }
    }

    /// Nanoseconds by the clock of the programs, its readings between slices included.
    pub fn inside_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Returns true if the batch lasted no longer by the clock of the programs than from outside: it is a part of what
    /// was timed there.
    pub fn fits_outside(&self) -> bool {
        self.outside.holds(self.inside_ns())
    }

    /// Nanoseconds per body, over the bodies that ran.
    pub fn ns_per_op(&self) -> f64 {
        self.elapsed_ns() / self.ops.max(1) as f64
    }

    /// Nanoseconds from the first body to the last, without the clock reads between slices.
    pub fn elapsed_ns(&self) -> f64 {
        without_reads(self.inside_ns(), self.edges * self.clock_ns)
    }
}

/// One CPU's sample as it stands in the object's variables.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimingSample {
    /// See [`Observation`].
    pub start_ns: u64,
    /// See [`Observation`].
    pub end_ns: u64,
    /// See [`Observation`].
    pub ops: u64,
    /// See [`Observation`].
    pub cpu_counter: u64,
    /// See [`Observation`].
    pub together: u64,
    /// See [`Observation`].
    pub ticks: u64,
    /// See [`Observation`].
    pub clock_ns: u64,
    /// The clock at the end of each slice but the last; empty where the batch was not cut.
    pub edges: Vec<u64>,
}

/// Writes a variable that a BPF program reads.
pub fn store<T: Copy>(variable: &mut T, value: T) {
    // SAFETY: a valid, aligned reference. The kernel maps the same page; it reads and writes it only
    // while a test run is under way, when this program waits in a system call and uses no reference
    // into it. Volatile, so that nothing is kept in a register across that call.
    unsafe { ptr::write_volatile(variable, value) }
}

/// Reads a variable that a BPF program writes.
pub fn fetch<T: Copy>(variable: &T) -> T {
    // SAFETY: as for `store`.
    unsafe { ptr::read_volatile(variable) }
}

/// Runs a timed program on each of the request's CPUs, `packets[i]` on `cpus[i]`, and says what each
/// CPU saw, in that order. Several CPUs start together; where one of them is held up by something
/// else, nothing runs and all try again, for some seconds.
pub(crate) fn batch(
    program: &SharedProgram,
    area: &mut Globals,
    request: &Request<'_>,
    packets: &[Vec<u8>],
) -> Result<Vec<Observation>> {
    if let Some(&cpu) = request.cpus.iter().find(|&&cpu| cpu >= MAX_CPUS) {
        return Err(cpu_number(cpu, MAX_CPUS));
    }
    if packets.len() != request.cpus.len() {
        return Err(Error::Refused(format!(
            "a batch on {} CPUs needs that many packets, and got {}",
            request.cpus.len(),
            packets.len()
        )));
    }
    let mut seen = attempt(program, area, request, packets)?;
    for _ in 1..STARTS {
        if seen.iter().any(|seen| seen.together) {
            break;
        }
        seen = attempt(program, area, request, packets)?;
    }
    Ok(seen)
}

fn attempt(
    program: &SharedProgram,
    area: &mut Globals,
    request: &Request<'_>,
    packets: &[Vec<u8>],
) -> Result<Vec<Observation>> {
    area.ask(request);
    let left: Vec<TestRun> = match (request.cpus, packets) {
        (&[cpu], [packet]) => {
            if request.after_tick {
                wait_for_tick();
            }
            vec![run::on_cpu(program, cpu, packet)?]
        }
        (cpus, packets) => on_all(program, cpus, packets)?,
    };
    let all = request.cpus.iter().zip(left);
    let observe = |(&cpu, ran): (&u32, TestRun)| {
        Observation::new(cpu, request.slice(), area.sample(cpu), ran)
    };
    Ok(all.map(observe).collect())
}

/// Has a batch on one CPU run by an event that the calling thread makes there. Where the event does not come, the batch
/// has no operations.
pub(crate) fn batch_by(
    area: &mut Globals,
    request: &Request<'_>,
    event: impl FnOnce() -> Result<()>,
) -> Result<Observation> {
    let &[cpu] = request.cpus else {
        return Err(Error::Refused(
            "an event runs a batch on one CPU".to_owned(),
        ));
    };
    area.ask(request);
    if request.after_tick {
        wait_for_tick();
    }
    let ((), outside) = cpu::outside(event)?;
    let ran = TestRun {
        code: 0,
        output: Vec::new(),
        outside,
    };
    Ok(Observation::new(
        cpu,
        request.slice(),
        area.sample(cpu),
        ran,
    ))
}

/// Runs the program on all CPUs at once, each from a thread that is there before any of them runs: a
/// kernel that does not preempt itself would keep the others waiting behind the first.
fn on_all(program: &SharedProgram, cpus: &[u32], packets: &[Vec<u8>]) -> Result<Vec<TestRun>> {
    let arrived = AtomicUsize::new(0);
    let given_up = AtomicBool::new(false);
    let (arrived, given_up) = (&arrived, &given_up);
    thread::scope(|scope| {
        let start = |cpu: u32, packet: &'_ Vec<u8>| {
            let packet = packet.clone();
            let run = move || {
                let pin = CpuPin::to(cpu);
                arrived.fetch_add(1, Ordering::AcqRel);
                while arrived.load(Ordering::Acquire) < cpus.len()
                    && !given_up.load(Ordering::Acquire)
                {
                    thread::yield_now();
                }
                pin.and_then(|_pin| run::on_cpu(program, cpu, &packet))
            };
            let thread = thread::Builder::new().spawn_scoped(scope, run);
            thread.map_err(failed(format!("CPU {cpu}"), "starting a thread for it"))
        };
        let mut threads = Vec::new();
        for (&cpu, packet) in cpus.iter().zip(packets) {
            match start(cpu, packet) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Those that wait must not wait for ever.
                    given_up.store(true, Ordering::Release);
                    return Err(error);
                }
            }
        }
        let end = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(end).collect()
    })
}

/// Loading has looked for the variables of `timing.bpf.h`, and a batch asks for CPUs that they have room for.
impl Globals {
    /// Writes a request, and forgets the samples of its CPUs.
    pub(crate) fn ask(&mut self, request: &Request<'_>) {
        let words = [
            ("timing_ops", request.ops.max(1)),
            ("timing_resets", request.resets),
            ("timing_slice", request.slice()),
            ("timing_cpus", request.cpus.len() as u64),
            ("timing_arrived", 0),
        ];
        for (name, value) in words {
            let _ = self.set(name, value);
        }
        for &cpu in request.cpus {
            // A reading of the clock that is not made must not pass for that of an earlier batch.
            let sample = [
                ("start_ns", u64::MAX),
                ("end_ns", 0),
                ("ops", 0),
                ("together", 0),
            ];
            for (member, value) in sample {
                let _ = self.set_member("timing_samples", cpu as usize, member, value);
            }
        }
    }

    /// Reads the sample of a CPU.
    pub(crate) fn sample(&self, cpu: u32) -> TimingSample {
        let word = |member| {
            self.member("timing_samples", cpu as usize, member)
                .unwrap_or_default()
        };
        TimingSample {
            start_ns: word("start_ns"),
            end_ns: word("end_ns"),
            ops: word("ops"),
            cpu_counter: word("cpu_counter"),
            together: word("together"),
            ticks: word("ticks"),
            clock_ns: word("clock_ns"),
            edges: self.words("timing_edges", word("edges") as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_between_slices_are_proved() {
        // A body, and three slices of four.
        let good = TimingSample {
            start_ns: 100,
            end_ns: 500,
            ops: 13,
            edges: vec![200, 300],
            ..TimingSample::default()
        };
        let with = |change: fn(&mut TimingSample)| {
            let mut sample = good.clone();
            change(&mut sample);
            in_order(&sample, 4)
        };
        assert!(with(|_| ()));
        assert!(with(|sample| sample.edges.clear()));
        assert!(!with(|sample| sample.edges[1] = 199));
        assert!(!with(|sample| sample.edges[0] = 99));
        assert!(!with(|sample| sample.edges[1] = 501));
        assert!(!with(|sample| sample.edges.push(400)));
        assert!(!with(|sample| sample.edges.truncate(1)));
        // Two of them took no more than the 400 ns of the batch, or twice that on a coarse clock.
        let cost_ns = |clock_ns| {
            read_cost_ns(&TimingSample {
                clock_ns,
                ..good.clone()
            })
        };
        assert_eq!([cost_ns(30), cost_ns(400)], [Some(30), Some(400)]);
        assert_eq!([cost_ns(402), cost_ns(u64::MAX)], [None, None]);
    }

    #[test]
    fn clock_reads_are_subtracted_from_slices_and_batches() {
        assert_eq!(slices(&[1000, 1130, 1250], 4, 30), [25.0, 22.5]);
        // The clock did not move on in one of them: it is no clock for slices.
        assert!(slices(&[1000, 1100, 1100, 1200], 4, 0).is_empty());
        // A read can't take longer than its slice.
        assert_eq!(slices(&[1000, 1010], 4, 30), [0.0]);
        assert_eq!(without_reads(1000, 300), 700.0);
        assert_eq!(without_reads(1000, 900), 500.0);
    }
}
