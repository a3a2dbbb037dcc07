//! A user's BPF object in the processes that it probes: its programs are loaded unchanged, judged by the kernel's
//! verifier, and run where their sections say, without the kernel's trap.

mod section;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs::{self, File},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use bpfcost_uprobe::{
    object::{Choice, LoadedObject, LoadedProgram},
    probes::{self, Attached, Place, Probes},
    process::{self, Image, Mapping, Memory, Starters, Starts},
};

use super::BufferCounts;
use crate::{
    error::{Error, Result},
    object::listen,
};
use section::{Found, Section};

/// Counts of an object's programs while they were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// Runs of programs.
    pub hits: u64,
    /// Calls without a run: in too many probes already, or no memory left for the thread. A process that started and could
    /// not be stopped, or not be attached to, counts as one.
    pub missed: u64,
}

/// A user's BPF object, loaded for processes. Dropping it detaches it.
#[derive(Debug)]
pub struct ProcessObject {
    path: PathBuf,
    sections: Vec<Section>,
    /// The ring buffers, by name.
    rings: Vec<String>,
    /// True if programs write lines of text, which count as records.
    writes_lines: bool,
    /// Stops processes that start.
    starts: Option<Starts>,
    attached: Vec<Process>,
    /// The places that were found in a file, by its section's number, with where that file was mapped: none is read twice.
    places: BTreeMap<(usize, FileId), (Mapping, Vec<Found>)>,
    /// Counts of processes that it is not attached to any more.
    ended: ProcessCounts,
    taken: BufferCounts,
    probes: Probes,
}

/// A process that it is attached to.
#[derive(Debug)]
struct Process {
    attached: Attached,
    /// The sections that it has there, by their numbers.
    sections: BTreeSet<usize>,
}

/// Most searches for further processes.
const LOOKS: u32 = 10;

/// A file: its device and its inode.
type FileId = (String, u64);

impl ProcessObject {
    /// Loads an object, or one program of it alone.
    pub fn load(path: &Path, only: Option<&str>) -> Result<Self> {
        let bytes =
            fs::read(path).map_err(|error| wrong(path, format!("cannot read it: {error}")))?;
        listen();
        let named: Vec<&str> = only.into_iter().collect();
        let choice = Choice {
            programs: &named,
            ..Choice::default()
        };
        let object = LoadedObject::from_bytes(&path.display().to_string(), &bytes, &choice);
        let object = object.map_err(probes::Error::from)?;
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
        let writes_lines = object.programs().iter().any(LoadedProgram::writes_lines);
        let rings = object.maps().iter().filter(|map| map.is_ring());
        let rings = rings.map(|map| map.name.clone()).collect();
        let mut probes = Probes::new(object)?;
        probes.follow_children();
        Ok(ProcessObject {
            path: path.to_owned(),
            sections,
            rings,
            writes_lines,
            starts: None,
            attached: Vec::new(),
            places: BTreeMap::new(),
            ended: ProcessCounts::default(),
            taken: BufferCounts::default(),
            probes,
        })
    }

    /// Attaches all that was loaded to the processes that `list` finds, to each that executes a section's file, and from now
    /// on to their forked children.
    ///
    /// What the starters, or processes that descend from them, start later is stopped until [`Self::wait`] attaches to it,
    /// but not where this process is in a container's PID namespace. The files are those that the processes execute, and
    /// else those at the sections' paths.
    pub fn attach(&mut self, starters: &[u32], list: impl Fn() -> Vec<u32>) -> Result<()> {
        let done = self.attach_all(starters, list);
        if done.is_err() {
            let _ = self.detach();
        }
        done
    }

    fn attach_all(&mut self, starters: &[u32], list: impl Fn() -> Vec<u32>) -> Result<()> {
        self.forget_ended()?;
        let list = || list().into_iter().map(u32::cast_signed);
        let processes: Vec<i32> = list().collect();
        let (files, _open) = self.files(&processes)?;
        let follows = Starts::is_supported() || processes.is_empty();
        if follows && !files.is_empty() {
            let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
            let starters: Vec<i32> = starters.iter().map(|pid| pid.cast_signed()).collect();
            let whose = Starters::DescendantsOf(&starters);
            self.starts = Some(Starts::new(&files, whose).map_err(probes::Error::from)?);
        }
        // Processes that started before their starts were followed, and children that were forked before their parent was
        // attached to, are found by another look.
        let mut known = BTreeSet::new();
        for _ in 0..LOOKS {
            let new: Vec<i32> = list().filter(|pid| known.insert(*pid)).collect();
            if new.is_empty() {
                break;
            }
            new.into_iter().try_for_each(|pid| self.attach_one(pid))?;
        }
        if self.attached.is_empty() && self.starts.is_none() {
            let names: Vec<&str> = self.sections.iter().map(|one| one.file.as_str()).collect();
            let advice = if files.is_empty() {
                "Compare the sections' files with /proc/PID/maps; for what starts later, give the file's path in the section"
            } else {
                "In a container, only processes that run already are probed: run bpfcost outside of it"
            };
            let words = format!(
                "none of the processes executes {}\n  {advice}",
                names.join(", ")
            );
            return Err(wrong(&self.path, words));
        }
        Ok(())
    }

    /// The files whose starts are followed: as the processes have them mapped, which may be in a container, and else as
    /// the sections have them. The first are paths of these open files: the processes may end.
    fn files(&self, processes: &[i32]) -> Result<(Vec<PathBuf>, Vec<File>)> {
        let mut files = BTreeMap::new();
        let mut mapped_sections = BTreeSet::new();
        for &pid in processes {
            for mapping in mappings_of(pid)?.iter().filter(|one| one.is_executable()) {
                let sections = self.sections.iter().enumerate();
                for (number, _) in sections.filter(|(_, section)| section.is_of(mapping)) {
                    if let Entry::Vacant(free) = files.entry(id(mapping))
                        && let Ok(file) = File::open(mapped(pid, mapping))
                    {
                        free.insert(file);
                    }
                    if files.contains_key(&id(mapping)) {
                        mapped_sections.insert(number);
                    }
                }
            }
        }
        let files: Vec<File> = files.into_values().collect();
        let path = |file: &File| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // What nothing of its own is executed of first can't be followed, and is probed where it is.
        let mut paths: BTreeSet<PathBuf> = files
            .iter()
            .map(path)
            .filter(|path| Starts::can_follow(path))
            .collect();
        for (number, section) in self.sections.iter().enumerate() {
            let Some(path) = section
                .path()
                .filter(|_| !mapped_sections.contains(&number))
            else {
                continue;
            };
            if !path.exists() {
                let words = format!(
                    "the section of {} names {}, and there is no such file\n  Correct the path, or name the programs to \
                     load: user:FILE.bpf.o:PROGRAM",
                    section.program,
                    path.display()
                );
                return Err(wrong(&self.path, words));
            }
            paths.insert(path.to_owned());
        }
        Ok((paths.into_iter().collect(), files))
    }

    /// Attaches to processes that start, and forgets those that ended, for about so long.
    pub fn wait(&mut self, timeout: Duration) -> Result<()> {
        let Some(starts) = &mut self.starts else {
            thread::sleep(timeout);
            return Ok(());
        };
        let mut done = Ok(());
        for started in starts.wait(timeout).map_err(probes::Error::from)? {
            match self.attach_one(started.pid()) {
                // A debugger has it, or it hangs in the kernel: of a thousand processes, one may.
                Err(Error::User(probes::Error::Process(
                    process::Error::Traced { .. } | process::Error::Unstoppable { .. },
                ))) => self.ended.missed += 1,
                other => done = done.and(other),
            }
        }
        let is_over = |process: &mut Process| self.probes.is_over(&process.attached);
        let over: Vec<Process> = self.attached.extract_if(.., is_over).collect();
        if !over.is_empty() {
            for process in over {
                done = done.and(self.end(process));
            }
            done = done.and(self.forget_ended());
        }
        done
    }

    /// Attaches what the process has not yet.
    fn attach_one(&mut self, pid: i32) -> Result<()> {
        let attached = self.attached.iter();
        let ours =
            attached.filter(|one| one.attached.pid() == pid && self.probes.is_there(&one.attached));
        let done: BTreeSet<usize> = ours.flat_map(|one| one.sections.iter().copied()).collect();
        let all = mappings_of(pid)?;
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
                        return Ok(());
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
            return Ok(());
        }
        if let Some(of_parents) = self.inherited(pid, &all, &found)? {
            // It runs its parent's programs. A file that it has loaded since is not probed.
            self.ended.missed += u64::from(!sections.is_subset(&of_parents));
            return Ok(());
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
        let process = attached.map(|attached| Process { attached, sections });
        self.attached.extend(process);
        Ok(())
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
        let sections: BTreeSet<usize> = parents.flat_map(|one| one.sections.clone()).collect();
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

    /// Detaches it from everything.
    pub fn detach(&mut self) -> Result<ProcessCounts> {
        // First, so that no process is stopped any more.
        if let Some(starts) = self.starts.take() {
            self.ended.missed += starts.missed();
        }
        let mut done = Ok(());
        for process in std::mem::take(&mut self.attached) {
            done = done.and(self.end(process));
        }
        let counts = std::mem::take(&mut self.ended);
        done.map(|()| counts)
    }

    /// Detaches it from a process, and counts what it did there.
    fn end(&mut self, process: Process) -> Result<()> {
        let hits = self.probes.detach(process.attached)?;
        for counts in [hits.entry, hits.returns, hits.inside] {
            self.ended.hits += counts.hits;
            self.ended.missed += counts.missed;
        }
        Ok(())
    }

    /// Frees what is left of processes that ended, once their records are taken.
    fn forget_ended(&mut self) -> Result<()> {
        self.take()?;
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
        for ring in &self.rings {
            let taken = &mut self.taken.records;
            self.probes.consume(ring, |_, _| *taken += 1)?;
        }
        self.probes.trace(|_| self.taken.records += 1)?;
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

/// An error of what was given, which is one on any machine.
fn wrong(path: &Path, words: String) -> Error {
    Error::UserObject {
        path: path.to_owned(),
        words,
        is_input: true,
    }
}

fn id(mapping: &Mapping) -> FileId {
    (mapping.device.clone(), mapping.inode)
}

/// The mapped file itself, also where its path leads to another one here.
fn mapped(pid: i32, mapping: &Mapping) -> PathBuf {
    let Mapping { start, end, .. } = mapping;
    format!("/proc/{pid}/map_files/{start:x}-{end:x}").into()
}

/// Lists a process's mappings; none if it is gone.
fn mappings_of(pid: i32) -> Result<Vec<Mapping>> {
    Ok(unless_gone(pid, process::mappings(pid))?.unwrap_or_default())
}

/// `None` where the process is gone, or has one of these mappings no more: a forked child that executes its own program
/// since, or a library that was unloaded.
fn while_mapped<T>(pid: i32, used: &[&Mapping], result: process::Result<T>) -> Result<Option<T>> {
    if result.is_err() {
        let all = mappings_of(pid)?;
        let place = |one: &Mapping| (one.start, id(one));
        let is_there = |one: &&Mapping| all.iter().any(|other| place(other) == place(one));
        if !used.iter().all(is_there) {
            return Ok(None);
        }
    }
    unless_gone(pid, result)
}

/// `None` where the process is gone: it calls nothing any more. What fails then depends on what it was in.
fn unless_gone<T>(pid: i32, result: process::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(process::Error::NoProcess { .. } | process::Error::Gone { .. }) => Ok(None),
        Err(_) if !Path::new(&format!("/proc/{pid}/exe")).exists() => Ok(None),
        Err(error) => Err(probes::Error::from(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_while_the_files_are_mapped() {
        let pid = std::process::id().cast_signed();
        let all = mappings_of(pid).expect("our own");
        let code = |one: &&Mapping| one.is_executable() && one.inode > 0;
        let here = all.iter().find(code).expect("our code");
        let failed = || Err::<(), _>(process::Error::Full { pid });
        assert!(while_mapped(pid, &[here], failed()).is_err());
        let mut moved = here.clone();
        moved.start += 1;
        let known = while_mapped(pid, &[here, &moved], failed());
        assert!(matches!(known, Ok(None)), "another program's, by now");
    }
}
