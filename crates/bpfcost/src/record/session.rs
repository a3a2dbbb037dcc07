//! How much sessions differ on a machine, as `self-test` measured it. It is kept in the user's state folder (XDG
//! Base Directory Specification) for later runs and comparisons.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use bpfcost_stats::sessions::session_spread;
use serde::{Deserialize, Serialize};

use super::{
    Machine, Record,
    file::{FileError, replace},
};
use crate::experiment::Role;
use crate::xdg::Folder;

/// What `self-test` measured on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionSpread {
    /// Relative standard deviation of a session's level, in percent.
    pub percent: f64,
    /// How many sessions it comes from.
    pub sessions: usize,
    /// When it was measured, RFC 3339 in UTC.
    pub measured: String,
}

impl SessionSpread {
    /// As a share: 0.01 is 1 %.
    pub fn share(&self) -> f64 {
        self.percent / 100.0
    }
}

/// The file that keeps it, by machine.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFile {
    path: PathBuf,
}

/// The file's content.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SessionFileContent {
    schema: u32,
    /// By CPU and kernel.
    machines: BTreeMap<String, SessionSpread>,
}

/// The version of the file's form.
const SCHEMA: u32 = 1;

impl SessionFile {
    /// A file at that path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        SessionFile { path: path.into() }
    }

    /// The user's own: `$XDG_STATE_HOME/bpfcost/session.json`, or under `~/.local/state`. `None` for
    /// a user without a home.
    pub fn of_user() -> Option<Self> {
        let folder = Folder::State.of_user()?;
        Some(SessionFile::at(folder.join("session.json")))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The spread known for a machine; `None` where `self-test` has not run on it.
    pub fn load(&self, machine: &Machine) -> Result<Option<SessionSpread>, FileError> {
        Ok(self.read()?.machines.remove(&key(machine)))
    }

    /// Keeps what was measured on a machine, in place of what was known of it.
    pub fn save(&self, machine: &Machine, spread: &SessionSpread) -> Result<(), FileError> {
        let mut kept = match self.read() {
            // What can't be read is only a cache: measured again, it is written anew.
            Err(FileError::Damaged { .. } | FileError::NotARecord(..)) => {
                SessionFileContent::default()
            }
            kept => kept?,
        };
        kept.schema = SCHEMA;
        kept.machines.insert(key(machine), spread.clone());
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)
                .map_err(|source| FileError::Write(self.path.clone(), source))?;
        }
        replace(&self.path, |file| {
            serde_json::to_writer_pretty(&mut *file, &kept)?;
            file.write_all(b"\n")
        })
    }

    fn read(&self) -> Result<SessionFileContent, FileError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(SessionFileContent::default());
            }
            Err(source) => {
                return Err(FileError::Read(self.path.clone(), source));
            }
        };
        let kept: SessionFileContent = serde_json::from_slice(&bytes)
            .map_err(|error| super::file::error_at(&error, &self.path))?;
        if kept.schema > SCHEMA {
            return Err(FileError::Newer(
                self.path.clone(),
                "unknown version".to_owned(),
                kept.schema,
            ));
        }
        Ok(kept)
    }
}

/// The spread between sessions that several records of the same show, as a share (0.01 is 1 %):
/// the relative standard deviation of a session's level, over all cases that two records have.
pub fn spread_between<'a>(records: impl IntoIterator<Item = &'a Record>) -> Option<f64> {
    let mut values: BTreeMap<(&str, &str, &str), Vec<f64>> = BTreeMap::new();
    for record in records {
        for case in record.cases.iter().filter(|case| case.role == Role::Case) {
            if let Some(raw) = &case.raw {
                let key = (&*record.experiment, &*record.target, &*case.name);
                values.entry(key).or_default().push(raw.value);
            }
        }
    }
    let values: Vec<Vec<f64>> = values.into_values().collect();
    session_spread(&values)
}

/// Sessions differ by what the CPU and the kernel make of the time; both name a machine here.
fn key(machine: &Machine) -> String {
    format!("{} | {}", machine.cpu, machine.kernel)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn machine(cpu: &str) -> Machine {
        Machine {
            cpu: cpu.to_owned(),
            kernel: "6.12".to_owned(),
            ..Machine::default()
        }
    }

    fn spread(percent: f64) -> SessionSpread {
        SessionSpread {
            percent,
            sessions: 6,
            measured: "2026-11-21T20:00:00Z".to_owned(),
        }
    }

    #[test]
    fn each_machine_keeps_its_own() {
        let folder = TempDir::new().unwrap();
        let file = SessionFile::at(folder.path().join("a/b/session.json"));
        assert_eq!(file.load(&machine("x")).unwrap(), None);
        file.save(&machine("x"), &spread(1.6)).unwrap();
        file.save(&machine("y"), &spread(2.0)).unwrap();
        file.save(&machine("x"), &spread(1.7)).unwrap();
        assert_eq!(file.load(&machine("x")).unwrap(), Some(spread(1.7)));
        assert_eq!(file.load(&machine("y")).unwrap(), Some(spread(2.0)));
        assert_eq!(file.load(&machine("z")).unwrap(), None);
        assert!((spread(1.6).share() - 0.016).abs() < 1e-12);
    }

    #[test]
    fn sessions_tell_how_far_they_differ() {
        let one = crate::record::tests::record(8);
        let mut other = one.clone();
        for case in &mut other.cases {
            case.raw.as_mut().unwrap().value *= 1.01;
        }
        assert_eq!(spread_between([&one]), None);
        // Two that differ by 1 %: a deviation of 0.01 / 0.6745 / √2, which explains that distance.
        let spread = spread_between([&one, &other]).unwrap();
        assert!((spread - 0.010_43).abs() < 1e-4, "{spread}");
    }

    #[test]
    fn a_damaged_file_is_told_and_replaced_a_newer_one_kept() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("session.json");
        let file = SessionFile::at(&path);
        fs::write(&path, "{\"schema\":").unwrap();
        assert!(matches!(
            file.load(&machine("x")),
            Err(FileError::Damaged { line: 1, .. })
        ));
        file.save(&machine("x"), &spread(1.0)).unwrap();
        assert_eq!(file.load(&machine("x")).unwrap(), Some(spread(1.0)));
        fs::write(&path, "{\"schema\": 2, \"machines\": {}}").unwrap();
        assert!(matches!(
            file.save(&machine("x"), &spread(1.0)),
            Err(FileError::Newer(_, _, 2))
        ));
    }
}
