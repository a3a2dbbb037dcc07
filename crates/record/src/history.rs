//! The sessions that a machine has measured, as far as `compare` learns from them how much sessions differ there:
//! when each began, and what its cases cost. They are kept in the user's state folder (XDG Base Directory
//! Specification), apart from records, which people move and delete.

use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
};

use bpfcost_stats::session_spread::Level;
use serde::{Deserialize, Serialize};

use crate::{
    Machine, Record,
    file::{FileError, replace},
    off::against_off,
    reading::Reading,
    time::seconds,
};
use bpfcost_measure::Stop;
use bpfcost_model::Role;

/// The sessions that are kept of a series: older ones go.
const MAX_SESSIONS: usize = 100;

/// The version of the file's form.
const SCHEMA: u32 = 1;

/// The file that keeps them, by machine.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionHistory {
    path: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct HistoryContent {
    schema: u32,
    /// Sessions by CPU and kernel, in the order in which they ended.
    machines: BTreeMap<String, Vec<StoredSession>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredSession {
    /// When it began, RFC 3339 in UTC.
    started: String,
    /// A hash of the programs and the workload: sessions of one series measured the same.
    series: String,
    /// True if it was of a workload: then a level is what a probe leaves of a server's speed, not a cost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    workload: bool,
    /// The undisturbed cost of the anchor, as a multiple of the sentinel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anchor: Option<f64>,
    /// The level of each case, as found.
    levels: BTreeMap<String, f64>,
    /// The undisturbed level of each case that has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    undisturbed: BTreeMap<String, f64>,
}

/// The levels of a case in the sessions of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseLevels {
    /// The series, a hash of what was measured with which programs: in other series, other things have the name of this
    /// case.
    pub series: String,
    /// The case's name.
    pub case: String,
    /// The case's level in each session.
    pub levels: Vec<Level>,
}

impl AsRef<[Level]> for CaseLevels {
    fn as_ref(&self) -> &[Level] {
        &self.levels
    }
}

impl SessionHistory {
    /// A file at that path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        SessionHistory { path: path.into() }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The levels that the machine of a record has measured so far of that record's kind: each case of each series.
    pub fn levels(&self, record: &Record, reading: Reading) -> Result<Vec<CaseLevels>, FileError> {
        let mut content = self.read()?;
        let sessions = content.machines.remove(&key(&record.machine));
        let workload = record.layout.times_windows();
        let mut lists: BTreeMap<(String, String), Vec<Level>> = BTreeMap::new();
        for session in sessions.unwrap_or_default() {
            if session.workload != workload {
                continue;
            }
            let began_s = seconds(&session.started);
            let levels = match reading {
                Reading::AsFound => session.levels,
                Reading::Undisturbed => session.undisturbed,
            };
            for (case, value) in levels {
                let list = lists.entry((session.series.clone(), case)).or_default();
                list.push(Level { began_s, value });
            }
        }
        let named = lists.into_iter();
        Ok(named
            .map(|((series, case), levels)| CaseLevels {
                series,
                case,
                levels,
            })
            .collect())
    }

    /// The cost of the anchor on a machine at rest: the lowest on which two sessions agree within 1 %, or else the lowest.
    /// `None` before the first session.
    pub fn anchor(&self, machine: &Machine) -> Result<Option<f64>, FileError> {
        let mut content = self.read()?;
        let sessions = content.machines.remove(&key(machine)).unwrap_or_default();
        let mut anchors: Vec<f64> = sessions.iter().filter_map(|one| one.anchor).collect();
        anchors.sort_by(f64::total_cmp);
        let twice = anchors.windows(2).find(|two| two[1] <= two[0] * 1.01);
        Ok(twice.map(|two| two[0]).or(anchors.first().copied()))
    }

    /// Adds to a record how far the sessions before it differed, and then keeps it as one of them.
    pub fn continues_with(&self, record: &mut Record) -> Result<(), FileError> {
        let levels = [Reading::AsFound, Reading::Undisturbed].map(|one| self.levels(record, one));
        let [found, undisturbed] = levels;
        let (found, undisturbed) = (found?, undisturbed?);
        record.state_spreads(|reading| match reading {
            Reading::AsFound => found.clone(),
            Reading::Undisturbed => undisturbed.clone(),
        });
        self.keep(record)
    }

    /// Stores a session that came to its end. Counts repeat, so their sessions are not stored.
    pub fn keep(&self, record: &Record) -> Result<(), FileError> {
        let session = StoredSession {
            started: record.started.clone(),
            series: series(record),
            workload: record.layout.times_windows(),
            anchor: record.spread.anchor,
            levels: levels(record, Reading::AsFound),
            undisturbed: levels(record, Reading::Undisturbed),
        };
        // One that was ended early because of what it cost is not like the others.
        let whole = !matches!(record.stop, Stop::Interrupted | Stop::Aborted);
        if !whole || record.unit.is_counted() || session.levels.is_empty() {
            return Ok(());
        }
        let mut content = match self.read() {
            // What can't be read is only a cache: it begins anew.
            Err(FileError::Damaged { .. } | FileError::NotARecord(..)) => HistoryContent::default(),
            content => content?,
        };
        content.schema = SCHEMA;
        let sessions = content.machines.entry(key(&record.machine)).or_default();
        // The same again, from a run whose record could not be written at first.
        sessions.retain(|one| (&one.started, &one.series) != (&session.started, &session.series));
        let of_series = |one: &&StoredSession| one.series == session.series;
        let too_many = (sessions.iter().filter(of_series).count() + 1).saturating_sub(MAX_SESSIONS);
        for _ in 0..too_many {
            let oldest = sessions.iter().position(|one| one.series == session.series);
            oldest.map(|at| sessions.remove(at));
        }
        sessions.push(session);
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)
                .map_err(|source| FileError::Write(self.path.clone(), source))?;
        }
        replace(&self.path, |file| {
            serde_json::to_writer(&mut *file, &content)?;
            file.write_all(b"\n")
        })
    }

    fn read(&self) -> Result<HistoryContent, FileError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(HistoryContent::default());
            }
            Err(source) => {
                return Err(FileError::Read(self.path.clone(), source));
            }
        };
        let content: HistoryContent = serde_json::from_slice(&bytes)
            .map_err(|error| super::file::error_at(&error, &self.path))?;
        if content.schema > SCHEMA {
            return Err(FileError::Newer(
                self.path.clone(),
                "unknown version".to_owned(),
                content.schema,
            ));
        }
        Ok(content)
    }
}

/// The level of each case in a session: its cost, or of a workload the ratio to the case without a probe, which is
/// what sessions are compared by.
pub(super) fn levels(record: &Record, reading: Reading) -> BTreeMap<String, f64> {
    let is_ratio = record.layout.times_windows() && reading == Reading::AsFound;
    let level = |case: &super::CaseRecord| match is_ratio {
        true => Some(1.0 + against_off(record, &case.name)?.relative),
        false => case.level(reading),
    };
    let cases = record.cases.iter().filter(|case| case.role == Role::Case);
    let named = cases.filter_map(|case| Some((case.name.clone(), level(case)?)));
    named.filter(|(_, value)| value.is_finite()).collect()
}

/// When a record's session began, in seconds since 1970; NaN where it does not say.
pub(super) fn began_s(record: &Record) -> f64 {
    seconds(&record.started)
}

/// A hash of what was measured, and with which programs. Only sessions of one series show the spread between sessions.
pub(super) fn series(record: &Record) -> String {
    let mut hasher = DefaultHasher::new();
    // The names and descriptions of a workload's variants, and of its server: a user's own go by any name. If
    // another version hashes otherwise, a new series begins.
    serde_json::to_string(&record.layout)
        .unwrap_or_default()
        .hash(&mut hasher);
    record.machine.programs.hash(&mut hasher);
    let asked = &record.asked;
    (asked.quick, asked.cpus.len()).hash(&mut hasher);
    format!(
        "{} on {} {:016x}",
        record.experiment,
        record.target,
        hasher.finish()
    )
}

/// Sessions differ by what the CPU and the kernel make of the time; both name a machine here.
fn key(machine: &Machine) -> String {
    format!("{} | {}", machine.cpu, machine.kernel)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::samples::record;

    fn on(cpu: &str, started: &str, factor: f64) -> Record {
        let mut record = record(8);
        record.machine.cpu = cpu.to_owned();
        record.started = started.to_owned();
        for case in &mut record.cases {
            if let Some(raw) = &mut case.raw {
                raw.value *= factor;
            }
        }
        record
    }

    #[test]
    fn each_machine_keeps_its_own() {
        let folder = TempDir::new().unwrap();
        let file = SessionHistory::at(folder.path().join("a/b/sessions.json"));
        let (first, second) = ("2026-11-24T00:00:00Z", "2026-11-24T00:01:00Z");
        let one = on("x", first, 1.0);
        assert_eq!(file.levels(&one, Reading::AsFound).unwrap(), []);
        file.keep(&one).unwrap();
        file.keep(&on("y", first, 3.0)).unwrap();
        file.keep(&on("x", second, 1.1)).unwrap();
        let kept = file.levels(&one, Reading::AsFound).unwrap();
        let cases = levels(&one, Reading::AsFound);
        assert_eq!(kept.len(), cases.len());
        for (list, level) in kept.iter().zip(cases.values()) {
            let list = &list.levels;
            assert_eq!(list.len(), 2, "those of another machine are not among them");
            assert_eq!(list[1].began_s - list[0].began_s, 60.0);
            assert!((list[0].value - level).abs() < 1e-9);
            assert!((list[1].value / list[0].value - 1.1).abs() < 1e-9);
        }
        assert_eq!(
            file.levels(&on("z", first, 1.0), Reading::AsFound).unwrap(),
            []
        );
    }

    #[test]
    fn what_measured_something_else_is_another_series() {
        let folder = TempDir::new().unwrap();
        let file = SessionHistory::at(folder.path().join("sessions.json"));
        let one = on("x", "2026-11-24T00:00:00Z", 1.0);
        let mut quick = one.clone();
        quick.asked.quick = !one.asked.quick;
        let mut programs = one.clone();
        programs.machine.programs = Some("another build".to_owned());
        for record in [&one, &quick, &programs] {
            file.keep(record).unwrap();
        }
        let kept = file.levels(&one, Reading::AsFound).unwrap();
        assert_eq!(kept.len(), 3 * levels(&one, Reading::AsFound).len());
        assert!(kept.iter().all(|list| list.levels.len() == 1));
    }

    #[test]
    fn neither_counts_nor_interrupted_sessions_are_kept_nor_more_than_enough() {
        let folder = TempDir::new().unwrap();
        let file = SessionHistory::at(folder.path().join("sessions.json"));
        let one = on("x", "2026-11-24T00:00:00Z", 1.0);
        let mut counted = one.clone();
        counted.unit = bpfcost_model::Unit::InstructionsPerOp;
        let mut interrupted = one.clone();
        interrupted.stop = Stop::Interrupted;
        for record in [&counted, &interrupted] {
            file.keep(record).unwrap();
        }
        assert!(!file.path().exists());
        let mut aborted = one.clone();
        aborted.stop = Stop::Aborted;
        file.keep(&aborted).unwrap();
        assert!(!file.path().exists());
        for second in 0..MAX_SESSIONS + 3 {
            let mut later = one.clone();
            later.started = format!("2026-11-24T00:{:02}:{:02}Z", second / 60, second % 60);
            file.keep(&later).unwrap();
            // The same again is no other session.
            file.keep(&later).unwrap();
        }
        assert!(
            file.levels(&one, Reading::AsFound)
                .unwrap()
                .iter()
                .all(|list| list.levels.len() == MAX_SESSIONS)
        );
    }

    #[test]
    fn a_damaged_file_is_reported_and_replaced_a_newer_one_kept() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("sessions.json");
        let file = SessionHistory::at(&path);
        let one = on("x", "2026-11-24T00:00:00Z", 1.0);
        fs::write(&path, "{\"schema\":").unwrap();
        assert!(matches!(
            file.levels(&one, Reading::AsFound),
            Err(FileError::Damaged { line: 1, .. })
        ));
        file.keep(&one).unwrap();
        assert_eq!(
            file.levels(&one, Reading::AsFound).unwrap().len(),
            levels(&one, Reading::AsFound).len()
        );
        fs::write(&path, "{\"schema\": 2, \"machines\": {}}").unwrap();
        assert!(matches!(file.keep(&one), Err(FileError::Newer(_, _, 2))));
    }
}
