//! Takes stacks both by `unwind.bpf.h` and by the kernel's helper, and compares. `bpf/unwind_truth.bpf.c` says how.

use std::{cell::RefCell, rc::Rc};

use libbpf_rs::RingBuffer;

use super::{RuleTable, UnwindLosses, Unwinder};
use crate::{
    attach::{AttachMethod, MethodAttachment, Toolbox},
    error::{Error, Result, map_failed},
    feature::Feature,
    object::{NamedObject, OpenNamed},
    plain,
    shared::{truth_counts, truth_stacks},
};

/// See `bpf/unwind_truth.h`.
const TIMED_NOTHING: u64 = 0;
const TIMED_HELPER: u64 = 1;
const TIMED_WALK: u64 = 2;

/// Differences that are kept; more are counted.
const MAX_KEPT: usize = 64;

/// Two takes of one stack that differ: addresses, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackDifference {
    /// Take of the walk, which begins with what called the program.
    pub walked: Vec<u64>,
    /// Take of the helper, which begins with the program's own frames.
    pub helper: Vec<u64>,
}

/// Which take is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// Neither: two readings of the clock.
    Nothing,
    /// The helper's.
    Helper,
    /// The walk.
    Walk,
}

/// Counts of what was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TruthCounts {
    /// Stacks.
    pub events: u64,
    /// Stacks that are the same.
    pub equal: u64,
    /// Stacks that are the same but for generated code that the kernel does not list: the helper leaves it out.
    pub unlisted: u64,
    /// Stacks that differ otherwise.
    pub different: u64,
    /// Events within the program, which were not compared.
    pub nested: u64,
    /// Addresses of the longest stack.
    pub deepest: u64,
    /// Addresses of all stacks.
    pub frames: u64,
    /// Nanoseconds of all takes that were timed.
    pub ns: u64,
    /// Walks that did not go as they should.
    pub losses: UnwindLosses,
    /// The first stacks that differ.
    pub differences: Vec<StackDifference>,
}

/// The program, loaded for a way to attach: to one event after the other.
pub struct StackTruth {
    method: AttachMethod,
    held: Option<MethodAttachment>,
    tools: Toolbox,
    heard: Rc<RefCell<Vec<StackDifference>>>,
    ring: RingBuffer<'static>,
    unwinder: Unwinder,
    object: NamedObject,
}

impl StackTruth {
    /// Returns the features that the kernel must have.
    pub fn needs(method: AttachMethod) -> Vec<Feature> {
        let further = [
            Feature::Btf,
            Feature::BpfLoop,
            Feature::SyscallProgram,
            Feature::RingBuffer,
            Feature::MmapableArray,
        ];
        [&method.needs(), &further[..]].concat()
    }

    /// Loads it. A trampoline is for the function `aim` alone; others can be attached to any event.
    ///
    /// # Errors
    ///
    /// Where the kernel rejects it, or stacks are not compared in this way.
    pub fn load(method: AttachMethod, aim: &str, rules: &RuleTable) -> Result<Self> {
        let mut open = OpenNamed::open("unwind_truth")?;
        Unwinder::size(open.object(), rules)?;
        let object = open.load_aimed(program(method)?, method, aim)?;
        let heard = Rc::new(RefCell::new(Vec::new()));
        let differences = Rc::clone(&heard);
        let ring = object.ring("differences", move |record| {
            let mut kept = differences.borrow_mut();
            if let Some(stacks) = plain::read::<truth_stacks>(record)
                && kept.len() < MAX_KEPT
            {
                kept.push(StackDifference::from_stacks(&stacks));
            }
        })?;
        Ok(StackTruth {
            method,
            held: None,
            tools: Toolbox::default(),
            heard,
            ring,
            unwinder: Unwinder::fill(object.object(), rules)?,
            object,
        })
    }

    /// Attaches it to an event, a tracepoint `category:name` or a function of the kernel. Counts begin anew.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses.
    pub fn attach(&mut self, event: &str, timed: Timed) -> Result<()> {
        self.held = None;
        let timed = match timed {
            Timed::Nothing => TIMED_NOTHING,
            Timed::Helper => TIMED_HELPER,
            Timed::Walk => TIMED_WALK,
        };
        self.object.globals.set("timed", timed)?;
        // What the event before this one left.
        self.ring
            .consume()
            .map_err(map_failed("differences", "reading it"))?;
        self.heard.borrow_mut().clear();
        self.object.fill_cpus("counts", 0)?;
        let program = self.object.program(program(self.method)?)?;
        let held = MethodAttachment::attach(self.method, &program, event, &mut self.tools)?;
        self.held = Some(held);
        Ok(())
    }

    /// Stacks that were compared since it was attached.
    ///
    /// # Errors
    ///
    /// Where its maps can't be read.
    pub fn counts(&self) -> Result<TruthCounts> {
        let mut all = TruthCounts {
            losses: self.unwinder.losses(),
            ..TruthCounts::default()
        };
        for count in self.object.of_cpus::<truth_counts>("counts")? {
            all.events += count.events;
            all.equal += count.equal;
            all.unlisted += count.unlisted;
            all.different += count.different;
            all.nested += count.nested;
            all.frames += count.frames;
            all.ns += count.ns;
            all.deepest = all.deepest.max(count.deepest);
        }
        Ok(all)
    }

    /// Detaches it, and returns what was compared since it was attached.
    ///
    /// # Errors
    ///
    /// Where its maps can't be read.
    pub fn detach(&mut self) -> Result<TruthCounts> {
        self.held = None;
        self.ring
            .consume()
            .map_err(map_failed("differences", "reading it"))?;
        Ok(TruthCounts {
            differences: self.heard.take(),
            ..self.counts()?
        })
    }

    /// Memory that the kernel accounts for its maps, in bytes.
    pub fn kernel_bytes(&self) -> u64 {
        self.object.kernel_bytes()
    }
}

impl StackDifference {
    fn from_stacks(stacks: &truth_stacks) -> Self {
        let first = |addresses: &[u64], count: u64| {
            let count = (count as usize).min(addresses.len());
            addresses[..count].to_vec()
        };
        StackDifference {
            walked: first(&stacks.walked.ip, stacks.walked.depth.into()),
            helper: first(&stacks.helper, stacks.helper_depth),
        }
    }
}

fn program(method: AttachMethod) -> Result<&'static str> {
    match method {
        AttachMethod::RawTp => Ok("truth_raw_tp"),
        AttachMethod::Tracepoint => Ok("truth_tp"),
        AttachMethod::Kprobe | AttachMethod::KprobeInt3 => Ok("truth_kprobe"),
        AttachMethod::Fentry => Ok("truth_fentry"),
        other => Err(Error::Refused(format!(
            "stacks are not compared at a {}",
            other.attach()
        ))),
    }
}
