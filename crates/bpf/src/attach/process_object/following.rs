//! Processes that an object is attached to: those that run, and those that start later.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs::File,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use bpfcost_uprobe::{
    probes::{self, Attached, Probes},
    process::{self, Starters, Starts},
};

use super::{
    MOST_KEPT, ObjectEvent, Outcome, Process, ProcessObject, Report, id, mapped,
    mapped::has_program, mappings_of, wrong,
};
use crate::error::{Error, Result};

/// Most searches for further processes.
const LOOKS: u32 = 10;

/// Processes that an object is attached to by [`ProcessObject::probe`].
#[derive(Clone, Copy, Debug)]
pub enum Subjects<'a> {
    /// These processes. Each has to execute a file of a section.
    All(&'a [u32]),
    /// Those of these processes that execute a file of a section: one at least, unless others are followed.
    Any(&'a [u32]),
    /// Processes that start this file from now on: all, or those that descend from one process.
    Starting(&'a Path, Option<u32>),
}

impl ProcessObject {
    /// Attaches all that was loaded to the processes that `list` finds, to each that executes a section's file, and from now
    /// on to their forked children.
    ///
    /// Programs that the starters, or processes that descend from them, start later are stopped until [`Self::wait`] attaches to it,
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
        self.forget_ended(&mut |_| {})?;
        let list = || list().into_iter().map(u32::cast_signed);
        let processes: Vec<i32> = list().collect();
        let (files, _open) = self.files(&processes)?;
        let follows = Starts::is_supported() || processes.is_empty();
        if follows && !files.is_empty() {
            let starters: Vec<i32> = starters.iter().map(|pid| pid.cast_signed()).collect();
            self.stop_starts(&files, &starters)?;
        }
        // Processes that started before their starts were followed, and children that were forked before their parent was
        // attached to, are found by another look.
        let mut known = BTreeSet::new();
        for _ in 0..LOOKS {
            let new: Vec<i32> = list().filter(|pid| known.insert(*pid)).collect();
            if new.is_empty() {
                break;
            }
            for pid in new {
                self.attach_one(pid, &mut |_| {})?;
            }
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
                    "the section of {} names {}, and there is no such file\n  Correct the path, or name the program to \
                     load: FILE.bpf.o:PROGRAM",
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
        let mut refused = None;
        self.wait_for(timeout, &mut |event| {
            if let ObjectEvent::Failed(_, error) = event {
                // A debugger has it, or it hangs in the kernel: of a thousand processes, one may.
                let is_one_of_many = matches!(
                    error,
                    Error::User(probes::Error::Process(
                        process::Error::Traced { .. } | process::Error::Unstoppable { .. },
                    ))
                );
                if !is_one_of_many {
                    refused.get_or_insert_with(|| error.to_string());
                }
            }
        })?;
        refused.map_or(Ok(()), |words| Err(Error::Refused(words)))
    }

    /// The same, with all that happens given to `report`, also records of processes that ended. A process that can't be
    /// attached to counts as a missed call.
    pub fn wait_for(&mut self, timeout: Duration, report: &mut Report<'_>) -> Result<()> {
        let mut left = timeout;
        let mut started = Vec::new();
        for (starts, is_named) in [(&mut self.named_starts, true), (&mut self.starts, false)] {
            if let Some(starts) = starts {
                let new = starts.wait(left).map_err(probes::Error::from)?;
                started.extend(new.into_iter().map(|one| (one, is_named)));
                left = Duration::ZERO;
            }
        }
        if self.named_starts.is_none() && self.starts.is_none() {
            thread::sleep(timeout);
        }
        for (one, is_named) in started {
            let pid = one.pid();
            match self.attach_started(pid, is_named, report) {
                // What it starts may execute one.
                Ok(Outcome::NoFile) if is_named && !self.follows_starts => {
                    let error = self.no_file("it does not execute");
                    report(ObjectEvent::Failed(pid, &error));
                }
                Ok(_) => {}
                Err(error) => {
                    self.ended.missed += 1;
                    report(ObjectEvent::Failed(pid, &error));
                }
            }
        }
        self.end_those(Probes::is_over, report)
    }

    fn attach_started(
        &mut self,
        pid: i32,
        is_named: bool,
        report: &mut Report<'_>,
    ) -> Result<Outcome> {
        if is_named {
            self.follow_descendants(&[pid])?;
        }
        self.attach_one(pid, report)
    }

    /// Detaches from processes that ended together with all forked children that ran the programs. [`Self::wait_for`] does that
    /// of processes without such children; this looks through all processes.
    pub fn detach_ended(&mut self, report: &mut Report<'_>) -> Result<()> {
        self.end_those(Probes::has_ended, report)
    }

    /// Detaches from some processes that ended, and counts what was done there.
    fn end_those(
        &mut self,
        is_over: impl Fn(&Probes, &Attached) -> bool,
        report: &mut Report<'_>,
    ) -> Result<()> {
        let is_over = |process: &mut Process| is_over(&self.probes, &process.attached);
        let over: Vec<Process> = self.attached.extract_if(.., is_over).collect();
        if over.is_empty() {
            return Ok(());
        }
        let pids: BTreeSet<i32> = over.iter().map(|one| one.attached.pid()).collect();
        let mut done = Ok(());
        for process in over {
            done = done.and(self.end(process));
        }
        self.kept += pids.len();
        if !self.keeps_values || self.kept > MOST_KEPT {
            done = done.and(self.forget_ended(report));
            self.forgotten += self.kept as u64;
            self.kept = 0;
        } else {
            done = done.and(self.read(report).map(drop));
        }
        for pid in pids {
            // It may execute another program, which descends from the same starter.
            if let Some(starts) = self.starts.as_ref().filter(|_| !has_program(pid)) {
                starts.remove_starter(pid);
            }
            report(ObjectEvent::Ended(pid));
        }
        done
    }

    /// Attaches all that was loaded to these processes and their forked children, and, unless [`Self::ignore_starts`] was called, to
    /// what descends from them and starts a section's file.
    ///
    /// A process that starts later is stopped until [`Self::wait_for`] attaches to it.
    pub fn probe(&mut self, subjects: Subjects<'_>, report: &mut Report<'_>) -> Result<()> {
        self.keeps_values = self.has_values_of_threads();
        let done = self.probe_all(subjects, report);
        if done.is_err() {
            let _ = self.detach();
        }
        done
    }

    fn probe_all(&mut self, subjects: Subjects<'_>, report: &mut Report<'_>) -> Result<()> {
        match subjects {
            Subjects::All(pids) => {
                let pids: Vec<i32> = pids.iter().map(|pid| pid.cast_signed()).collect();
                self.follow_descendants(&pids)?;
                for pid in pids {
                    match self.attach_one(pid, report)? {
                        Outcome::Attached | Outcome::Known => {}
                        Outcome::NoFile => {
                            return Err(self.no_file(&format!("process {pid} does not execute")));
                        }
                        Outcome::Gone => {
                            return Err(probes::Error::from(process::Error::Gone { pid }).into());
                        }
                    }
                }
                Ok(())
            }
            Subjects::Any(pids) => {
                let mut first = None;
                self.attach_running(pids, &mut |event| {
                    if let ObjectEvent::Failed(pid, error) = event {
                        first.get_or_insert_with(|| (pid, error.to_string()));
                    }
                    report(event);
                })?;
                match first.filter(|_| self.attached.is_empty()) {
                    Some((_, words)) => Err(Error::Refused(words)),
                    // Others may come.
                    None if self.attached.is_empty() && !self.follows_starts => {
                        Err(self.no_file("none of the processes executes"))
                    }
                    None => Ok(()),
                }
            }
            Subjects::Starting(file, starter) => {
                // For its errors: a section's path may lead nowhere.
                self.files(&[])?;
                let starters = starter.map(|pid| [pid.cast_signed()]);
                let whose = match &starters {
                    Some(pids) => Starters::DescendantsOf(pids),
                    None => Starters::All,
                };
                let starts = Starts::new(&[file], whose).map_err(probes::Error::from)?;
                self.named_starts = Some(starts);
                Ok(())
            }
        }
    }

    /// Attaches to those of these processes that execute a section's file, and have it not yet. One that can't be attached to is
    /// reported.
    pub fn attach_running(&mut self, pids: &[u32], report: &mut Report<'_>) -> Result<()> {
        let pids: Vec<i32> = pids.iter().map(|pid| pid.cast_signed()).collect();
        self.follow_descendants(&pids)?;
        for pid in pids {
            if let Err(error) = self.attach_one(pid, report) {
                report(ObjectEvent::Failed(pid, &error));
            }
        }
        Ok(())
    }

    /// From now on, stops what these processes, or those that descend from them, start, if it is a section's file.
    fn follow_descendants(&mut self, pids: &[i32]) -> Result<()> {
        if !self.follows_starts || pids.is_empty() {
            return Ok(());
        }
        if let Some(starts) = &self.starts {
            let mut pids = pids.iter();
            return Ok(pids
                .try_for_each(|pid| starts.add_starter(*pid))
                .map_err(probes::Error::from)?);
        }
        let (files, _open) = self.files(pids)?;
        if files.is_empty() {
            return Ok(());
        }
        self.stop_starts(&files, pids)
    }

    fn stop_starts(&mut self, files: &[PathBuf], starters: &[i32]) -> Result<()> {
        let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        let starts = Starts::new(&files, Starters::DescendantsOf(starters));
        self.starts = Some(starts.map_err(probes::Error::from)?);
        Ok(())
    }

    /// An error about processes that execute nothing of the object. `who` ends with that verb.
    fn no_file(&self, who: &str) -> Error {
        let files: BTreeSet<&str> = self.sections.iter().map(|one| one.file.as_str()).collect();
        let files: Vec<&str> = files.into_iter().collect();
        let words = format!(
            "{who} {}, which the sections name\n  Compare the sections' files with /proc/PID/maps",
            files.join(" or ")
        );
        wrong(&self.path, words)
    }
}
