//! Counts or reports the kernel stacks of events of a running system. `bpf/stack_counter.bpf.c` says how, and what
//! becomes of each event.

mod outcome;
mod request;

use std::{cell::RefCell, collections::HashMap, fs, mem, rc::Rc, thread, time::Duration};

use libbpf_rs::{MapCore as _, RingBuffer};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::{
    attach::{AttachMethod, MethodAttachment, Toolbox},
    error::{Error, Result, map_failed},
    feature::Feature,
    l7, lockdown, mount,
    object::OpenNamed,
    plain,
    shared::{stack_counter_counts, stack_counter_event},
    shared::{unwind_node, unwind_state},
    stats::RunStats,
    unwind::{Generation, RuleTable, StackObject, Unwinder, note_modules, stack_program},
};

pub use outcome::{StackCount, StackEnd, StackReport, StackTotals};
pub use request::{DEEPEST, StackEvent, StackFilter, StackMode};

/// See `bpf/stack_counter.h`.
const MODE_COUNT: u64 = 0;
const MODE_EVENTS: u64 = 1;
const MODE_HELPER: u64 = 2;
const COMM: usize = 16;

/// Maps of the kernel's helper.
const STACK_IDS: &str = "stack_ids";
const ID_COUNTS: &str = "id_counts";

const STATES: &str = "unwind_states";

/// Reasons for the end of a walk: `enum unwind_end`.
const ENDED_DEEP: u32 = 0;
const ENDED_LOST: u32 = 2;

/// Records that are read at once at most. A reader that goes on while records come may never end.
const RECORDS_AT_ONCE: usize = 1 << 16;

/// Leaves whose addresses are kept at most, so that a frequent stack is read once.
const PATHS_KEPT: usize = 1 << 14;

/// A record of the ring buffer: its head, and the addresses behind it.
type Record = (stack_counter_event, Vec<u64>);

/// Programs that take stacks, attached. Dropping it detaches them.
pub struct StackCounter {
    held: Vec<(&'static str, MethodAttachment)>,
    /// Names of the programs that take stacks.
    programs: Vec<&'static str>,
    mode: StackMode,
    heard: Rc<RefCell<Vec<Record>>>,
    ring: RingBuffer<'static>,
    /// Whole stacks that had no room in the tree: how often each came, by addresses and generation.
    whole: HashMap<(Rc<[u64]>, Generation), u64>,
    /// Addresses and generations of leaves that were reported lately.
    paths: HashMap<u32, (Rc<[u64]>, Generation)>,
    /// Events missed until the programs were detached.
    missed: Option<Option<u64>>,
    stacks: StackObject,
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
        let Some((method, event)) = events.first() else {
            return Err(Error::Refused("no event was named".to_owned()));
        };
        let mut open = OpenNamed::open("stack_counter")?;
        set_up(&mut open, mode, filter)?;
        let mut programs = Vec::new();
        for (method, _) in events {
            let name = stack_program(*method)?;
            if !programs.contains(&name) {
                open.with(name)?;
                programs.push(name);
            }
        }
        note_modules(&mut open)?;
        let stacks = StackObject::load(open, (*method, event), rules)?;
        let heard = Rc::new(RefCell::new(Vec::new()));
        let events_heard = Rc::clone(&heard);
        let ring = stacks.object.ring("reports", move |record| {
            events_heard.borrow_mut().extend(parse(record));
        })?;
        let mut tools = Toolbox::default();
        let attach = |(method, event): &StackEvent| {
            let name = stack_program(*method)?;
            let program = stacks.object.program(name)?;
            let held = MethodAttachment::attach(*method, &program, event, &mut tools)?;
            Ok((name, held))
        };
        Ok(StackCounter {
            held: events.iter().map(attach).collect::<Result<_>>()?,
            programs,
            mode,
            heard,
            ring,
            whole: HashMap::new(),
            paths: HashMap::new(),
            missed: None,
            stacks,
        })
    }

    /// Returns reports that came; waits `timeout` where none is there. Not all that are there, where they are very
    /// many: the next call returns others.
    ///
    /// # Errors
    ///
    /// Where the ring buffer can't be read.
    pub fn poll(&mut self, timeout: Duration) -> Result<Vec<StackReport>> {
        if self.consume()? == 0 && !timeout.is_zero() {
            thread::sleep(timeout);
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
        let (addresses, generation) = match &self.stacks.unwinder {
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
        self.stacks.refresh(true)
    }

    /// Returns true if modules came or went since the rules were read; for the helper's stacks, since the programs were
    /// attached.
    ///
    /// # Errors
    ///
    /// Where the map can't be read.
    pub fn modules_changed(&self) -> Result<bool> {
        match &self.stacks.unwinder {
            Some(unwinder) => Ok(unwinder.changes().is_some()),
            None => Ok(self.state()?.changes != 0),
        }
    }

    fn state(&self) -> Result<unwind_state> {
        let value = self.stacks.object.value(STATES, &0u32.to_ne_bytes())?;
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
        self.stacks.detach_from_modules();
        // Programs run as RCU readers. Where it is refused (nohz_full), closing links and reading maps takes longer than
        // a program runs.
        let _ = membarrier(MembarrierCommand::Global);
        Ok(())
    }

    fn read_missed(&mut self) -> Result<Option<u64>> {
        let mut missed = Some(0);
        for (name, held) in &mut self.held {
            let one = held.missed(&self.stacks.object.program(name)?)?;
            missed = missed.zip(one).map(|(sum, one)| sum + one);
        }
        // Each attachment has counted what its program missed at all of them.
        for name in &self.programs {
            let attached = self.held.iter().filter(|(one, _)| one == name).count() as u64;
            let by_program = RunStats::read(&self.stacks.object.program(name)?)?.recursion_misses;
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
            losses: (self.stacks.unwinder)
                .as_ref()
                .map(Unwinder::losses)
                .unwrap_or_default(),
            ..StackTotals::default()
        };
        for count in (self.stacks.object).of_cpus::<stack_counter_counts>("counts")? {
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
            let stats = RunStats::read(&self.stacks.object.program(name)?)?;
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
        let Some(unwinder) = &self.stacks.unwinder else {
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
        let object = &self.stacks.object;
        // Nothing says when each came.
        let generation = Generation {
            rules: 0,
            is_stale: self.modules_changed()?,
        };
        let mut stacks = Vec::new();
        for id in object.map(ID_COUNTS)?.keys() {
            let (count, stack) = (object.value(ID_COUNTS, &id)?, object.value(STACK_IDS, &id)?);
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
        let object = &self.stacks.object;
        let mut state = self.state()?;
        let nodes = u64::from(object.map("unwind_nodes")?.value_size());
        state.used = nodes / size_of::<unwind_node>() as u64 - u64::from(free);
        object.put(STATES, &0u32, &state)
    }

    /// Nodes of the tree that are in use; 0 where the helper takes the stacks.
    pub fn nodes(&self) -> u64 {
        let unwinder = self.stacks.unwinder.as_ref();
        unwinder.map_or(0, Unwinder::nodes_used)
    }

    /// Memory that the kernel accounts for the maps, in bytes.
    pub fn kernel_bytes(&self) -> u64 {
        self.stacks.object.kernel_bytes()
    }
}

/// Writes into an open object what is done with stacks, and whose they are.
fn set_up(open: &mut OpenNamed, mode: StackMode, filter: &StackFilter) -> Result<()> {
    let depth = filter.depth.min(DEEPEST);
    // This process's own events would never end, so they count only where it alone is asked for.
    let own = Some(std::process::id()).filter(|own| filter.process != Some(*own));
    let (device, inode) = l7::namespace().unwrap_or_default();
    let mode_code = match mode {
        StackMode::Count => MODE_COUNT,
        StackMode::Events => MODE_EVENTS,
        StackMode::Helper => MODE_HELPER,
    };
    for (constant, value) in [
        ("mode", mode_code),
        ("depth", depth.into()),
        ("process", filter.process.unwrap_or(0).into()),
        ("own", own.unwrap_or(0).into()),
        ("namespace_device", device),
        ("namespace_inode", inode),
    ] {
        open.set(constant, value)?;
    }
    let command = filter.command.as_deref().unwrap_or_default().as_bytes();
    open.set_bytes("comm", &command[..command.len().min(COMM - 1)])?;
    // 67 MB, which the verifier knows are unused in the other modes.
    for map in [STACK_IDS, ID_COUNTS] {
        open.change_map(map, |map| map.set_autocreate(mode == StackMode::Helper))?;
    }
    // The helper's stacks are as long as the map has room for.
    open.change_map(STACK_IDS, |map| map.set_value_size(depth * 8))
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
