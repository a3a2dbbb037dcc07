//! All processes that execute a file: those that run, and those that start it later.

use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    caller::Caller,
    error::{Error, Result},
    place::{Spot, Whose},
    running::Ready,
    tool::{Report, Tool, ToolEvent},
};
use crate::{
    probes::Attached,
    process::{Memory, Starters, Starts, mappings},
};

/// Processes that start a file are stopped until its programs are there.
#[derive(Debug)]
pub(super) struct Following {
    file: Identity,
    starts: Starts,
}

impl Following {
    /// A file that can be read when a process has started.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.starts.as_fd()
    }
}

/// Device and inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Tool {
    /// Has processes that start a file stop until they are probed, and forked children run what their parents run.
    pub(super) fn follow(&mut self, file: &Path) -> Result<(), String> {
        let identity = identity(file).ok_or("its file is gone")?;
        if self.starts.iter().any(|one| one.file == identity) {
            return Ok(());
        }
        let starts = Starts::new(&[file], Starters::All).map_err(|error| {
            format!(
                "it asks for all processes that execute {}, and those that start it later can't be stopped: {error}\n  \
                 Name one process: --only PID, or the tool's own option",
                file.display()
            )
        })?;
        self.probes.follow_children();
        self.starts.push(Following {
            file: identity,
            starts,
        });
        Ok(())
    }

    /// Has a program run in all processes that execute the files of places. What keeps a process out is reported.
    pub(super) fn attach_all(
        &mut self,
        caller: &Caller,
        program: &Ready,
        spots: &[(Spot, u64)],
        report: &mut Report<'_>,
    ) -> Vec<Attached> {
        let file = spots.first().and_then(|(spot, _)| identity(&spot.path));
        let mut attached = Vec::new();
        let mut known = BTreeSet::new();
        loop {
            let before = attached.len();
            for pid in file.map_or_else(Vec::new, executing) {
                // Not this process and its forks; and not the one that waits for the answer, which can't be stopped.
                if !known.insert(pid)
                    || is_of_this_program(pid)
                    || pid == caller.pid
                    || self.inherits(pid, spots, &attached)
                {
                    continue;
                }
                match self.attach_one(pid, program, spots, report) {
                    Ok(one) => attached.push(one),
                    Err(reason) => self.leave_out(pid, file, &reason, report),
                }
            }
            // Before it was attached to, a process may have forked others.
            if attached.len() == before {
                return attached;
            }
        }
    }

    /// Returns whether a process was forked from one that had the program at these places by then: it has the jumps too.
    fn inherits(&mut self, pid: i32, spots: &[(Spot, u64)], attached: &[Attached]) -> bool {
        let all = mappings(pid).unwrap_or_default();
        let parents = attached.iter();
        let parents = parents.filter(|one| self.probes.is_child_of(pid, &all, one));
        let parents: Vec<i32> = parents.map(Attached::pid).collect();
        let mut code = |pid: i32, spot: &Spot| {
            let function = spot.find(pid, &mut self.images).ok()?.function;
            let memory = Memory::open(pid).ok()?;
            memory.read_vec(function.address, function.code.len()).ok()
        };
        parents.iter().any(|parent| {
            let mut spots = spots.iter();
            spots.all(|(spot, _)| {
                let own = code(pid, spot);
                own.is_some() && own == code(*parent, spot)
            })
        })
    }

    /// Says that a process is not probed, unless it has ended, or has let the file go.
    fn leave_out(
        &mut self,
        pid: i32,
        file: Option<Identity>,
        reason: &str,
        report: &mut Report<'_>,
    ) {
        if file.is_some_and(|file| executes(pid, file)) {
            self.counts.left_out += 1;
            report(ToolEvent::LeftOut { pid, reason });
        }
    }

    /// Attaches to processes that have just started a file.
    pub(super) fn attach_to_started(&mut self, report: &mut Report<'_>) -> Result<()> {
        for index in 0..self.starts.len() {
            let following = &mut self.starts[index];
            let file = following.file;
            let started = following.starts.wait(Duration::ZERO);
            for started in started
                .map_err(crate::probes::Error::from)
                .map_err(Error::from)?
            {
                self.attach_to_one(started.pid(), file, report);
            }
        }
        Ok(())
    }

    /// Attaches all programs that are meant for all processes, and that are not there yet.
    fn attach_to_one(&mut self, pid: i32, file: Identity, report: &mut Report<'_>) {
        for index in 0..self.running.len() {
            let running = &self.running[index];
            let is_of_file = |(spot, _): &(Spot, u64)| identity(&spot.path) == Some(file);
            let mut there = running.attached.iter().filter(|one| one.pid() == pid);
            if running.whose != Whose::All
                || !running.spots.first().is_some_and(is_of_file)
                || there.any(|one| self.probes.is_there(one))
            {
                continue;
            }
            let (program, spots) = (running.program.clone(), running.spots.clone());
            match self.attach_one(pid, &program, &spots, report) {
                Ok(attached) => self.running[index].attached.push(attached),
                Err(reason) => self.leave_out(pid, Some(file), &reason, report),
            }
        }
    }
}

fn identity(file: &Path) -> Option<Identity> {
    let metadata = fs::metadata(file).ok()?;
    Some(Identity(metadata.dev(), metadata.ino()))
}

/// The processes that execute a file.
fn executing(file: Identity) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| executes(*pid, file)).collect()
}

/// Returns whether a process has mapped a file, executable. The device is looked at where it leads to the file: that of a
/// mapping may be another number for the same file system.
fn executes(pid: i32, file: Identity) -> bool {
    let all = mappings(pid).unwrap_or_default();
    let mut mapped = all
        .iter()
        .filter(|one| one.is_executable() && one.inode == file.1);
    mapped.any(|one| {
        let link = format!("/proc/{pid}/map_files/{:x}-{:x}", one.start, one.end);
        identity(&PathBuf::from(link)) == Some(file)
    })
}

/// Returns whether a process is this one, or a fork of it that restores and lets go what this one leaves.
fn is_of_this_program(pid: i32) -> bool {
    let own = std::process::id().cast_signed();
    let program = |pid: i32| identity(Path::new(&format!("/proc/{pid}/exe")));
    pid == own || parent(pid) == Some(own) && program(pid) == program(own)
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}
