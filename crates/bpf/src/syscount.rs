//! A counter of system calls: how many of each kind a process made, and how long they took. `bpf/syscount.bpf.c`
//! says what the number includes.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use libbpf_rs::{MapCore as _, RingBuffer};

use crate::{
    attach::{AttachMethod, MethodAttachment, Toolbox},
    error::{Error, Result, map_failed},
    feature::Feature,
    object::{NamedObject, OpenNamed},
    plain,
};

/// Programs.
const ON_ENTER: &str = "on_enter";
const ON_EXIT: &str = "on_exit";

const ENTER: &str = "raw_syscalls:sys_enter";
const EXIT: &str = "raw_syscalls:sys_exit";

/// Processes that can be picked; see `bpf/syscount.h`.
pub const MAX_PROCESSES: usize = 16;

/// Whose system calls are counted, and who leaves out the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Those of some processes; the program in the kernel leaves out the others.
    Kernel,
    /// Those of some processes; every call is reported to user space, which drops the others.
    User,
    /// Everyone's.
    All,
}

/// A kind of system calls of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyscallKey {
    /// The process, as the kernel numbers it.
    pub process: u32,
    /// The number of the system call.
    pub number: u32,
}

/// Calls of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyscallSum {
    /// Number of calls.
    pub calls: u64,
    /// Sum of their durations, in nanoseconds.
    pub ns: u64,
}

/// Counts while it was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallCounts {
    /// Calls that began and ended in that time, by kind.
    pub sums: BTreeMap<SyscallKey, SyscallSum>,
    /// Runs of the program where calls begin, for anyone.
    pub entered: u64,
    /// Runs of the program where they end.
    pub left: u64,
    /// Calls that were not counted: no room, or the program was skipped.
    pub lost: u64,
}

/// Sums of what came by the ring.
#[derive(Default)]
struct RingSums {
    /// Whose calls count.
    picked: Vec<u32>,
    sums: BTreeMap<SyscallKey, SyscallSum>,
}

impl RingSums {
    /// Sums a call where its process is one that counts.
    fn take(&mut self, call: &[u8]) {
        let fields = plain::read::<[u32; 2]>(call).zip(call.get(8..).and_then(plain::read::<u64>));
        if let Some(([process, number], ns)) = fields
            && self.picked.contains(&process)
        {
            let sum = self.sums.entry(SyscallKey { process, number }).or_default();
            sum.calls += 1;
            sum.ns += ns;
        }
    }
}

/// The counter. Dropping it detaches it.
pub struct Syscount {
    /// Exit first: a call that is seen to begin is seen to end.
    held: Option<(MethodAttachment, MethodAttachment)>,
    filter: Filter,
    heard: Rc<RefCell<RingSums>>,
    ring: RingBuffer<'static>,
    object: NamedObject,
}

impl Syscount {
    /// Returns the features that the kernel must have.
    pub fn needs() -> Vec<Feature> {
        [AttachMethod::Tracepoint.needs(), vec![Feature::RingBuffer]].concat()
    }

    /// Loads the programs.
    pub fn load(filter: Filter) -> Result<Self> {
        let mut open = OpenNamed::open("syscount")?;
        open.set(
            "filter",
            match filter {
                Filter::Kernel => 0,
                Filter::User => 1,
                Filter::All => 2,
            },
        )?;
        let object = open.load()?;
        let heard = Rc::new(RefCell::new(RingSums::default()));
        let sums = Rc::clone(&heard);
        let ring = object.ring("calls", move |call| {
            sums.borrow_mut().take(call);
        })?;
        Ok(Syscount {
            held: None,
            filter,
            heard,
            ring,
            object,
        })
    }

    /// Attaches it, for these processes: at most [`MAX_PROCESSES`], the first ones of more.
    pub fn attach(&mut self, processes: &[u32]) -> Result<()> {
        self.held = None;
        self.clear()?;
        let picked = &processes[..processes.len().min(MAX_PROCESSES)];
        let globals = &mut self.object.globals;
        globals.set_bytes("filter_pids", plain::bytes_of_slice(picked))?;
        globals.set("filter_count", picked.len() as u64)?;
        *self.heard.borrow_mut() = RingSums {
            picked: picked.to_vec(),
            sums: BTreeMap::new(),
        };
        let attach = |name, event| {
            let program = self.object.program(name)?;
            let (method, tools) = (AttachMethod::Tracepoint, &mut Toolbox::default());
            MethodAttachment::attach(method, &program, event, tools)
        };
        let exit = attach(ON_EXIT, EXIT)?;
        let enter = attach(ON_ENTER, ENTER)?;
        self.held = Some((enter, exit));
        Ok(())
    }

    /// Reads the calls that are reported, and waits about `timeout` for some.
    pub fn poll(&self, timeout: Duration) -> Result<()> {
        self.ring
            .poll(timeout)
            .map_err(map_failed("calls", "reading it"))
    }

    /// Detaches it, and returns what it counted.
    pub fn detach(&mut self) -> Result<SyscallCounts> {
        let Some((mut enter, mut exit)) = self.held.take() else {
            return Err(Error::NotLoaded("syscount is off, and so".to_owned()));
        };
        let passed_over = [
            enter.missed(&self.object.program(ON_ENTER)?)?,
            exit.missed(&self.object.program(ON_EXIT)?)?,
        ];
        let passed_over: u64 = passed_over.into_iter().flatten().sum();
        drop((enter, exit));
        let [entered, left, lost] = self.runs()?;
        let sums = match self.filter {
            Filter::User => {
                self.ring
                    .consume()
                    .map_err(map_failed("calls", "reading it"))?;
                std::mem::take(&mut self.heard.borrow_mut().sums)
            }
            Filter::Kernel | Filter::All => self.sums()?,
        };
        Ok(SyscallCounts {
            sums,
            entered,
            left,
            lost: lost + passed_over,
        })
    }

    fn sums(&self) -> Result<BTreeMap<SyscallKey, SyscallSum>> {
        let read = |key: Vec<u8>| -> Result<Option<(SyscallKey, SyscallSum)>> {
            Ok(self.object.value("sums", &key)?.and_then(|value| {
                let [process, number] = plain::read(&key)?;
                let [calls, ns] = plain::read(&value)?;
                Some((SyscallKey { process, number }, SyscallSum { calls, ns }))
            }))
        };
        let sums = self.object.map("sums")?;
        let keys = sums.keys();
        keys.filter_map(|key| read(key).transpose()).collect()
    }

    /// Resets all counts, and forgets calls that were under way when it was detached.
    fn clear(&mut self) -> Result<()> {
        self.object.empty("start")?;
        self.object.empty("sums")?;
        self.object.fill_cpus("runs", 0)
    }

    /// Entered, left and lost, over all CPUs.
    fn runs(&self) -> Result<[u64; 3]> {
        let values = self.object.of_cpus::<[u64; 3]>("runs")?;
        let add = |all: [u64; 3], one: [u64; 3]| [0, 1, 2].map(|place| all[place] + one[place]);
        Ok(values.into_iter().fold([0; 3], add))
    }
}
