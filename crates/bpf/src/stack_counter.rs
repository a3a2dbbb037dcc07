//! Counts or reports the kernel stacks of events of a running system. `bpf/stack_counter.bpf.c` says how, and what
//! becomes of each event.

mod outcome;
mod request;

use std::{cell::RefCell, collections::HashMap, fs, mem, rc::Rc, thread, time::Duration};

use libbpf_rs::{
    Link, MapCore as _, MapFlags, RingBuffer,
    skel::{OpenSkel as _, Skel as _, SkelBuilder as _},
};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::{
    attach::{AttachMethod, MethodAttachment, Toolbox},
    error::{Error, Result, map_failed},
    feature::Feature,
    l7, lockdown, mapping, maps, mount,
    object::{OwnedSkeleton, choose},
    plain,
    skel::stack::types::{unwind_node, unwind_state},
    skel::stack_counter::{
        StackCounterSkel, StackCounterSkelBuilder,
        types::{stack_counter_counts, stack_counter_event},
    },
    stats::RunStats,
    unwind::{
        Generation, KernelSymbols, RuleTable, Unwinder, attach_to_modules, is_of_modules,
        modules_are_changing,
    },
};

pub use outcome::{StackCount, StackEnd, StackReport, StackTotals};
pub use request::{DEEPEST, StackEvent, StackFilter, StackMode};

/// See `bpf/stack_counter.h`.
const MODE_COUNT: u32 = 0;
const MODE_EVENTS: u32 = 1;
const MODE_HELPER: u32 = 2;
const COMM: usize = 16;

/// Reasons for the end of a walk: `enum unwind_end`.
const ENDED_DEEP: u32 = 0;
const ENDED_LOST: u32 = 2;

/// Records that are read at once at most. A reader that goes on while records come may never end.
const RECORDS_AT_ONCE: usize = 1 << 16;

/// Leaves whose addresses are kept at most, so that a frequent stack is read once.
const PATHS_KEPT: usize = 1 << 14;

/// Most times that the rules are not read anew because a module is being loaded or unloaded. One that hangs there must
/// not make all stacks stale for ever.
const MOST_WAITS: u32 = 50;

/// A record of the ring buffer: its head, and the addresses behind it.
type Record = (stack_counter_event, Vec<u64>);

/// Programs that take stacks, attached. Dropping it detaches them.
pub struct StackCounter {
    held: Vec<(&'static str, MethodAttachment)>,
    /// Names of the programs that take stacks.
    programs: Vec<&'static str>,
    _modules: Vec<Link>,
    /// Times that the rules were not read anew since modules came or went.
    waits: u32,
    mode: StackMode,
    heard: Rc<RefCell<Vec<Record>>>,
    ring: RingBuffer<'static>,
    unwinder: Option<Unwinder>,
    /// Whole stacks that had no room in the tree: how often each came, by addresses and generation.
    whole: HashMap<(Rc<[u64]>, Generation), u64>,
    /// Addresses and generations of leaves that were reported lately.
    paths: HashMap<u32, (Rc<[u64]>, Generation)>,
    /// Events missed until the programs were detached.
    missed: Option<Option<u64>>,
    skeleton: OwnedSkeleton<StackCounterSkel<'static>>,
}

impl StackCounter {
    /// Returns the features that the kernel must have.
    pub fn needs(method: AttachMethod) -> Vec<Feature> {
        let further = [
            Feature::Btf,
            Feature::SyscallProgram,
            Feature::RingBuffer,
            Feature::MmapableArray,
            Feature::StackMap,
        ];
        [&method.needs(), &further[..]].concat()
    }

    /// Loads the programs and attaches them. Without rules, the kernel's helper takes the stacks.
    ///
    /// # Errors
    ///
    /// Where the kernel rejects a program, or one can't be attached.
    pub fn start(
        events: &[StackEvent],
        mode: StackMode,
        filter: &StackFilter,
        rules: Option<&RuleTable>,
    ) -> Result<Self> {
        let Some((first_method, first_event)) = events.first() else {
            return Err(Error::Refused("no event was named".to_owned()));
        };
        let mut sized = Ok(());
        let skeleton = OwnedSkeleton::new("stack_counter", |storage| {
            let mut open = StackCounterSkelBuilder::default().open(storage)?;
            if let Some(chosen) = open.maps.rodata_data.as_deref_mut() {
                chosen.mode = match mode {
                    StackMode::Count => MODE_COUNT,
                    StackMode::Events => MODE_EVENTS,
                    StackMode::Helper => MODE_HELPER,
                };
                chosen.depth = filter.depth.min(DEEPEST);
                chosen.process = filter.process.unwrap_or(0);
                // This process's own events would never end, so they count only where it alone is asked for.
                let own = std::process::id();
                chosen.own = if filter.process == Some(own) { 0 } else { own };
                if let Some((device, inode)) = l7::namespace() {
                    (chosen.namespace_device, chosen.namespace_inode) = (device, inode);
                }
                let command = filter.command.as_deref().unwrap_or_default();
                for (place, byte) in chosen.comm.iter_mut().zip(command.bytes().take(COMM - 1)) {
                    *place = byte as _;
                }
            }
            let object = open.open_object_mut();
            let used = |name: &str| {
                events
                    .iter()
                    .any(|(method, _)| program(*method).is_ok_and(|one| one == name))
            };
            choose(object, |name| used(name) || is_of_modules(name));
            for mut one in object.progs_mut() {
                if program(*first_method).is_ok_and(|name| one.name() == name) {
                    first_method.aim(&mut one, first_event)?;
                }
            }
            // 67 MB, which the verifier knows are unused in the other modes.
            for mut map in object.maps_mut() {
                if ["stack_ids", "id_counts"]
                    .iter()
                    .any(|name| map.name() == *name)
                {
                    map.set_autocreate(mode == StackMode::Helper)?;
                }
                // The helper's stacks are as long as the map has room for.
                if map.name() == "stack_ids" {
                    map.set_value_size(filter.depth.min(DEEPEST) * 8)?;
                }
            }
            if let Some(rules) = rules {
                sized = Unwinder::size(object, rules);
            }
            open.load()
        })
        .map_err(|error| first_method.explain_load(first_event, error))?;
        sized?;
        let heard = Rc::new(RefCell::new(Vec::new()));
        let events_heard = Rc::clone(&heard);
        let ring = maps::ring(&skeleton.maps.reports, "reports", move |record| {
            events_heard.borrow_mut().extend(parse(record));
        })?;
        let unwinder = rules.map(|rules| Unwinder::fill(skeleton.object(), rules));
        let mut counter = StackCounter {
            held: Vec::new(),
            programs: Vec::new(),
            _modules: Vec::new(),
            waits: 0,
            mode,
            heard,
            ring,
            unwinder: unwinder.transpose()?,
            whole: HashMap::new(),
            paths: HashMap::new(),
            missed: None,
            skeleton,
        };
        counter._modules = attach_to_modules(|name| counter.skeleton.program(name));
        let mut tools = Toolbox::default();
        for (method, event) in events {
            let name = program(*method)?;
            let loaded = counter.skeleton.program(name)?;
            let held = MethodAttachment::attach(*method, &loaded, event, &mut tools)?;
            counter.held.push((name, held));
            if !counter.programs.contains(&name) {
                counter.programs.push(name);
            }
        }
        Ok(counter)
    }

    /// Returns reports that came; waits `patience` where none is there. Not all that are there, where they are very
    /// many: the next call returns others.
    ///
    /// # Errors
    ///
    /// Where the ring buffer can't be read.
    pub fn poll(&mut self, patience: Duration) -> Result<Vec<StackReport>> {
        if self.consume()? == 0 && !patience.is_zero() {
            thread::sleep(patience);
            self.consume()?;
        }
        let heard = mem::take(&mut *self.heard.borrow_mut());
        let reports = heard
            .into_iter()
            .map(|(event, addresses)| self.report(&event, addresses));
        let reports: Vec<StackReport> = reports.collect();
        if self.mode == StackMode::Events {
            return Ok(reports);
        }
        // In the other modes they are whole stacks, to be counted here.
        for report in reports {
            let stack = (report.addresses, report.generation);
            *self.whole.entry(stack).or_default() += 1;
        }
        Ok(Vec::new())
    }

    /// Reads records. Returns how many.
    fn consume(&self) -> Result<usize> {
        let read = self.ring.consume_raw_n(RECORDS_AT_ONCE);
        usize::try_from(read).map_err(|_negative| {
            let answer = libbpf_rs::Error::from_raw_os_error(-read);
            map_failed("reports", "reading it")(answer)
        })
    }

    fn report(&mut self, event: &stack_counter_event, whole: Vec<u64>) -> StackReport {
        let (leaf, end) = (event.leaf as u32, (event.leaf >> 32) as u32);
        if self.paths.len() > PATHS_KEPT {
            self.paths.clear();
        }
        let (addresses, generation) = match &self.unwinder {
            // It had no room in the tree from its leaf on.
            Some(unwinder) if !whole.is_empty() => (whole.into(), unwinder.generation(leaf)),
            Some(unwinder) => {
                let path = self.paths.entry(leaf);
                path.or_insert_with(|| (unwinder.addresses(leaf).into(), unwinder.generation(leaf)))
                    .clone()
            }
            None => (whole.into(), Generation::default()),
        };
        let command = event.comm.iter().map(|byte| *byte as u8);
        let command: Vec<u8> = command.take_while(|byte| *byte != 0).collect();
        StackReport {
            ns: event.ns,
            process: event.process,
            thread: event.thread,
            cpu: event.cpu,
            command: String::from_utf8_lossy(&command).into_owned(),
            addresses,
            generation,
            end: match end {
                ENDED_DEEP => StackEnd::Deep,
                ENDED_LOST => StackEnd::Lost,
                _ => StackEnd::Whole,
            },
        }
    }

    /// Reads the rules anew where modules came or went, and none is about to. Returns whether it did.
    ///
    /// # Errors
    ///
    /// Where the rules can't be read, or have no room.
    pub fn refresh(&mut self) -> Result<bool> {
        let Some(unwinder) = &mut self.unwinder else {
            return Ok(false);
        };
        let Some(changes) = unwinder.changes() else {
            return Ok(false);
        };
        if modules_are_changing() && self.waits < MOST_WAITS {
            self.waits += 1;
            return Ok(false);
        }
        self.waits = 0;
        unwinder.write(&RuleTable::read(&KernelSymbols::read()?)?, changes)?;
        Ok(true)
    }

    /// Returns true if modules came or went since the rules were read; for the helper's stacks, since the programs were
    /// attached.
    ///
    /// # Errors
    ///
    /// Where the map can't be read.
    pub fn modules_changed(&self) -> Result<bool> {
        match &self.unwinder {
            Some(unwinder) => Ok(unwinder.changes().is_some()),
            None => Ok(self.state()?.changes != 0),
        }
    }

    fn state(&self) -> Result<unwind_state> {
        let value = (self.skeleton.maps.unwind_states).lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(map_failed("unwind_states", "reading it"))?;
        Ok(plain::read(&value.unwrap_or_default()).unwrap_or_default())
    }

    /// Detaches the programs, and waits until those that run have ended: each event is accounted for then.
    ///
    /// # Errors
    ///
    /// Where what was missed can't be read.
    pub fn detach(&mut self) -> Result<()> {
        self.missed = Some(self.read_missed()?);
        self.held.clear();
        self._modules.clear();
        // Programs run as RCU readers. Where it is refused (nohz_full), closing links and reading maps takes longer than
        // a program runs.
        let _ = membarrier(MembarrierCommand::Global);
        Ok(())
    }

    fn read_missed(&mut self) -> Result<Option<u64>> {
        let mut missed = Some(0);
        for (name, held) in &mut self.held {
            let one = held.missed(&self.skeleton.program(name)?)?;
            missed = missed.zip(one).map(|(sum, one)| sum + one);
        }
        // Each attachment has counted what its program missed at all of them.
        for name in &self.programs {
            let attached = self.held.iter().filter(|(one, _)| one == name).count() as u64;
            let by_program = RunStats::read(&self.skeleton.program(name)?)?.recursion_misses;
            let twice = by_program * attached.saturating_sub(1);
            missed = missed.map(|sum: u64| sum.saturating_sub(twice));
        }
        Ok(missed)
    }

    /// Returns the accounts of events, so far.
    ///
    /// # Errors
    ///
    /// Where the maps can't be read.
    pub fn totals(&mut self) -> Result<StackTotals> {
        let mut totals = StackTotals {
            losses: self
                .unwinder
                .as_ref()
                .map(Unwinder::losses)
                .unwrap_or_default(),
            ..StackTotals::default()
        };
        for value in maps::of_cpus(&self.skeleton.maps.counts, "counts")? {
            let count: stack_counter_counts = plain::read(&value).unwrap_or_default();
            totals.events += count.events;
            totals.counted += count.counted;
            totals.reported += count.reported;
            totals.lost += count.lost;
        }
        totals.missed = match self.missed {
            Some(missed) => missed,
            None => self.read_missed()?,
        };
        for name in &self.programs {
            let stats = RunStats::read(&self.skeleton.program(name)?)?;
            totals.runs += stats.run_cnt;
            totals.run_ns += stats.run_time_ns;
        }
        Ok(totals)
    }

    /// Stacks that were counted so far, in no order.
    ///
    /// # Errors
    ///
    /// Where the maps can't be read.
    pub fn stacks(&self) -> Result<Vec<StackCount>> {
        let Some(unwinder) = &self.unwinder else {
            return self.stacks_of_helper();
        };
        let of_tree = unwinder.stacks().into_iter().filter_map(|stack| {
            // The rest went into the ring buffer as whole stacks, or is lost.
            let count = stack.count.saturating_sub(stack.cut);
            (count > 0).then(|| StackCount {
                addresses: unwinder.addresses(stack.leaf),
                count,
                generation: unwinder.generation(stack.leaf),
            })
        });
        let whole = self
            .whole
            .iter()
            .map(|((addresses, generation), count)| StackCount {
                addresses: addresses.to_vec(),
                count: *count,
                generation: *generation,
            });
        Ok(of_tree.chain(whole).collect())
    }

    fn stacks_of_helper(&self) -> Result<Vec<StackCount>> {
        let counts = &self.skeleton.maps.id_counts;
        let ids = &self.skeleton.maps.stack_ids;
        // Nothing says when each came.
        let generation = Generation {
            rules: 0,
            is_stale: self.modules_changed()?,
        };
        let mut stacks = Vec::new();
        for id in counts.keys() {
            let read = |map: &libbpf_rs::MapMut<'_>, name| {
                let value = map.lookup(&id, MapFlags::ANY);
                value.map_err(map_failed(name, "reading it"))
            };
            let (count, stack) = (read(counts, "id_counts")?, read(ids, "stack_ids")?);
            let words = stack.unwrap_or_default();
            let words = words.chunks_exact(8).filter_map(plain::read::<u64>);
            stacks.push(StackCount {
                addresses: words.take_while(|address| *address != 0).collect(),
                count: count.and_then(|count| plain::read(&count)).unwrap_or(0),
                generation,
            });
        }
        Ok(stacks)
    }

    /// Leaves that many free nodes in the tree. For tests of a full one.
    ///
    /// # Errors
    ///
    /// Where the map can't be written.
    #[doc(hidden)]
    pub fn leave_nodes(&self, free: u32) -> Result<()> {
        let states = &self.skeleton.maps.unwind_states;
        let mut state = self.state()?;
        let nodes = u64::from(self.skeleton.maps.unwind_nodes.value_size());
        state.used = nodes / size_of::<unwind_node>() as u64 - u64::from(free);
        maps::put(states, "unwind_states", &0u32, &state)
    }

    /// Nodes of the tree that are in use; 0 where the helper takes the stacks.
    pub fn nodes(&self) -> u64 {
        self.unwinder.as_ref().map_or(0, Unwinder::nodes_used)
    }

    /// Memory that the kernel accounts for the maps, in bytes.
    pub fn kernel_bytes(&self) -> u64 {
        let maps = self.skeleton.object().maps();
        maps.map(|map| mapping::memlock(&map)).sum()
    }
}

fn parse(record: &[u8]) -> Option<Record> {
    let head: stack_counter_event = plain::read(record)?;
    // Behind the head, struct unwind_stack: its own depth and end, then addresses.
    let addresses = record.get(size_of::<stack_counter_event>() + 8..);
    let words = addresses.unwrap_or_default().chunks_exact(8);
    let words = words.filter_map(plain::read::<u64>);
    Some((head, words.take(head.depth as usize).collect()))
}

/// Names of the kernel's tracepoints, as `category:name`; none where tracefs can't be read.
pub fn tracepoints() -> Vec<String> {
    let list = mount::open("tracefs").map(|tracefs| {
        // It is open only here.
        fs::read_to_string(tracefs.path("available_events")).unwrap_or_default()
    });
    list.unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Returns true if lockdown forbids reading the kernel's memory, and so its stacks.
pub fn is_locked_down() -> bool {
    lockdown::forbids_looking()
}

fn program(method: AttachMethod) -> std::result::Result<&'static str, Error> {
    match method {
        AttachMethod::RawTp => Ok("on_raw_tp"),
        AttachMethod::Tracepoint => Ok("on_tracepoint"),
        AttachMethod::Kprobe | AttachMethod::KprobeInt3 => Ok("on_kprobe"),
        AttachMethod::Fentry => Ok("on_fentry"),
        other => Err(Error::Refused(format!(
            "stacks are not taken at a {}",
            other.attach()
        ))),
    }
}
