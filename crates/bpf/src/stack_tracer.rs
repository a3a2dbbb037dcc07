//! Takes the kernel's stack at each event, by the kernel's helper or by `unwind.bpf.h`, and drops, reports or counts it.
//! `bpf/stack_tracer.bpf.c` says how, and what the number includes.

use std::{thread::sleep, time::Duration};

use libbpf_rs::RingBuffer;

use crate::{
    attach::{AttachMethod, Counter, MethodAttachment, Toolbox},
    error::{Error, Result, map_failed},
    feature::Feature,
    object::OpenNamed,
    shared::stack_tracer_counts,
    unwind::{
        KernelSymbols, RuleTable, StackObject, Unwinder, note_modules, read_addresses,
        stack_program,
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
    method: AttachMethod,
    event: String,
    /// Counts of the tree, and all others, before it was attached.
    before: TracedStacks,
    ring: RingBuffer<'static>,
    tools: Toolbox,
    stacks: StackObject,
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
        if (walker, delivery) == (StackWalker::Helper, StackDelivery::Count) {
            return Err(Error::Refused(
                "the helper has no tree to count stacks in".to_owned(),
            ));
        }
        let mut open = OpenNamed::open("stack_tracer")?;
        let (walker_code, rules) = match walker {
            StackWalker::Helper => (0, None),
            StackWalker::Manual => (1, Some(RuleTable::read(&KernelSymbols::read()?)?)),
        };
        let delivery_code = match delivery {
            StackDelivery::Drop => 0,
            StackDelivery::Ring => 1,
            StackDelivery::Count => 2,
        };
        open.set("walker", walker_code)?;
        open.set("delivery", delivery_code)?;
        if rules.is_some() {
            note_modules(&mut open)?;
        } else {
            // The verifier sees that the helper's program does not use them.
            for map in Unwinder::MAPS {
                open.change_map(map, |map| map.set_autocreate(false))?;
            }
        }
        let stacks = StackObject::load(open, (method, event), rules.as_ref())?;
        let mut addresses = Vec::new();
        let ring = stacks.object.ring("records", move |record| {
            read_addresses(record, &mut addresses);
            take(&addresses);
        })?;
        Ok(StackTracer {
            held: None,
            method,
            event: event.to_owned(),
            before: TracedStacks::default(),
            ring,
            tools: Toolbox::default(),
            stacks,
        })
    }

    /// Attaches it.
    ///
    /// # Errors
    ///
    /// Where it can't be attached, or the rules of modules that came meanwhile can't be read.
    pub fn attach(&mut self) -> Result<()> {
        self.held = None;
        self.stacks.refresh(false)?;
        let mut before = self.sum()?;
        let program = self.stacks.object.program(stack_program(self.method)?)?;
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
        let program = self.stacks.object.program(stack_program(self.method)?)?;
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
        let Some(unwinder) = &self.stacks.unwinder else {
            return Vec::new();
        };
        let stacks = unwinder.stacks().into_iter();
        let addresses = |leaf| unwinder.addresses(leaf);
        stacks
            .map(|stack| (addresses(stack.leaf), stack.count))
            .collect()
    }

    /// Sums what all CPUs have counted since it was loaded.
    fn sum(&self) -> Result<TracedStacks> {
        let mut sum = TracedStacks::default();
        for count in (self.stacks.object).of_cpus::<stack_tracer_counts>("counts")? {
            sum.events += count.events;
            sum.delivered += count.delivered;
            sum.lost += count.lost;
            sum.frames += count.frames;
        }
        if let Some(unwinder) = &self.stacks.unwinder {
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
