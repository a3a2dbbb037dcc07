//! The user's folders for state and cache, by the XDG Base Directory Specification.

use std::{env, ffi::OsString, path::PathBuf};

/// What a folder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// What can be fetched or found out again.
    Cache,
    /// What was measured.
    State,
}

impl Folder {
    /// This user's, with `bpfcost` behind it; `None` for a user without a home.
    pub fn of_user(self) -> Option<PathBuf> {
        Some(self.home(|name| env::var_os(name))?.join("bpfcost"))
    }

    fn home(self, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let (own, below) = match self {
            Folder::Cache => ("XDG_CACHE_HOME", ".cache"),
            Folder::State => ("XDG_STATE_HOME", ".local/state"),
        };
        // The specification has relative paths ignored.
        let absolute = |name| {
            let path = variable(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        absolute(own).or_else(|| Some(absolute("HOME")?.join(below)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_the_specification() {
        let state = |own: Option<&str>, home: Option<&str>| {
            Folder::State.home(|name| match name {
                "XDG_STATE_HOME" => own.map(Into::into),
                "HOME" => home.map(Into::into),
                _ => None,
            })
        };
        assert_eq!(state(Some("/s"), Some("/h")), Some("/s".into()));
        assert_eq!(state(Some("s"), Some("/h")), Some("/h/.local/state".into()));
        assert_eq!(state(None, Some("/h")), Some("/h/.local/state".into()));
        assert_eq!(state(None, None), None);
        assert_eq!(state(Some(""), Some("")), None);
        let home = |folder: Folder| folder.home(|name| (name == "HOME").then(|| "/h".into()));
        assert_eq!(home(Folder::Cache), Some("/h/.cache".into()));
    }
}
