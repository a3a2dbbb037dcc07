//! An object's programs, and the processes that they are in.

use super::{
    error::{Error, Result},
    store::{Store, Stores, wrong},
    target::Target,
    trace::TraceLine,
    turns::Turns,
    usdt::{SPECS, Specs},
};
use crate::{
    object::{LoadedMap, LoadedObject, LoadedProgram},
    process::{
        self, Attachment, Counts, Function, Hits, Inside, Mapping, Probe, Program, UsdtSite,
    },
    translate::helpers::Environment,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An object whose programs run in user space.
#[derive(Debug)]
pub struct Probes {
    /// Before the object: their memory is mapped from its descriptors. By a number of this value's own, as a process may
    /// have several one after the other: one for each program that it runs.
    pub(super) targets: BTreeMap<u64, Target>,
    /// The latest of each process.
    latest: HashMap<i32, u64>,
    /// The number of the next one.
    next: u64,
    follows_children: bool,
    /// The maps' memory.
    pub(super) stores: Stores,
    pub(super) object: LoadedObject,
    specs: Specs,
}

/// A program at a place of a function.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The program's name.
    pub program: &'a str,
    /// The function.
    pub function: &'a Function,
    /// The point in the function.
    pub at: At,
    /// The result of `bpf_get_attach_cookie` in the program.
    pub cookie: u64,
}

/// Point of a function at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before its first instruction.
    Entry,
    /// Before it returns, wherever it does. The registers are those of the caller, as a kernel's uretprobe has them.
    Return,
    /// Before another of its instructions.
    Inside {
        /// Offset of the instruction in the function.
        offset: u64,
        /// The address of a USDT site's semaphore, which is raised while the program is attached.
        semaphore: Option<u64>,
    },
}

/// The probe of one place.
struct Placed<'a> {
    function: &'a Function,
    entry: Option<Program>,
    returns: Option<Program>,
    inside: Option<Inside>,
}

impl<'a> Placed<'a> {
    fn new(place: &Place<'a>, program: Program) -> Self {
        let inside = match place.at {
            At::Inside { offset, semaphore } => Some(Inside {
                offset,
                program,
                semaphore,
            }),
            At::Entry | At::Return => None,
        };
        Placed {
            function: place.function,
            entry: (place.at == At::Entry).then_some(program),
            returns: (place.at == At::Return).then_some(program),
            inside,
        }
    }

    fn probe(&self) -> Probe<'_> {
        Probe {
            function: self.function,
            entry: self.entry,
            returns: self.returns,
            inside: self.inside.as_slice(),
        }
    }
}

/// Programs that are attached to a process.
#[derive(Debug)]
#[must_use = "they stay attached until this is given to Probes::detach"]
pub struct Attached {
    pid: i32,
    target: u64,
    attachment: Attachment,
}

impl Attached {
    /// The process.
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

impl Probes {
    /// Makes the maps' memory. Nothing is attached yet.
    pub fn new(object: LoadedObject) -> Result<Self> {
        let stores = Stores::create(object.maps())?;
        Ok(Probes::with(object, stores))
    }

    /// For programs and maps of another process, which come later. Where the kernel has a value for each CPU, there is one
    /// for each CPU here too, as that process reads them.
    pub fn for_tool() -> Result<Self> {
        let mut stores = Stores::create(&[])?;
        stores.turns = Some(Turns::create()?);
        Ok(Probes::with(LoadedObject::empty(), stores))
    }

    fn with(object: LoadedObject, stores: Stores) -> Self {
        Probes {
            targets: BTreeMap::new(),
            latest: HashMap::new(),
            next: 0,
            follows_children: false,
            stores,
            object,
            specs: Specs::default(),
        }
    }

    /// Runs that were counted as hits, and did not happen as the values of all CPUs were taken.
    pub(crate) fn without_turn(&self) -> u64 {
        self.stores.turns.as_ref().map_or(0, Turns::missed)
    }

    /// Adds a map that another process has made. Programs name it by its file descriptor.
    pub fn add_map(&mut self, map: LoadedMap) -> Result<()> {
        self.stores.add(&map)?;
        self.object.add_map(map);
        Ok(())
    }

    /// Adds a program, whose name no other one has. Its maps are there.
    pub fn add_program(&mut self, program: LoadedProgram) {
        self.object.add_program(program);
    }

    /// The object.
    pub fn object(&self) -> &LoadedObject {
        &self.object
    }

    /// The cookie for a place of a program at a USDT site, by which `bpf_usdt_arg` and the like find the arguments, and
    /// `bpf_usdt_cookie` finds this cookie. It is this cookie where the program calls none of them.
    pub fn usdt_cookie(&mut self, name: &str, site: &UsdtSite, cookie: u64) -> Result<u64> {
        let programs = self.object.reachable(program(&self.object, name)?)?;
        let maps = self.object.maps().iter().zip(&self.stores.all);
        let uses = |map| programs.iter().any(|program| program.uses(map));
        let specs = maps.filter(|(map, _)| map.name == SPECS && uses(map));
        let Some((map, Some(Store::Array(pages)))) = specs.into_iter().next() else {
            return Ok(cookie);
        };
        let write = |number: u32, spec: &[u8]| pages.write(number as usize * map.stride(), spec);
        let (entries, bytes) = (map.entries, map.value_size);
        let specs = &mut self.specs;
        let number = specs.number(&site.arguments, cookie, entries, bytes, write)?;
        Ok(number.into())
    }

    /// Has forked children of the processes that are attached to from now on run the programs too, and their children.
    /// Their calls are counted with those of the process that was attached to, also after its end; records are in its
    /// ring. What a child executes by `exec` is another program.
    ///
    /// 1,024 children at a time have memory for it; that of children that ended goes to others when [`Self::hits`],
    /// [`Self::counts`], [`Self::consume`] or [`Self::trace`] is called. Calls of children without are missed.
    pub fn follow_children(&mut self) {
        self.follows_children = true;
    }

    /// Attaches programs to functions of a process: all of them, or none. Of programs at the same place, the latest runs
    /// first, as in the kernel, where libbpf attaches them in this order.
    pub fn attach(&mut self, pid: i32, places: &[Place<'_>]) -> Result<Attached> {
        let number = self.target(pid)?;
        let target = self.targets.get_mut(&number).expect("it is there");
        let mut all = Vec::new();
        for place in places {
            let program = program(&self.object, place.program)?;
            let program = target.load(&self.object, &self.stores, program)?;
            all.push(Placed::new(place, program.with_cookie(place.cookie)));
        }
        let probes: Vec<Probe<'_>> = all.iter().map(Placed::probe).collect();
        let attachment = target.runtime.attach(&probes)?;
        target.attachments += 1;
        Ok(Attached {
            pid,
            target: number,
            attachment,
        })
    }

    /// The number of the target that is the process and its program now.
    fn target(&mut self, pid: i32) -> Result<u64> {
        let latest = self.latest.get(&pid).copied();
        let is_there = |number: &u64| self.targets[number].runtime.is_there();
        if let Some(number) = latest.filter(is_there) {
            return Ok(number);
        }
        // The process is new, or it ended and another has its number, or it runs another program.
        let taken: BTreeSet<u32> = self.targets.values().map(|target| target.number).collect();
        let free = (1..Environment::MAX_PROCESSES).find(|number| !taken.contains(number));
        let free = free.ok_or(process::Error::Full { pid })?;
        let target = Target::open(pid, free, self.follows_children, &self.object)?;
        let number = self.next;
        self.next += 1;
        self.targets.insert(number, target);
        self.latest.insert(pid, number);
        Ok(number)
    }

    /// Returns whether the process is there, and runs the program that was attached to.
    pub fn is_there(&self, attached: &Attached) -> bool {
        let target = self.targets.get(&attached.target);
        target.is_some_and(|target| target.runtime.is_there())
    }

    /// Returns whether a process, with what it has mapped, descends by fork from the one that was attached to, after its children
    /// were followed.
    pub fn is_child_of(&self, pid: i32, mappings: &[Mapping], attached: &Attached) -> bool {
        let target = self.targets.get(&attached.target);
        target.is_some_and(|target| target.runtime.is_parent_of(pid, mappings))
    }

    /// Returns whether the process ended, or runs another program than the one that was attached to, and had no children that
    /// ran the programs.
    pub fn is_over(&self, attached: &Attached) -> bool {
        let target = self.targets.get(&attached.target);
        target.is_none_or(|target| !target.runtime.is_there() && target.runtime.children() == 0)
    }

    /// Returns whether the process ended, or runs another program than the one that was attached to, and no child runs the
    /// programs any more. Of a process that had some, this looks through all processes.
    pub fn has_ended(&self, attached: &Attached) -> bool {
        let target = self.targets.get(&attached.target);
        target.is_none_or(|target| !target.runtime.is_there() && !target.runtime.has_children())
    }

    /// Frees what is kept of processes that ended, or run another program, if nothing is attached there and no child may
    /// run the programs: the values of their threads, and records that were not read.
    pub fn forget_ended(&mut self) {
        let before = self.targets.len();
        self.targets.retain(|_, target| {
            target.attachments > 0 || target.runtime.is_there() || target.runtime.has_children()
        });
        if self.targets.len() < before {
            // Before another process has the number.
            self.release_locks(|_| true);
        }
        let targets = &self.targets;
        self.latest.retain(|_, number| targets.contains_key(number));
    }

    /// Puts a program of the object into a slot of an array of programs (`BPF_MAP_TYPE_PROG_ARRAY`), or empties the slot, in
    /// the kernel and in all processes. Tail calls that are made from then on see it.
    ///
    /// Returns what something else changes in the kernel's array is seen when the next program is attached.
    pub fn set_tail_call(&mut self, map: &str, slot: u32, name: Option<&str>) -> Result<()> {
        let (index, _) = self.find(map)?;
        let map = &self.object.maps()[index];
        if !map.is_program_array() {
            return Err(wrong(map, "programs"));
        }
        let new = name.map(|name| program(&self.object, name)).transpose()?;
        let programs = self.object.programs_of(map)?;
        let before = programs.iter().find(|(index, _)| *index == slot);
        map.set_slot(slot, new)?;
        for target in self.targets.values_mut() {
            if !target.runtime.is_there() {
                continue;
            }
            if let Err(error) = target.follow_arrays(&self.object, &self.stores) {
                map.set_slot(slot, before.map(|(_, program)| *program))?;
                for target in self.targets.values_mut() {
                    let _ = target.follow_arrays(&self.object, &self.stores);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Restores the functions. Returns what the probes did, those of all functions together.
    pub fn detach(&mut self, attached: Attached) -> Result<Hits> {
        Ok(sum(&self.restore(attached)?))
    }

    /// Restores the functions. Returns what the program at each place did, as [`Self::counts`] does: no call is between
    /// the counts and the restored functions.
    pub fn detach_counted(&mut self, attached: Attached) -> Result<Vec<Counts>> {
        Ok(self.restore(attached)?.iter().map(all_counts).collect())
    }

    fn restore(&mut self, attached: Attached) -> Result<Vec<Hits>> {
        let Some(target) = self.targets.get_mut(&attached.target) else {
            return Ok(Vec::new());
        };
        target.attachments -= 1;
        Ok(target.runtime.detach(attached.attachment)?)
    }

    /// Returns what the probes did so far.
    pub fn hits(&self, attached: &Attached) -> Hits {
        self.reuse_children();
        let target = self.targets.get(&attached.target);
        target.map_or_else(Hits::default, |target| {
            sum(&target.runtime.hits(&attached.attachment))
        })
    }

    /// Returns what the program at each place did so far, in the order in which they were given to [`Self::attach`].
    pub fn counts(&self, attached: &Attached) -> Vec<Counts> {
        self.reuse_children();
        let target = self.targets.get(&attached.target);
        let places = target.map(|target| target.runtime.hits(&attached.attachment));
        places.iter().flatten().map(all_counts).collect()
    }

    /// Reads the records that the processes' rings have for a map: `take` gets the process and the record. Also releases
    /// what ended processes have locked of tables, as [`Self::trace`] does.
    pub fn consume(&mut self, name: &str, mut take: impl FnMut(i32, &[u8])) -> Result<()> {
        use std::os::fd::AsRawFd as _;
        self.release_stuck_locks();
        self.reuse_children();
        let (_, map) = self.find(name)?;
        let (fd, name) = (map.fd().as_raw_fd(), map.name.clone());
        for target in self.targets.values_mut() {
            let pid = target.runtime.pid();
            target.consume(fd, &name, &mut |record| take(pid, record))?;
        }
        Ok(())
    }

    /// Reads the lines that programs wrote by `bpf_trace_printk` and `bpf_trace_vprintk`, of each process in their order.
    pub fn trace(&mut self, mut take: impl FnMut(&TraceLine<'_>)) -> Result<()> {
        self.release_stuck_locks();
        self.reuse_children();
        let mut targets = self.targets.values_mut();
        targets.try_for_each(|target| target.trace(&mut take))
    }

    /// Returns how many such lines there was no room for.
    pub fn trace_dropped(&self) -> u64 {
        self.targets.values().map(Target::trace_dropped).sum()
    }

    /// Reads the records for all maps that have some: `take` gets the map's number in the kernel, and the record.
    pub(crate) fn consume_all(&mut self, mut take: impl FnMut(u32, &[u8])) -> Result<()> {
        use std::os::fd::AsRawFd as _;
        self.release_stuck_locks();
        self.reuse_children();
        let maps = self.object.maps().iter().filter(|map| map.has_records());
        for map in maps {
            for target in self.targets.values_mut() {
                let mut take = |record: &[u8]| take(map.id, record);
                target.consume(map.fd().as_raw_fd(), &map.name, &mut take)?;
            }
        }
        Ok(())
    }

    pub(super) fn find(&self, name: &str) -> Result<(usize, &LoadedMap)> {
        let maps = self.object.maps();
        // A section's map is named for the object, too.
        let is_it =
            |map: &LoadedMap| map.name == name || map.name.ends_with(name) && name.starts_with('.');
        let index = maps.iter().position(is_it);
        let index = index.ok_or_else(|| Error::NoMap {
            map: name.to_owned(),
            names: maps.iter().map(|map| map.name.clone()).collect(),
        })?;
        Ok((index, &maps[index]))
    }
}

/// Returns what the probes did, those of all functions together.
fn sum(probes: &[Hits]) -> Hits {
    let mut all = Hits::default();
    for hits in probes {
        add(&mut all.entry, hits.entry);
        add(&mut all.returns, hits.returns);
        add(&mut all.inside, hits.inside);
    }
    all
}

/// Counts of the program at one place, wherever in the function that is.
fn all_counts(hits: &Hits) -> Counts {
    let mut counts = hits.entry;
    add(&mut counts, hits.returns);
    add(&mut counts, hits.inside);
    counts
}

fn add(all: &mut Counts, more: Counts) {
    all.hits += more.hits;
    all.missed += more.missed;
}

fn program<'a>(object: &'a LoadedObject, name: &str) -> Result<&'a LoadedProgram> {
    let programs = object.programs();
    let found = programs.iter().find(|program| program.name == name);
    found.ok_or_else(|| Error::NoProgram {
        program: name.to_owned(),
        names: programs.iter().map(|one| one.name.clone()).collect(),
    })
}
