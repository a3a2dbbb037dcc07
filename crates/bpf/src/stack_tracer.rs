//! Takes the kernel's stack at each event, by the kernel's helper or by `unwind.bpf.h`, and drops, reports or counts it.
//! `bpf/stack_tracer.bpf.c` says how, and what the number includes.

use std::{thread::sleep, time::Duration};

use libbpf_rs::{
    Link, RingBuffer,
    skel::{OpenSkel as _, Skel as _, SkelBuilder as _},
};

use crate::{
    attach::{AttachMethod, Counter, MethodAttachment, Toolbox},
    error::{Error, Result, map_failed},
    feature::Feature,
    maps,
    object::{OwnedSkeleton, choose},
    plain,
    skel::stack_tracer::{StackTracerSkel, StackTracerSkelBuilder, types::stack_tracer_counts},
    unwind::{
        KernelSymbols, RuleTable, Unwinder, attach_to_modules, is_of_modules, read_addresses,
    },
};

/// Readings of the counts, and the pause between two, while a program that was detached still runs on another CPU.
const READINGS: u32 = 200;
const BETWEEN_READINGS: Duration = Duration::from_millis(1);

/// The code that takes a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackWalker {
    /// `bpf_get_stack()`.
    Helper,
    /// `unwind.bpf.h`.
    Manual,
}

/// The destination of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackDelivery {
    /// A buffer of the CPU, which no one reads.
    Drop,
    /// The ring buffer.
    Ring,
    /// A count in the kernel. [`StackWalker::Manual`] only.
    Count,
}

/// Accounts of the events since the programs were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracedStacks {
    /// Runs of the program.
    pub events: u64,
    /// Whole stacks that were written, submitted to the ring buffer, or counted.
    pub delivered: u64,
    /// Events whose stack is not known, or not whole.
    pub lost: u64,
    /// Events that the kernel says it did not run the program for.
    pub missed: u64,
    /// Addresses of all these stacks.
    pub frames: u64,
    /// Stacks counted in the tree, whole or not; 0 where none are.
    pub in_tree: u64,
    /// Stacks walked while modules came or went, so that rules may have been others'.
    pub stale: u64,
}

/// A program that takes stacks. It is loaded once, and attached and detached many times.
pub struct StackTracer {
    held: Option<MethodAttachment>,
    _modules: Vec<Link>,
    method: AttachMethod,
    event: String,
    /// Counts of the tree, and all others, before it was attached.
    before: TracedStacks,
    ring: RingBuffer<'static>,
    unwinder: Option<Unwinder>,
    tools: Toolbox,
    skeleton: OwnedSkeleton<StackTracerSkel<'static>>,
}

impl StackTracer {
    /// Returns the features that the kernel must have.
    pub fn needs(method: AttachMethod, walker: StackWalker) -> Vec<Feature> {
        let further: &[Feature] = match walker {
            StackWalker::Helper => &[Feature::Btf, Feature::RingBuffer],
            StackWalker::Manual => &[
                Feature::Btf,
                Feature::RingBuffer,
                Feature::SyscallProgram,
                Feature::MmapableArray,
            ],
        };
        [&method.needs(), further].concat()
    }

    /// Returns the reason why this kernel has no such event, where it has none.
    ///
    /// # Errors
    ///
    /// Where the kernel does not say.
    pub fn absent(method: AttachMethod, event: &str) -> Result<Option<String>> {
        Counter::absent(method, event)
    }

    /// Loads the program for a tracepoint `category:name` or a function of the kernel. `take` is given the addresses
    /// of each stack of the ring buffer, the innermost first.
    ///
    /// # Errors
    ///
    /// Where the kernel rejects the program, or its unwind rules can't be read.
    pub fn load(
        method: AttachMethod,
        event: &str,
        (walker, delivery): (StackWalker, StackDelivery),
        mut take: impl FnMut(&[u64]) + 'static,
    ) -> Result<Self> {
        let name = program(method)?;
        if (walker, delivery) == (StackWalker::Helper, StackDelivery::Count) {
            return Err(Error::Refused(
                "the helper has no tree to count stacks in".to_owned(),
            ));
        }
        let rules = match walker {
            StackWalker::Helper => None,
            StackWalker::Manual => Some(RuleTable::read(&KernelSymbols::read()?)?),
        };
        let mut sized = Ok(());
        let skeleton = OwnedSkeleton::new("stack_tracer", |storage| {
            let mut open = StackTracerSkelBuilder::default().open(storage)?;
            if let Some(chosen) = open.maps.rodata_data.as_deref_mut() {
                chosen.walker = match walker {
                    StackWalker::Helper => 0,
                    StackWalker::Manual => 1,
                };
                chosen.delivery = match delivery {
                    StackDelivery::Drop => 0,
                    StackDelivery::Ring => 1,
                    StackDelivery::Count => 2,
                };
            }
            let object = open.open_object_mut();
            choose(object, |one| {
                one == name || (rules.is_some() && is_of_modules(one))
            });
            for mut one in object.progs_mut() {
                if one.name() == name {
                    method.aim(&mut one, event)?;
                }
            }
            match &rules {
                Some(rules) => sized = Unwinder::size(object, rules),
                // The verifier sees that the helper's program does not use them.
                None => {
                    for mut map in object.maps_mut() {
                        if Unwinder::MAPS.iter().any(|name| map.name() == *name) {
                            map.set_autocreate(false)?;
                        }
                    }
                }
            }
            open.load()
        })
        .map_err(|error| method.explain_load(event, error))?;
        sized?;
        let mut addresses = Vec::new();
        let ring = maps::ring(&skeleton.maps.records, "records", move |record| {
            read_addresses(record, &mut addresses);
            take(&addresses);
        })?;
        let unwinder = rules.map(|rules| Unwinder::fill(skeleton.object(), &rules));
        let mut tracer = StackTracer {
            held: None,
            _modules: Vec::new(),
            method,
            event: event.to_owned(),
            before: TracedStacks::default(),
            ring,
            unwinder: unwinder.transpose()?,
            tools: Toolbox::default(),
            skeleton,
        };
        if tracer.unwinder.is_some() {
            tracer._modules = attach_to_modules(|name| tracer.skeleton.program(name));
        }
        Ok(tracer)
    }

    /// Attaches it.
    ///
    /// # Errors
    ///
    /// Where it can't be attached, or the rules of modules that came meanwhile can't be read.
    pub fn attach(&mut self) -> Result<()> {
        self.held = None;
        self.refresh()?;
        let mut before = self.sum()?;
        let program = self.skeleton.program(program(self.method)?)?;
        let held = MethodAttachment::attach(self.method, &program, &self.event, &mut self.tools)?;
        before.missed = self.held.insert(held).missed(&program)?.unwrap_or(0);
        self.before = before;
        Ok(())
    }

    /// Reads the records that are there. They come without waking anyone.
    ///
    /// # Errors
    ///
    /// Where the ring buffer can't be read.
    pub fn take(&self) -> Result<()> {
        self.ring
            .consume()
            .map_err(map_failed("records", "reading the ring buffer"))
    }

    /// Detaches it, reads the records that are left, and returns what became of events since it was attached.
    ///
    /// # Errors
    ///
    /// Where it is not attached, or maps can't be read.
    pub fn detach(&mut self) -> Result<TracedStacks> {
        let Some(mut held) = self.held.take() else {
            return Err(Error::NotLoaded("stack_tracer is off, and so".to_owned()));
        };
        let program = self.skeleton.program(program(self.method)?)?;
        let missed = held.missed(&program)?.unwrap_or(0);
        drop(held);
        let mut sum = self.sum()?;
        for _ in 0..READINGS {
            if sum.events == sum.delivered + sum.lost {
                break;
            }
            sleep(BETWEEN_READINGS);
            sum = self.sum()?;
        }
        self.take()?;
        Ok(TracedStacks { missed, ..sum }.since(self.before))
    }

    /// Stacks that were counted since it was loaded, as addresses, the innermost first.
    pub fn stacks(&self) -> Vec<(Vec<u64>, u64)> {
        let Some(unwinder) = &self.unwinder else {
            return Vec::new();
        };
        let stacks = unwinder.stacks().into_iter();
        let addresses = |leaf| unwinder.addresses(leaf);
        stacks
            .map(|stack| (addresses(stack.leaf), stack.count))
            .collect()
    }

    /// Reads the rules anew where modules came or went.
    fn refresh(&mut self) -> Result<()> {
        if let Some(unwinder) = &mut self.unwinder
            && let Some(changes) = unwinder.changes()
        {
            unwinder.write(&RuleTable::read(&KernelSymbols::read()?)?, changes)?;
        }
        Ok(())
    }

    /// Sums what all CPUs have counted since it was loaded.
    fn sum(&self) -> Result<TracedStacks> {
        let mut sum = TracedStacks::default();
        for value in maps::of_cpus(&self.skeleton.maps.counts, "counts")? {
            let count: stack_tracer_counts = plain::read(&value).unwrap_or_default();
            sum.events += count.events;
            sum.delivered += count.delivered;
            sum.lost += count.lost;
            sum.frames += count.frames;
        }
        if let Some(unwinder) = &self.unwinder {
            sum.stale = unwinder.losses().stale;
        }
        for (addresses, count) in self.stacks() {
            sum.in_tree += count;
            sum.frames += count * addresses.len() as u64;
        }
        Ok(sum)
    }
}

impl TracedStacks {
    /// Returns what was added since `before`.
    fn since(self, before: Self) -> Self {
        TracedStacks {
            events: self.events.saturating_sub(before.events),
            delivered: self.delivered.saturating_sub(before.delivered),
            lost: self.lost.saturating_sub(before.lost),
            missed: self.missed.saturating_sub(before.missed),
            frames: self.frames.saturating_sub(before.frames),
            in_tree: self.in_tree.saturating_sub(before.in_tree),
            stale: self.stale.saturating_sub(before.stale),
        }
    }
}

fn program(method: AttachMethod) -> Result<&'static str> {
    match method {
        AttachMethod::RawTp => Ok("on_raw_tp"),
        AttachMethod::Kprobe | AttachMethod::KprobeInt3 => Ok("on_kprobe"),
        other => Err(Error::Refused(format!(
            "stacks are not taken at a {}",
            other.attach()
        ))),
    }
}
