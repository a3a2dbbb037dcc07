//! An object in one process: its maps, its helpers and its programs.

use super::{
    arena, environment,
    error::{Error, Result},
    helpers::Helpers,
    layout::Layout,
    ring::Ring,
    store::{self, Store, Stores, values_in_array, values_in_table},
    tail_calls::ProgramTable,
    trace::{self, TraceLine},
    turns::{self, Turns},
};
use crate::{
    object::{LoadedMap, LoadedObject, LoadedProgram},
    process::{self, Memory, Program, Runtime, Shared},
    translate::{
        ArrayPlace, Backend as _, MachineCode, MapPlace, Translator, helpers::MapDescriptor,
        most_stack,
    },
};
use std::{
    collections::{BTreeMap, HashMap},
    os::fd::AsRawFd as _,
};

/// The most bytes of a program's machine code: 1 million instructions are the verifier's limit, and some 10,000 what
/// programs have.
const MAX_CODE: usize = 192 << 10;

/// The most bytes of stack for programs that call each other by tail calls: half of what a probe has. The rest is for helpers,
/// and for signals that interrupt the probe.
const MAX_STACK: u32 = 40 << 10;

/// A process, and what an object has there.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) runtime: Runtime,
    /// The number by which locks of tables name it.
    pub(super) number: u32,
    /// Number of attachments.
    pub(super) attachments: usize,
    /// True if programs that read memory need a guard, which is not installed yet.
    lacks_guard: bool,
    helpers: Helpers,
    /// Maps by their descriptors.
    maps: BTreeMap<i32, Placed>,
    /// The ring for lines of text, and its descriptor's address, if a program writes some.
    trace: Option<(Ring, u64)>,
    /// The programs by name.
    programs: HashMap<String, Loaded>,
    /// The address of who has the values of CPUs, if a program uses some.
    turns: Option<u64>,
}

/// A map in the process.
#[derive(Debug)]
struct Placed {
    place: MapPlace,
    own: Own,
}

/// A program in the process.
#[derive(Debug)]
struct Loaded {
    address: u64,
    code: MachineCode,
    /// The address at which the program is entered with the values of a CPU, if it or one that it reaches uses some.
    in_turn: Option<u64>,
}

/// Memory of a map that this process has for itself.
#[derive(Debug)]
enum Own {
    /// Nothing.
    Nothing,
    /// A value of each thread, from here on in its memory.
    Threads(u64),
    /// A ring.
    Ring(Ring),
    /// The addresses of programs.
    Programs(ProgramTable),
}

impl Target {
    /// A process without programs yet, with a number among those that share the maps' memory.
    pub(super) fn open(
        pid: i32,
        number: u32,
        follows_children: bool,
        object: &LoadedObject,
    ) -> Result<Self> {
        let mut runtime = Runtime::open(pid)?;
        let denied = runtime.denied();
        // A filter of system calls could end a child that takes its memory.
        if follows_children && denied.follow.is_none() {
            runtime.follow_children()?;
        }
        let mut environment = environment::for_process(pid, &Memory::open(pid)?)?;
        environment.thread_word = runtime.thread_word();
        environment.areas = runtime.control_pages();
        environment.process = number;
        environment.denies_reads = denied.read.is_some();
        environment.yields = denied.ask.is_none();
        let helpers = Helpers::load(&mut runtime, environment, object)?;
        Ok(Target {
            runtime,
            number,
            attachments: 0,
            lacks_guard: helpers.need_guard(),
            helpers,
            maps: BTreeMap::new(),
            trace: None,
            programs: HashMap::new(),
            turns: None,
        })
    }

    /// Puts a program there, with the maps that it uses and the programs that it reaches by tail calls, unless they are there.
    pub(super) fn load(
        &mut self,
        object: &LoadedObject,
        stores: &Stores,
        program: &LoadedProgram,
    ) -> Result<Program> {
        let all = object.reachable(program)?;
        for one in &all {
            self.load_one(object, stores, one)?;
        }
        if all.iter().any(|one| one.makes_tail_calls()) {
            let codes = all.iter().map(|one| &self.programs[&one.name].code);
            let bytes = most_stack(codes);
            if bytes > MAX_STACK {
                return Err(Error::TailCallStack {
                    program: program.name.clone(),
                    bytes,
                    most: MAX_STACK,
                });
            }
            self.fill_tables(object)?;
        }
        let uses_cpus = |one: &&LoadedProgram| stores.are_of_cpus_in(object, one);
        let address = match &stores.turns {
            Some(turns) if all.iter().any(uses_cpus) => self.enter_in_turn(&program.name, turns)?,
            _ => self.programs[&program.name].address,
        };
        Ok(Program { address, cookie: 0 })
    }

    /// The address at which a program is entered with the values of a CPU.
    fn enter_in_turn(&mut self, name: &str, turns: &Turns) -> Result<u64> {
        if let Some(known) = self.programs[name].in_turn {
            return Ok(known);
        }
        let turns = match self.turns {
            Some(known) => known,
            None => self.runtime.share(&[store::share(turns.memory())])?[0],
        };
        self.turns = Some(turns);
        let (program, run) = (self.programs[name].address, self.helpers.run_in_turn());
        let entry = |at| turns::entry(at, run, program, turns);
        let entry = self.runtime.load(turns::ENTRY, entry)?;
        self.programs.get_mut(name).expect("it is there").in_turn = Some(entry);
        Ok(entry)
    }

    /// Returns what the kernel's arrays of programs hold now, for the programs that are here.
    pub(super) fn follow_arrays(&mut self, object: &LoadedObject, stores: &Stores) -> Result<()> {
        let here = |one: &&LoadedProgram| self.programs.contains_key(&one.name);
        let here: Vec<&LoadedProgram> = object.programs().iter().filter(here).collect();
        for program in here {
            self.load(object, stores, program)?;
        }
        Ok(())
    }

    /// Writes the addresses of programs into the tables for tail calls. Those that are not here are of an array that no
    /// program uses yet.
    fn fill_tables(&mut self, object: &LoadedObject) -> Result<()> {
        for map in object.maps().iter().filter(|map| map.is_program_array()) {
            let fd = map.fd().as_raw_fd();
            let placed = self.maps.get(&fd).map(|placed| &placed.own);
            let Some(Own::Programs(table)) = placed else {
                continue;
            };
            let mut addresses = vec![0; map.entries as usize];
            for (slot, program) in object.programs_of(map)? {
                let loaded = self.programs.get(&program.name);
                addresses[slot as usize] =
                    loaded.map_or(0, |one| one.address + u64::from(one.code.tail_entry));
            }
            if table.addresses() == addresses {
                continue;
            }
            // Threads may be about to jump there.
            if self.attachments > 0 {
                self.runtime.write_loaded()?;
            }
            table.set(&addresses);
        }
        Ok(())
    }

    fn load_one(
        &mut self,
        object: &LoadedObject,
        stores: &Stores,
        program: &LoadedProgram,
    ) -> Result<()> {
        if self.programs.contains_key(&program.name) {
            return Ok(());
        }
        let wrong = |source| Error::Translate {
            program: program.name.clone(),
            source,
        };
        self.check_calls(object, program)?;
        self.place(object, stores, program)?;
        if self.lacks_guard && self.helpers.are_readers_in(program) {
            self.runtime.install_guard()?;
            self.lacks_guard = false;
        }
        if self.trace.is_none() && program.writes_lines() {
            self.trace = Some(self.make_trace()?);
        }
        let layout = Layout {
            object,
            place: &|fd| Some(self.maps.get(&fd)?.place),
            trace_ring: self.trace.as_ref().map(|(_, handle)| *handle),
        };
        let helpers = self.helpers.table();
        let mut code = None;
        let address = self.runtime.load(MAX_CODE, |at| {
            let translator = Translator::of_this_machine();
            let translated = translator.translate(&program.program(), at, helpers, &layout);
            let translated = code.insert(translated.map_err(wrong)?);
            Ok::<_, Error>(std::mem::take(&mut translated.bytes))
        })?;
        let code = code.expect("it was translated");
        let loaded = Loaded {
            address,
            code,
            in_turn: None,
        };
        self.programs.insert(program.name.clone(), loaded);
        Ok(())
    }

    fn make_trace(&mut self) -> Result<(Ring, u64)> {
        let ring = Ring::create(trace::RING_BYTES)?;
        let at = self.runtime.share(&[store::share_ring(&ring)])?[0];
        let descriptor = ring.descriptor(at).to_bytes().to_vec();
        let handle = self.runtime.load(MapDescriptor::BYTES, |_| {
            Ok::<_, process::Error>(descriptor)
        })?;
        Ok((ring, handle))
    }

    /// The lines that programs wrote.
    pub(super) fn trace(&mut self, take: &mut dyn FnMut(&TraceLine<'_>)) -> Result<()> {
        let (pid, is_over) = (self.runtime.pid(), !self.runtime.is_there());
        let Some((ring, _)) = &mut self.trace else {
            return Ok(());
        };
        let mut take = |record: &[u8]| {
            if let Some(line) = TraceLine::parse(pid, record) {
                take(&line);
            }
        };
        let read = ring.consume(is_over, &mut take);
        read.map_err(|error| error.in_ring("of bpf_trace_printk", pid))
    }

    /// Returns how many lines there was no room for.
    pub(super) fn trace_dropped(&self) -> u64 {
        self.trace.as_ref().map_or(0, |(ring, _)| ring.dropped())
    }

    /// The records of a map's ring.
    pub(super) fn consume(
        &mut self,
        map: i32,
        name: &str,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let pid = self.runtime.pid();
        let Some(Placed {
            own: Own::Ring(ring),
            ..
        }) = self.maps.get_mut(&map)
        else {
            return Ok(());
        };
        let is_over = !self.runtime.is_there();
        ring.consume(is_over, take)
            .map_err(|error| error.in_ring(name, pid))
    }

    /// Returns how many records a ring had no room for.
    pub(super) fn dropped(&self, map: i32) -> u64 {
        match self.maps.get(&map).map(|placed| &placed.own) {
            Some(Own::Ring(ring)) => ring.dropped(),
            _ => 0,
        }
    }

    /// Bytes of each thread's memory for a map, so far from its beginning.
    pub(super) fn thread_bytes(&self, map: i32, offset: usize, bytes: usize) -> Vec<Vec<u8>> {
        let Some(Own::Threads(start)) = self.maps.get(&map).map(|placed| &placed.own) else {
            return Vec::new();
        };
        self.runtime.thread_memory(start + offset as u64, bytes)
    }

    fn take_thread_memory(&mut self, map: &str, bytes: u64) -> Result<(u64, u64)> {
        let taken = self.runtime.take_thread_memory(bytes);
        taken.map_err(|error| match error {
            process::Error::ThreadMemory { bytes, left, .. } => Error::ThreadMemory {
                map: map.to_owned(),
                bytes,
                left,
            },
            other => other.into(),
        })
    }

    /// Gives all threads a value at an index.
    pub(super) fn set_thread_values(&self, map: i32, array: ArrayPlace, index: u32, value: &[u8]) {
        if let Some(Own::Threads(start)) = self.maps.get(&map).map(|placed| &placed.own) {
            let at = start + u64::from(index) * array.stride();
            self.runtime.set_thread_memory(at, value);
        }
    }

    /// An error where a helper, or an arena, makes a system call that a filter may answer with the process's death.
    fn check_calls(&self, object: &LoadedObject, program: &LoadedProgram) -> Result<()> {
        let denied = self.runtime.denied();
        if let Some(call) = denied.ask {
            arena::check_calls(object, program, call, self.runtime.pid())?;
        }
        match self.helpers.denied_in(program, denied) {
            None => Ok(()),
            Some((helper, call)) => Err(Error::Seccomp {
                program: program.name.clone(),
                helper,
                call,
                pid: self.runtime.pid(),
            }),
        }
    }

    /// Maps what a program uses into the process.
    fn place(
        &mut self,
        object: &LoadedObject,
        stores: &Stores,
        program: &LoadedProgram,
    ) -> Result<()> {
        let missing: Vec<_> = object
            .maps()
            .iter()
            .zip(&stores.all)
            .filter_map(|(map, store)| {
                let fd = map.fd().as_raw_fd();
                let is_missing = program.uses(map) && !self.maps.contains_key(&fd);
                Some((fd, map, store.as_ref().filter(|_| is_missing)?))
            })
            .collect();
        let mut rings = HashMap::new();
        let mut tables = HashMap::new();
        for (fd, map, store) in &missing {
            match store {
                Store::Ring => drop(rings.insert(*fd, Ring::for_map(map)?)),
                Store::Programs => drop(tables.insert(*fd, ProgramTable::create(map.entries)?)),
                _ => {}
            }
        }
        let shared: Vec<(i32, Shared<'_>)> = missing
            .iter()
            .filter_map(|(fd, map, store)| {
                let shared = match store {
                    Store::Array(pages) => Shared {
                        file: map.fd(),
                        bytes: pages.length() as u64,
                        is_read_only: map.is_read_only,
                        again_from: None,
                        at: None,
                    },
                    Store::Arena(pages) => Shared {
                        file: map.fd(),
                        bytes: pages.length() as u64,
                        is_read_only: false,
                        again_from: None,
                        at: map.arena.map(|arena| arena.start),
                    },
                    Store::Table(table) | Store::ThreadTable(table) | Store::CpuTable(table) => {
                        store::share(table.memory())
                    }
                    Store::Stacks(memory) | Store::Cpus(memory) => store::share(memory),
                    Store::Ring => store::share_ring(&rings[fd]),
                    Store::Programs => Shared {
                        is_read_only: true,
                        ..store::share(tables[fd].memory())
                    },
                    Store::Threads => return None,
                };
                Some((*fd, shared))
            })
            .collect();
        let (fds, files): (Vec<i32>, Vec<Shared<'_>>) = shared.into_iter().unzip();
        let addresses = self.runtime.share(&files);
        let addresses = addresses.map_err(|error| arena::taken(error, object))?;
        let bytes = files.iter().map(Shared::mapped);
        let mapped: Vec<(u64, u64)> = addresses.into_iter().zip(bytes).collect();
        let mapped: HashMap<i32, (u64, u64)> = fds.into_iter().zip(mapped).collect();
        let placed = self.describe(missing, &mapped, rings, tables);
        if placed.is_err() {
            // The next attempt maps them again, an arena at the same address.
            let left = mapped.iter().filter(|(fd, _)| !self.maps.contains_key(*fd));
            let left: Vec<_> = left.map(|(_, &range)| range).collect();
            let _ = self.runtime.unshare(&left);
        }
        placed
    }

    /// Makes the descriptors of maps whose memory has been mapped, at addresses, with so many bytes.
    fn describe(
        &mut self,
        missing: Vec<(i32, &LoadedMap, &Store)>,
        mapped: &HashMap<i32, (u64, u64)>,
        mut rings: HashMap<i32, Ring>,
        mut tables: HashMap<i32, ProgramTable>,
    ) -> Result<()> {
        for (fd, map, store) in missing {
            let (at, _) = mapped.get(&fd).copied().unwrap_or_default();
            let values = ArrayPlace {
                values: at,
                value_size: map.value_size,
                entries: map.entries,
            };
            let arena = map
                .arena
                .map(|arena| arena::place(&mut self.runtime, arena))
                .transpose()?;
            let (descriptor, own) = match store {
                Store::Array(_) => (MapDescriptor::array(values), Own::Nothing),
                // No helper takes one.
                Store::Arena(_) => (MapDescriptor::array(values), Own::Nothing),
                Store::Table(table) => (table.descriptor(at), Own::Nothing),
                Store::CpuTable(table) => (table.descriptor(at), Own::Nothing),
                Store::Cpus(_) => {
                    let bytes = values_in_array(map) as u64;
                    (MapDescriptor::cpu_array(values, bytes), Own::Nothing)
                }
                Store::ThreadTable(table) => {
                    let bytes = values_in_table(table.shape()) as u64;
                    let (start, from_control) = self.take_thread_memory(&map.name, bytes)?;
                    let descriptor = table.descriptor(at).with_values(from_control);
                    (descriptor, Own::Threads(start))
                }
                Store::Stacks(_) => {
                    let stacks = MapDescriptor::stacks(at, map.value_size, map.entries);
                    (stacks, Own::Nothing)
                }
                Store::Ring => {
                    let ring = rings.remove(&fd).expect("it was just made");
                    (ring.descriptor(at), Own::Ring(ring))
                }
                Store::Programs => {
                    let table = tables.remove(&fd).expect("it was just made");
                    let descriptor = MapDescriptor::programs(at, map.entries);
                    (descriptor, Own::Programs(table))
                }
                Store::Threads => {
                    let bytes = values.stride() * u64::from(map.entries);
                    let (start, from_control) = self.take_thread_memory(&map.name, bytes)?;
                    let place = ArrayPlace {
                        values: from_control,
                        ..values
                    };
                    (MapDescriptor::thread_array(place), Own::Threads(start))
                }
            };
            let handle = self.runtime.load(MapDescriptor::BYTES, |_| {
                Ok::<_, process::Error>(descriptor.to_bytes().to_vec())
            })?;
            let array = matches!(store, Store::Array(_)).then_some(values);
            let place = MapPlace {
                handle,
                array,
                arena,
            };
            self.maps.insert(fd, Placed { place, own });
        }
        Ok(())
    }
}
