//! The journal: what happens in a run, one line of JSON each, written as it happens.
//!
//! The first line is the [`Header`]; each further one an [`Event`], or a [`JournalNote`] of the journal's
//! own. A line is handed to the kernel in one write, so that a kill at any moment loses at most
//! the line under way; reading passes over a last line without an end. A lock on the file (flock)
//! keeps a second process out.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Disturbance, Machine, SCHEMA, journal_error::JournalError};
use bpfcost_measure::{Event, Measurements, Plan, Stop, rounds};

/// The first line: all that decides the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// Version of that program.
    pub bpfcost: String,
    /// Start, RFC 3339 in UTC.
    pub started: String,
    /// All that decides the run.
    pub plan: Plan,
    /// The machine as it was at the start.
    pub machine: Machine,
}

impl Header {
    /// The header of a run that starts now.
    pub fn new(plan: &Plan, started: &str, machine: &Machine) -> Self {
        Header {
            schema: SCHEMA,
            bpfcost: env!("CARGO_PKG_VERSION").to_owned(),
            started: started.to_owned(),
            plan: plan.clone(),
            machine: machine.clone(),
        }
    }

    /// Refuses to continue on another machine or kernel, or where the experiment now declares its
    /// cases otherwise: what was measured before and after would not be one run. `declared` are
    /// the cases of the plan as the experiment has them today.
    pub fn continues(
        &self,
        declared: &[bpfcost_model::Case],
        machine: &Machine,
    ) -> Result<(), JournalError> {
        let of = |m: &Machine| {
            [
                m.cpu.clone(),
                m.kernel.clone(),
                m.kernel_build.clone(),
                m.emulator.clone().unwrap_or_default(),
                m.mitigations.join(", "),
                m.programs.clone().unwrap_or_default(),
            ]
        };
        let (then, now) = (of(&self.machine), of(machine));
        if let Some((then, now)) = then.into_iter().zip(now).find(|(then, now)| then != now) {
            return Err(JournalError::OtherMachine(then, now));
        }
        match self.plan.cases.iter().find(|case| !declared.contains(case)) {
            Some(case) => Err(JournalError::OtherPlan(case.name.clone())),
            None => Ok(()),
        }
    }
}

/// A line of a journal that is no event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JournalNote {
    /// The run was continued.
    Resumed {
        /// When, RFC 3339 in UTC.
        at: String,
    },
    /// The disturbances of this part of the run so far; a later note of the same part replaces it.
    Disturbed(Disturbance),
}

/// The content of a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The first line.
    pub header: Header,
    /// The events, folded.
    pub measured: Measurements,
    /// The disturbances of all parts of the run.
    pub disturbance: Disturbance,
    /// The reason for which the run ended by itself, where only its record was still to be written.
    pub ended: Option<Stop>,
}

impl Contents {
    /// Refuses to continue with epochs of another number of rounds: medians of both have other centres.
    pub fn has_rounds_of(&self, plan: &Plan) -> Result<(), JournalError> {
        let measured = &self.measured;
        let mut then = measured.whole().map(|epoch| measured.rounds(epoch));
        let now = rounds(plan) as usize;
        match then.find(|then| *then > 0) {
            Some(then) if then != now => Err(JournalError::OtherRounds(then, now)),
            _ => Ok(()),
        }
    }
}

/// A journal that this process writes. The lock is held until it is dropped.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Bytes of whole lines.
    length: u64,
}

/// The path of a record's journal: `<OUT>.journal`. The path of a journal is returned as it is.
pub fn journal_path(out: &Path) -> PathBuf {
    if out
        .extension()
        .is_some_and(|extension| extension == "journal")
    {
        return out.to_owned();
    }
    let mut path = out.as_os_str().to_owned();
    path.push(".journal");
    path.into()
}

impl Journal {
    /// Refuses early what [`create`](Self::create) would refuse because a journal is there already, for
    /// a run that knows its machine only after a while.
    pub fn vacant(out: &Path) -> Result<(), JournalError> {
        let path = journal_path(out);
        if path.exists() {
            Err(in_the_way(&path))
        } else {
            Ok(())
        }
    }

    /// Starts the journal of the record `out`. One that is there already is left alone and refused.
    pub fn create(out: &Path, header: &Header) -> Result<Journal, JournalError> {
        let path = journal_path(out);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => in_the_way(&path),
                _ => JournalError::Create(path.clone(), error),
            })?;
        lock(&file, &path)?;
        let mut journal = Journal {
            file,
            path,
            length: 0,
        };
        journal.line(header).inspect_err(|_| {
            // Without its header it would only stand in the way.
            let _ = fs::remove_file(&journal.path);
        })?;
        Ok(journal)
    }

    /// Continues a journal, given by its own path or by that of its record, and cuts off a last
    /// line that was never finished. Why an earlier part stopped is forgotten, but for
    /// [`Contents::ended`].
    pub fn resume(path: &Path, at: &str) -> Result<(Journal, Contents), JournalError> {
        let path = journal_path(path);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| JournalError::read(&path, error))?;
        lock(&file, &path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|error| JournalError::read(&path, error))?;
        let (mut contents, length) = parse(&bytes, &path)?;
        contents.measured.stop = None;
        let mut journal = Journal { file, path, length };
        journal.cut()?;
        journal.line(&JournalNote::Resumed { at: at.to_owned() })?;
        Ok((journal, contents))
    }

    /// Takes over a journal from a process that was killed in the part of the run that began behind `from` bytes; with it,
    /// how many whole lines that part has. Refused where another process goes on with it, or has finished it.
    pub fn take_over(path: &Path, from: u64) -> Result<(Journal, usize), JournalError> {
        let read = |error| JournalError::read(path, error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(read)?;
        lock(&file, path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(read)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        let length = whole.map_or(0, |end| end + 1);
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let part = bytes.get(from..length);
        let lines = part.map(|part| part.split_inclusive(|byte| *byte == b'\n'));
        let resumed = |line| {
            matches!(
                read_line(line),
                Ok(JournalLine::Note(JournalNote::Resumed { .. }))
            )
        };
        let gone_on = lines.clone().is_none_or(|mut lines| lines.any(resumed));
        if gone_on || file.metadata().map_err(read)?.nlink() == 0 {
            return Err(JournalError::Unfinished(path.to_owned()));
        }
        let mut journal = Journal {
            file,
            path: path.to_owned(),
            length: length as u64,
        };
        journal.cut()?;
        Ok((journal, lines.map_or(0, Iterator::count)))
    }

    /// Bytes of whole lines.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The path of the journal.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down what happened. An error means that this event is not in the journal, and that
    /// all before it is.
    pub fn event(&mut self, event: &Event) -> Result<(), JournalError> {
        if let Event::Trial { trial, .. } = event {
            let values = trial.secondary.values();
            // JSON has no such numbers: the line could not be read back.
            if !values
                .chain([&trial.value, &trial.elapsed_ns])
                .all(|v| v.is_finite())
            {
                return Err(JournalError::NotFinite(self.path.clone()));
            }
        }
        self.line(event)
    }

    /// Writes down what disturbed this part of the run so far; worth doing after every epoch.
    pub fn disturbed(&mut self, disturbance: &Disturbance) -> Result<(), JournalError> {
        self.line(&JournalNote::Disturbed(*disturbance))
    }

    /// Removes it, once the finished record is safe.
    pub fn remove(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path).map_err(|error| JournalError::Remove(self.path.clone(), error))
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), JournalError> {
        let written = serde_json::to_vec(value)
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.file.write_all(&line)?;
                Ok(line.len() as u64)
            });
        match written {
            Ok(bytes) => {
                self.length += bytes;
                Ok(())
            }
            Err(error) => {
                // Half a line must not stand before what may come later.
                let _ = self.cut();
                Err(JournalError::write(&self.path, error))
            }
        }
    }

    /// Cuts off what lies behind the last whole line.
    fn cut(&mut self) -> Result<(), JournalError> {
        self.file
            .set_len(self.length)
            .and_then(|()| self.file.seek(SeekFrom::Start(self.length)))
            .map(|_| ())
            .map_err(|error| JournalError::write(&self.path, error))
    }
}

/// Reads a journal without touching it, whether or not a run is writing it.
pub fn read_journal(path: &Path) -> Result<Contents, JournalError> {
    let path = journal_path(path);
    let bytes = fs::read(&path).map_err(|error| JournalError::read(&path, error))?;
    Ok(parse(&bytes, &path)?.0)
}

/// The error for a journal that exists already: another process is writing it, or it was left behind.
fn in_the_way(path: &Path) -> JournalError {
    let busy =
        File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
    let path = path.to_owned();
    if busy {
        JournalError::Busy(path)
    } else {
        JournalError::Unfinished(path)
    }
}

fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(JournalError::Busy(path.to_owned())),
        // Some network file systems have no locks; better unguarded than not at all.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Reads whole lines, and returns their length in bytes.
pub fn parse(bytes: &[u8], path: &Path) -> Result<(Contents, u64), JournalError> {
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let mut lines = bytes[..whole]
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate();
    let damaged = |index: usize, what: String| JournalError::Damaged {
        path: path.to_owned(),
        line: index + 1,
        what,
    };
    let Some((_, first)) = lines.next() else {
        return Err(JournalError::Empty(path.to_owned()));
    };
    let header = header(first, path)?;
    let mut measured = Measurements::new(&header.plan);
    let mut earlier = Disturbance::default();
    let mut this_part = Disturbance::default();
    for (index, line) in lines {
        match read_line(line).map_err(|what| damaged(index, what))? {
            JournalLine::Event(event) => {
                fits(&event, &header.plan, index).map_err(|what| damaged(index, what))?;
                measured.apply(&event);
            }
            JournalLine::Note(JournalNote::Resumed { .. }) => {
                earlier = earlier.merge(this_part);
                this_part = Disturbance::default();
            }
            JournalLine::Note(JournalNote::Disturbed(seen)) => this_part = seen,
        }
    }
    let contents = Contents {
        ended: measured.stop.filter(|stop| *stop != Stop::Interrupted),
        header,
        measured,
        disturbance: earlier.merge(this_part),
    };
    Ok((contents, whole as u64))
}

enum JournalLine {
    Event(Event),
    Note(JournalNote),
}

fn read_line(line: &[u8]) -> Result<JournalLine, String> {
    serde_json::from_slice::<Event>(line)
        .map(JournalLine::Event)
        .or_else(|error| {
            serde_json::from_slice::<JournalNote>(line)
                .map(JournalLine::Note)
                .map_err(|_| error.to_string())
        })
}

/// Reads the first line: its version first, because otherwise what a newer program wrote would look like damage.
fn header(line: &[u8], path: &Path) -> Result<Header, JournalError> {
    #[derive(Deserialize)]
    struct HeaderVersion {
        schema: u32,
        bpfcost: String,
    }
    let damaged = |error: serde_json::Error| JournalError::Damaged {
        path: path.to_owned(),
        line: 1,
        what: error.to_string(),
    };
    let version: HeaderVersion = serde_json::from_slice(line).map_err(damaged)?;
    if version.schema > SCHEMA {
        return Err(JournalError::Newer(
            path.to_owned(),
            version.bpfcost,
            version.schema,
        ));
    }
    if version.bpfcost != env!("CARGO_PKG_VERSION") {
        return Err(JournalError::OtherVersion(path.to_owned(), version.bpfcost));
    }
    serde_json::from_slice(line).map_err(damaged)
}

/// Refuses an event that can't have happened in this plan, such as a bit flipped in a number makes.
fn fits(event: &Event, plan: &Plan, index: usize) -> Result<(), String> {
    let (epoch, case) = match event {
        Event::EpochStarted { epoch, .. }
        | Event::EpochFinished { epoch, .. }
        | Event::Sentinel { epoch, .. } => (Some(*epoch), None),
        Event::Trial { epoch, case, .. } | Event::Invalid { epoch, case, .. } => {
            (Some(*epoch), Some(*case))
        }
        Event::Unsupported { case, .. }
        | Event::Observed { case, .. }
        | Event::Calibrated { case, .. } => (None, Some(*case)),
        Event::Warned(_) | Event::Looked { .. } | Event::Stopped { .. } => (None, None),
    };
    // Every epoch has at least one line.
    if let Some(epoch) = epoch.filter(|epoch| *epoch >= index) {
        return Err(format!("epoch {epoch} can't have come yet"));
    }
    if let Some(case) = case.filter(|case| *case >= plan.cases.len()) {
        return Err(format!("the plan has no case {case}"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/journal.rs"]
mod tests;
