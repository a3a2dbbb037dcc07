//! A program on an event of a running system that counts its runs on all CPUs, and does some work; the kernel's
//! count of missed runs. It is loaded once, and attached and detached many times. `bpf/counter.bpf.c` says what the
//! number includes.

use super::attach_method::{AttachMethod, MethodAttachment, Toolbox};
use crate::{
    cpu::current_cpu,
    error::{Error, Result},
    feature::Feature,
    object::{NamedObject, OpenNamed},
    run,
    shared::counter_counts,
};

/// See `bpf/counter.h`.
const NULL: u32 = 0;
const MAP: u32 = 1;
const BUSY: u32 = 2;
const CALLS: u32 = 3;
const SPELLS: u64 = 64;

/// Byte that fills the place of a process that no run has written yet: no process has such a number.
const UNWRITTEN: u8 = 0xff;

/// Timings of the spells; the fastest one counts, because nothing interrupted it.
const TIMINGS: u32 = 32;

/// Limit of the runs' average busy time, as a multiple of the requested time plus a delay. A machine that is shared
/// stretches some, and never all by so much.
const SLOWEST: u64 = 10;
const LATE_NS: u64 = 1000;

/// Work of each run beside being counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterBody {
    /// Nothing.
    Null,
    /// Writes the process into a per-CPU array.
    Map,
    /// Is busy for a given time, as precisely as the clock allows.
    Busy {
        /// Nanoseconds of each run, beyond those of reading the clock twice.
        ns: u64,
    },
    /// Counts the runs of this process apart from those of others.
    Calls,
}

impl CounterBody {
    /// The body's number, and the program that user space runs for it.
    fn code_and_runner(self) -> (u32, Option<&'static str>) {
        match self {
            CounterBody::Null => (NULL, None),
            CounterBody::Map => (MAP, None),
            CounterBody::Busy { .. } => (BUSY, Some(TIME_SPELLS)),
            CounterBody::Calls => (CALLS, Some(NOTE_CALLER)),
        }
    }
}

const TIME_SPELLS: &str = "time_spells";
const NOTE_CALLER: &str = "note_caller";

/// The counts of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCounts {
    /// Runs of the program, on all CPUs: all of them, or those of this process where others are counted apart.
    pub hits: u64,
    /// Runs in other processes, where they are counted apart.
    pub other_hits: u64,
    /// Events that the kernel reports as missed; `None` where it doesn't.
    pub missed: Option<u64>,
    /// Time between the first and the last reading of the clock in its spells, in nanoseconds; 0 for a work
    /// that reads none.
    pub busy_ns: u64,
}

impl HitCounts {
    /// Returns the increase since `before`.
    pub fn since(self, before: Self) -> Self {
        let missed = self.missed.zip(before.missed);
        HitCounts {
            hits: self.hits.saturating_sub(before.hits),
            other_hits: self.other_hits.saturating_sub(before.other_hits),
            missed: missed.map(|(now, before)| now.saturating_sub(before)),
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
        }
    }
}

/// A program that counts an event. Dropping it detaches and removes it.
pub struct Counter {
    method: AttachMethod,
    event: String,
    held: Option<MethodAttachment>,
    /// Counts from before the program was attached: they begin when it is loaded.
    before: HitCounts,
    work: CounterBody,
    tools: Toolbox,
    object: NamedObject,
}

impl Counter {
    /// Kernel features that this needs, the most informative first.
    pub fn needs(method: AttachMethod, work: CounterBody) -> Vec<Feature> {
        let further: &[Feature] = match work {
            CounterBody::Busy { .. } => &[Feature::BpfLoop, Feature::SyscallProgram],
            CounterBody::Calls => &[Feature::SyscallProgram],
            CounterBody::Null | CounterBody::Map => &[],
        };
        [&method.needs(), further].concat()
    }

    /// Explains why this kernel has no such event, or returns `None`: tracepoints come and go between kernels.
    pub fn absent(method: AttachMethod, event: &str) -> Result<Option<String>> {
        if !method.takes_tracepoints() {
            return Ok(None);
        }
        match super::kernel::open_tracepoint(method.attach(), event) {
            Ok(_) if method == AttachMethod::Tracepoint => Ok(None),
            Ok(_) => Ok(super::kernel::only_of_perf(event).map(str::to_owned)),
            Err(Error::Unattachable { words, .. }) => Ok(Some(words)),
            Err(other) => Err(other),
        }
    }

    /// Loads the program, for a tracepoint `category:name` or a function of the kernel.
    pub fn load(method: AttachMethod, event: &str, work: CounterBody) -> Result<Self> {
        let (number, helper) = work.code_and_runner();
        let mut open = OpenNamed::open("counter")?;
        open.set("work", number.into())?;
        if let Some(helper) = helper {
            open.with(helper)?;
        }
        let object = open.load_aimed(name(method), method, event)?;
        let mut counter = Counter {
            method,
            event: event.to_owned(),
            held: None,
            before: HitCounts::default(),
            work,
            tools: Toolbox::default(),
            object,
        };
        match work {
            CounterBody::Busy { ns } => counter.calibrate(ns)?,
            CounterBody::Calls => counter.run(NOTE_CALLER)?,
            CounterBody::Map => counter.object.fill_cpus("last_pid", UNWRITTEN)?,
            CounterBody::Null => {}
        }
        Ok(counter)
    }

    /// The method that attaches the program.
    pub fn method(&self) -> AttachMethod {
        self.method
    }

    /// Attaches it.
    pub fn attach(&mut self) -> Result<()> {
        // Not while it is attached already.
        self.held = None;
        let before = self.sum()?;
        let program = self.object.program(name(self.method))?;
        let held = MethodAttachment::attach(self.method, &program, &self.event, &mut self.tools)?;
        let missed = self.held.insert(held).missed(&program)?;
        self.before = HitCounts { missed, ..before };
        Ok(())
    }

    /// Returns the counts since it was attached.
    pub fn counted(&mut self) -> Result<HitCounts> {
        let missed = self.missed()?;
        self.since_attached(missed)
    }

    /// Detaches it, and returns what it counted since it was attached.
    pub fn detach(&mut self) -> Result<HitCounts> {
        let missed = self.missed()?;
        self.held = None;
        self.since_attached(missed)
    }

    fn since_attached(&self, missed: Option<u64>) -> Result<HitCounts> {
        let sum = self.sum()?;
        let counted = HitCounts { missed, ..sum }.since(self.before);
        if let CounterBody::Busy { ns } = self.work
            && let Some(spell_ns) = counted.busy_ns.checked_div(counted.hits)
            && !(ns / 2..=SLOWEST * (ns + LATE_NS)).contains(&spell_ns)
        {
            return Err(Error::Refused(format!(
                "{} at {}: its runs were busy for {spell_ns} ns each, and should be for {ns}",
                self.method.attach(),
                self.event
            )));
        }
        Ok(counted)
    }

    fn missed(&mut self) -> Result<Option<u64>> {
        let Some(held) = &mut self.held else {
            let what = format!("{} at {}", self.method.attach(), self.event);
            return Err(Error::NotLoaded(what));
        };
        held.missed(&self.object.program(name(self.method))?)
    }

    /// Sums the counts of all CPUs since it was loaded.
    ///
    /// # Errors
    ///
    /// Where a CPU's runs were counted, and none of them did its work.
    fn sum(&self) -> Result<HitCounts> {
        let mut sum = HitCounts::default();
        let counts = self.object.of_cpus::<counter_counts>("counts")?;
        let written = self.object.of_cpus::<u64>("last_pid")?;
        for (count, process) in counts.into_iter().zip(written) {
            // The last run may be under way; the one before it is not.
            if count.hits > 1
                && self.work == CounterBody::Map
                && process.to_ne_bytes() == [UNWRITTEN; 8]
            {
                return Err(Error::Refused(format!(
                    "{} at {}: {} runs of one CPU were counted, and none of them wrote its process",
                    self.method.attach(),
                    self.event,
                    count.hits
                )));
            }
            sum.hits += count.hits;
            sum.other_hits += count.other_hits;
            sum.busy_ns += count.busy_ns;
        }
        Ok(sum)
    }

    /// Makes a spell take that much longer than one that waits for nothing. To see time alone, compare two spells that
    /// wait: they leave their loops alike, with caches as cold.
    fn calibrate(&mut self, ns: u64) -> Result<()> {
        let asked = self.time_spell(0)? + ns;
        // Too long by what it takes to see that the time is over: half a turn of its loop, and more.
        let took = self.time_spell(ns)?;
        self.set_spell((ns + asked).saturating_sub(took))
    }

    /// Times a spell that waits for `ns`, and returns its duration in nanoseconds.
    fn time_spell(&mut self, ns: u64) -> Result<u64> {
        self.set_spell(ns)?;
        let mut fastest = u64::MAX;
        for _ in 0..TIMINGS {
            self.run(TIME_SPELLS)?;
            fastest = fastest.min(self.object.globals.get("spells_ns")?);
        }
        Ok(fastest / SPELLS)
    }

    fn run(&self, program: &str) -> Result<()> {
        let program = self.object.runnable(program)?;
        run::on_cpu(&program, current_cpu(), &[]).map(drop)
    }

    fn set_spell(&mut self, ns: u64) -> Result<()> {
        self.object.globals.set("spell_ns", ns)
    }
}

fn name(method: AttachMethod) -> &'static str {
    match method {
        AttachMethod::Tracepoint => "on_tracepoint",
        AttachMethod::RawTp => "on_raw_tp",
        AttachMethod::TpBtf => "on_tp_btf",
        AttachMethod::Kprobe | AttachMethod::KprobeInt3 | AttachMethod::Kretprobe { .. } => {
            "on_kprobe"
        }
        AttachMethod::KprobeMulti | AttachMethod::KretprobeMulti => "on_kprobe_multi",
        AttachMethod::Fentry => "on_fentry",
        AttachMethod::Fexit => "on_fexit",
    }
}
