//! A user's BPF object in the processes that it probes: its programs are loaded unchanged, judged by the kernel's
//! verifier, and run where their sections say, without the kernel's trap.

mod contents;
mod counts;
mod event;
mod following;
mod mapped;
mod section;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs,
    path::{Path, PathBuf},
};

use bpfcost_uprobe::{
    object::{self, Choice, LoadedObject, LoadedProgram},
    probes::{self, Attached, Place, Probes},
    process::{self, Image, Mapping, Memory, Starts},
};

use libbpf_rs::MapType;

pub use contents::MapContents;
pub use counts::{ObjectCounts, ProcessCounts, ProgramCounts};
pub use event::{ObjectEvent, Report};
pub use following::Subjects;

use super::BufferCounts;
use crate::{
    error::{Error, Result},
    object::listen,
    typed::ObjectTypes,
};
use mapped::{FileId, id, mapped, mappings_of, unless_gone, while_mapped};
use section::{Found, Section};

/// A user's BPF object, loaded for processes. Dropping it detaches it.
#[derive(Debug)]
pub struct ProcessObject {
    path: PathBuf,
    sections: Vec<Section>,
    /// The object file, for its types.
    bytes: Vec<u8>,
    types: OnceCell<ObjectTypes>,
    /// The ring buffers, by name.
    rings: Vec<String>,
    /// True if programs write lines of text, which count as records.
    writes_lines: bool,
    /// True if what descendants start runs the programs too.
    follows_starts: bool,
    /// Stops descendants that start a section's file.
    starts: Option<Starts>,
    /// Stops processes that start a file that was named.
    named_starts: Option<Starts>,
    attached: Vec<Process>,
    /// The places that were found in a file, by its section's number, with where that file was mapped: none is read twice.
    places: BTreeMap<(usize, FileId), (Mapping, Vec<Found>)>,
    /// Counts by section, of processes that it is not attached to any more.
    ended: ObjectCounts,
    /// True if the threads' values of ended processes are kept.
    keeps_values: bool,
    /// Number of ended processes whose values are kept, and of those whose values no longer are.
    kept: usize,
    forgotten: u64,
    taken: BufferCounts,
    probes: Probes,
}

/// A process that it is attached to.
#[derive(Debug)]
struct Process {
    attached: Attached,
    /// The number of the section of each place that it has there.
    places: Vec<usize>,
}

/// The end of an attempt to attach to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The programs, or more of them, are there now.
    Attached,
    /// All were there already: attached before, or its parent's.
    Known,
    /// The process executes no file of a section.
    NoFile,
    /// The process ended, or executes another program now.
    Gone,
}

/// Number of ended processes whose threads' values are kept, if a map has such values.
const MOST_KEPT: usize = 1000;

impl ProcessObject {
    /// Loads an object, or one program of it alone.
    pub fn load(path: &Path, only: Option<&str>) -> Result<Self> {
        let bytes = fs::read(path)
            .map_err(|error| wrong(path, format!("cannot read it: {error}\n  Check the path")))?;
        listen();
        let named: Vec<&str> = only.into_iter().collect();
        let choice = Choice {
            programs: &named,
            ..Choice::default()
        };
        let object = LoadedObject::from_bytes(&path.display().to_string(), &bytes, &choice);
        let object = object.map_err(|error| match error {
            object::Error::Open { .. } if !is_elf(&bytes) => {
                let words =
                    "it is no BPF object\n  Compile it: clang -O2 -g -target bpf -c FILE.bpf.c";
                wrong(path, words.to_owned())
            }
            other => probes::Error::from(other).into(),
        })?;
        if object.programs().is_empty() {
            let words = match only {
                Some(only) => format!("there is no program {only} in it"),
                None => "there is no program in it".to_owned(),
            };
            return Err(wrong(path, words));
        }
        let mut sections = Vec::new();
        for program in object.programs() {
            let is_in_array = object.is_in_array(program).map_err(probes::Error::from)?;
            // What tail calls lead to need not run anywhere else.
            if is_in_array && !program.section.contains('/') {
                continue;
            }
            let section = Section::parse(&program.name, &program.section);
            sections.push(section.map_err(|words| wrong(path, words))?);
        }
        if sections.is_empty() {
            let words =
                "no section says where a program is to run\n  Write SEC(\"uprobe/FILE:FUNCTION\")";
            return Err(wrong(path, words.to_owned()));
        }
        let writes_lines = object.programs().iter().any(LoadedProgram::writes_lines);
        let rings = object.maps().iter().filter(|map| map.has_records());
        let rings = rings.map(|map| map.name.clone()).collect();
        let mut probes = Probes::new(object)?;
        probes.follow_children();
        Ok(ProcessObject {
            path: path.to_owned(),
            ended: no_counts(&sections),
            sections,
            types: OnceCell::new(),
            bytes,
            rings,
            writes_lines,
            follows_starts: true,
            starts: None,
            named_starts: None,
            attached: Vec::new(),
            places: BTreeMap::new(),
            keeps_values: false,
            kept: 0,
            forgotten: 0,
            taken: BufferCounts::default(),
            probes,
        })
    }

    /// Leaves what descendants start without the programs. Forked children run them, as they have their parent's code.
    pub fn ignore_starts(&mut self) {
        self.follows_starts = false;
    }

    /// The types that the object has for its maps and records.
    pub fn types(&self) -> &ObjectTypes {
        self.types.get_or_init(|| ObjectTypes::read(&self.bytes))
    }

    /// Returns true if programs are attached to a process that runs, or that has forked children that run.
    pub fn is_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    fn has_values_of_threads(&self) -> bool {
        let mut maps = self.probes.object().maps().iter();
        maps.any(|map| {
            matches!(
                map.kind,
                MapType::PercpuArray | MapType::PercpuHash | MapType::LruPercpuHash
            )
        })
    }

    /// Returns of how many ended processes the threads' values are not in the maps any more, if there are maps with such values:
    /// they are dropped whenever more than 1,000 have ended.
    pub fn forgotten(&self) -> u64 {
        if self.keeps_values { self.forgotten } else { 0 }
    }

    /// Attaches what the process has not yet.
    fn attach_one(&mut self, pid: i32, report: &mut Report<'_>) -> Result<Outcome> {
        let attached = self.attached.iter();
        let ours =
            attached.filter(|one| one.attached.pid() == pid && self.probes.is_there(&one.attached));
        let done: BTreeSet<usize> = ours.flat_map(|one| one.places.iter().copied()).collect();
        let all = mappings_of(pid)?;
        if all.is_empty() {
            return Ok(Outcome::Gone);
        }
        let mut found = Vec::new();
        let mut used = Vec::new();
        let mut sections = BTreeSet::new();
        for (number, section) in self.sections.iter().enumerate() {
            let mapping = all.iter().find(|mapping| section.is_of(mapping));
            let Some(mapping) = mapping.filter(|_| !done.contains(&number)) else {
                continue;
            };
            let (first, places) = match self.places.entry((number, id(mapping))) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(free) => {
                    let image = Image::of_file(pid, &mapped(pid, mapping));
                    let Some(image) = while_mapped(pid, &[mapping], image)? else {
                        return Ok(Outcome::Gone);
                    };
                    let places = section.places(&image, &mut self.probes)?;
                    free.insert((mapping.clone(), places))
                }
            };
            let shift = mapping.shift_from(first);
            found.extend(places.iter().map(|place| (number, place.shifted(shift))));
            used.push(mapping);
            sections.insert(number);
        }
        if found.is_empty() {
            return Ok(if done.is_empty() {
                Outcome::NoFile
            } else {
                Outcome::Known
            });
        }
        if let Some(of_parents) = self.inherited(pid, &all, &found)? {
            // It runs its parent's programs. A file that it has loaded since is not probed.
            self.ended.missed += u64::from(!sections.is_subset(&of_parents));
            return Ok(Outcome::Known);
        }
        let places = found.iter().map(|(number, found)| Place {
            program: &self.sections[*number].program,
            function: &found.function,
            at: found.at,
            cookie: found.cookie,
        });
        let places: Vec<Place<'_>> = places.collect();
        let attached = match self.probes.attach(pid, &places) {
            Err(probes::Error::Process(error)) => while_mapped(pid, &used, Err(error))?,
            other => Some(other?),
        };
        let Some(attached) = attached else {
            return Ok(Outcome::Gone);
        };
        for number in &sections {
            self.ended.programs[*number].processes += 1;
        }
        let places = found.iter().map(|(number, _)| *number).collect();
        self.attached.push(Process { attached, places });
        report(ObjectEvent::Attached(pid));
        Ok(Outcome::Attached)
    }

    /// The sections whose programs a forked child has from processes that it descends from. `None` where it has none of
    /// these places from one.
    fn inherited(
        &self,
        pid: i32,
        all: &[Mapping],
        found: &[(usize, Found)],
    ) -> Result<Option<BTreeSet<usize>>> {
        let attached = self.attached.iter();
        let parents = attached.filter(|one| self.probes.is_child_of(pid, all, &one.attached));
        let sections: BTreeSet<usize> = parents.flat_map(|one| one.places.clone()).collect();
        if sections.is_empty() {
            return Ok(None);
        }
        let Some(memory) = unless_gone(pid, Memory::open(pid))? else {
            return Ok(None);
        };
        let is_changed = |(_, found): &(usize, Found)| {
            let checked = found.function.check(&memory);
            matches!(checked, Err(process::Error::Changed { .. }))
        };
        Ok(found.iter().any(is_changed).then_some(sections))
    }

    /// Detaches it from everything. Returns what all programs did.
    pub fn detach(&mut self) -> Result<ProcessCounts> {
        let (counts, done) = self.detach_counted();
        done.map(|()| counts.total())
    }

    /// Detaches it from everything. Returns what each program did, also where a process could not be detached from.
    pub fn detach_counted(&mut self) -> (ObjectCounts, Result<()>) {
        // First, so that no process is stopped any more.
        for starts in [self.starts.take(), self.named_starts.take()] {
            self.ended.missed += starts.map_or(0, |starts| starts.missed());
        }
        let mut done = Ok(());
        for process in std::mem::take(&mut self.attached) {
            done = done.and(self.end(process));
        }
        let counts = std::mem::replace(&mut self.ended, no_counts(&self.sections));
        (counts, done)
    }

    /// Detaches it from a process, and counts what it did there.
    fn end(&mut self, process: Process) -> Result<()> {
        let counts = self.probes.detach_counted(process.attached)?;
        for (number, counts) in process.places.into_iter().zip(counts) {
            self.ended.programs[number].counts.add(ProcessCounts {
                hits: counts.hits,
                missed: counts.missed,
            });
        }
        Ok(())
    }

    /// Frees what is left of processes that ended, once their records are taken.
    fn forget_ended(&mut self, report: &mut Report<'_>) -> Result<()> {
        self.read(report)?;
        let before = self.dropped()?;
        self.probes.forget_ended();
        self.taken.lost += before.saturating_sub(self.dropped()?);
        Ok(())
    }

    /// Returns true if the object has ring buffers, or writes lines of text, which have to be read.
    pub fn has_buffers(&self) -> bool {
        !self.rings.is_empty() || self.writes_lines
    }

    /// Takes what is in its ring buffers, and lines of text; all that was taken, and lost, since it was loaded.
    pub fn take(&mut self) -> Result<BufferCounts> {
        self.read(&mut |_| {})
    }

    /// The same, with each record and line given to `report`.
    pub fn read(&mut self, report: &mut Report<'_>) -> Result<BufferCounts> {
        let records = &mut self.taken.records;
        for map in &self.rings {
            self.probes.consume(map, |pid, bytes| {
                *records += 1;
                report(ObjectEvent::Record { map, pid, bytes });
            })?;
        }
        self.probes.trace(|line| {
            *records += 1;
            report(ObjectEvent::Line(line));
        })?;
        Ok(BufferCounts {
            records: self.taken.records,
            lost: self.taken.lost + self.dropped()?,
        })
    }

    /// The records for which the rings of the processes had no room.
    fn dropped(&self) -> Result<u64> {
        let rings = self.rings.iter();
        let dropped = rings.map(|ring| Ok(self.probes.map(ring)?.dropped()?));
        let records: Result<u64> = dropped.sum();
        Ok(records? + self.probes.trace_dropped())
    }
}

impl Drop for ProcessObject {
    fn drop(&mut self) {
        // A process that is gone has nothing to restore.
        let _ = self.detach();
    }
}

/// Counts of programs that did nothing yet.
fn no_counts(sections: &[Section]) -> ObjectCounts {
    let programs = sections.iter().map(|section| ProgramCounts {
        program: section.program.clone(),
        section: section.text.clone(),
        processes: 0,
        counts: ProcessCounts::default(),
    });
    ObjectCounts {
        programs: programs.collect(),
        missed: 0,
    }
}

fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// An error of what was given, which is one on any machine.
fn wrong(path: &Path, words: String) -> Error {
    Error::UserObject {
        path: path.to_owned(),
        words,
        is_input: true,
    }
}
