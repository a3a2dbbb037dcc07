//! A counter: a program on an event of a running system, that counts its runs on all CPUs, and does a work.
//! Loaded once, attached and detached many times. What it measures and what is not in the number stands at
//! the head of `bpf/counter.bpf.c`.

use libbpf_rs::{
    MapCore as _, MapFlags, MapMut, ProgramMut,
    skel::{OpenSkel as _, SkelBuilder as _},
};

use super::how::{Held, How, Toolbox};
use crate::{
    cpu::current_cpu,
    error::{Error, Result},
    feature::Feature,
    object::Owned,
    plain, run,
    skel::counter::{CounterSkel, CounterSkelBuilder},
    timing::{fetch, store},
};

/// See `bpf/counter.h`.
const NULL: u32 = 0;
const MAP: u32 = 1;
const BUSY: u32 = 2;
const SPELLS: u64 = 64;

/// How often spells are timed; the fastest time counts, for it is the one that nothing came between.
const TIMINGS: u32 = 32;

/// What each run does beside being counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Null,
    /// Writes the process into a per-CPU array.
    Map,
    /// Is busy, to what the clock can tell.
    Busy {
        /// Nanoseconds of each run, beyond those of reading the clock twice.
        ns: u64,
    },
}

impl Work {
    fn number(self) -> u32 {
        match self {
            Work::Null => NULL,
            Work::Map => MAP,
            Work::Busy { .. } => BUSY,
        }
    }
}

/// What a counter counted while it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Runs of the program, on all CPUs, for anyone.
    pub hits: u64,
    /// Events that the kernel says were missed; `None` where it doesn't say.
    pub missed: Option<u64>,
    /// What went by between the first and the last reading of the clock in its spells, in nanoseconds; 0 for a
    /// work that reads none.
    pub busy_ns: u64,
}

/// A program that counts an event. Dropping it detaches and removes it.
pub struct Counter {
    how: How,
    event: String,
    held: Option<Held>,
    /// What was counted before it was attached: counts of a program begin when it is loaded.
    before: Counted,
    tools: Toolbox,
    skeleton: Owned<CounterSkel<'static>>,
}

impl Counter {
    /// What the kernel must have, what tells most of it first.
    pub fn needs(how: How, work: Work) -> Vec<Feature> {
        let busy: &[Feature] = match work {
            Work::Busy { .. } => &[Feature::BpfLoop, Feature::SyscallProgram],
            Work::Null | Work::Map => &[],
        };
        [&how.needs(), busy].concat()
    }

    /// Why this kernel has no such event, where it has none: tracepoints come and go between kernels.
    pub fn absent(how: How, event: &str) -> Result<Option<String>> {
        if !how.takes_tracepoints() {
            return Ok(None);
        }
        match super::kernel::open_tracepoint(how.attach(), event) {
            Ok(_) => Ok(None),
            Err(Error::Unattachable { words, .. }) => Ok(Some(words)),
            Err(other) => Err(other),
        }
    }

    /// Loads the program, for a tracepoint `category:name` or a function of the kernel.
    pub fn load(how: How, event: &str, work: Work) -> Result<Self> {
        let skeleton = Owned::new("counter", |storage| {
            let mut open = CounterSkelBuilder::default().open(storage)?;
            if let Some(chosen) = open.maps.rodata_data.as_deref_mut() {
                chosen.work = work.number();
            }
            for mut program in open.open_object_mut().progs_mut() {
                if program.name() == name(how) {
                    program.set_autoload(true);
                    how.aim(&mut program, event)?;
                }
                if program.name() == "time_spells" {
                    program.set_autoload(matches!(work, Work::Busy { .. }));
                }
            }
            open.load()
        })
        .map_err(|error| how.explain_load(event, error))?;
        let mut counter = Counter {
            how,
            event: event.to_owned(),
            held: None,
            before: Counted::default(),
            tools: Toolbox::default(),
            skeleton,
        };
        if let Work::Busy { ns } = work {
            counter.calibrate(ns)?;
        }
        Ok(counter)
    }

    /// Attaches it.
    pub fn attach(&mut self) -> Result<()> {
        // Not while it is attached already.
        self.held = None;
        let hits = sum(&self.skeleton.maps.hits, "hits")?;
        let busy_ns = sum(&self.skeleton.maps.busy_ns, "busy_ns")?;
        let program = program(&self.skeleton, self.how);
        let mut held = Held::attach(self.how, program, &self.event, &mut self.tools)?;
        self.before = Counted {
            hits,
            missed: held.missed(program)?,
            busy_ns,
        };
        self.held = Some(held);
        Ok(())
    }

    /// Detaches it, and tells what it counted meanwhile.
    pub fn detach(&mut self) -> Result<Counted> {
        let Some(mut held) = self.held.take() else {
            return Err(Error::NotLoaded(format!(
                "{} at {}",
                self.how.attach(),
                self.event
            )));
        };
        let missed = held.missed(program(&self.skeleton, self.how))?;
        drop(held);
        let hits = sum(&self.skeleton.maps.hits, "hits")?;
        let busy_ns = sum(&self.skeleton.maps.busy_ns, "busy_ns")?;
        Ok(Counted {
            hits: hits.saturating_sub(self.before.hits),
            busy_ns: busy_ns.saturating_sub(self.before.busy_ns),
            missed: missed
                .zip(self.before.missed)
                .map(|(now, before)| now.saturating_sub(before)),
        })
    }

    /// Makes a spell take that much longer than one that waits for nothing. Whoever wants to see time alone
    /// compares two that wait: they leave their loops alike, in caches as cold.
    fn calibrate(&mut self, ns: u64) -> Result<()> {
        let asked = self.time_spell(0)? + ns;
        // Too long by what it takes to see that the time is over: half a turn of its loop, and more.
        let took = self.time_spell(ns)?;
        self.set_spell((ns + asked).saturating_sub(took));
        Ok(())
    }

    /// What a spell takes that waits for that time, in nanoseconds.
    fn time_spell(&mut self, ns: u64) -> Result<u64> {
        self.set_spell(ns);
        let mut fastest = u64::MAX;
        for _ in 0..TIMINGS {
            let timer = &self.skeleton.progs.time_spells;
            run::on_cpu(&run::Program::of(timer)?, current_cpu(), &[])?;
            if let Some(bss) = self.skeleton.maps.bss_data.as_deref() {
                fastest = fastest.min(fetch(&bss.spells_ns));
            }
        }
        Ok(fastest / SPELLS)
    }

    fn set_spell(&mut self, ns: u64) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut() {
            store(&mut bss.spell_ns, ns);
        }
    }
}

/// What all CPUs have added to a per-CPU value since it was loaded.
fn sum(map: &MapMut, name: &'static str) -> Result<u64> {
    let values = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    let values = values.map_err(|source| Error::Map {
        map: name,
        action: "reading it",
        source,
    })?;
    let values = values.unwrap_or_default();
    Ok(values
        .iter()
        .filter_map(|value| plain::read::<u64>(value))
        .sum())
}

fn name(how: How) -> &'static str {
    match how {
        How::Tracepoint => "on_tracepoint",
        How::RawTp => "on_raw_tp",
        How::TpBtf => "on_tp_btf",
        How::Kprobe | How::KprobeInt3 | How::Kretprobe { .. } => "on_kprobe",
        How::KprobeMulti | How::KretprobeMulti => "on_kprobe_multi",
        How::Fentry => "on_fentry",
        How::Fexit => "on_fexit",
    }
}

fn program<'a>(skeleton: &'a CounterSkel<'static>, how: How) -> &'a ProgramMut<'static> {
    let programs = &skeleton.progs;
    match how {
        How::Tracepoint => &programs.on_tracepoint,
        How::RawTp => &programs.on_raw_tp,
        How::TpBtf => &programs.on_tp_btf,
        How::Kprobe | How::KprobeInt3 | How::Kretprobe { .. } => &programs.on_kprobe,
        How::KprobeMulti | How::KretprobeMulti => &programs.on_kprobe_multi,
        How::Fentry => &programs.on_fentry,
        How::Fexit => &programs.on_fexit,
    }
}
