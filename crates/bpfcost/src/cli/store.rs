//! The default place of records: the user's state folder, so that no finished trial is lost.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use bpfcost_record::{SessionHistory, now};

use super::exit::usage;
use bpfcost_process::xdg::Folder;

/// The sessions that this user keeps: `$XDG_STATE_HOME/bpfcost/sessions.json`, or under `~/.local/state`. `None` for a user
/// without a home.
pub(super) fn sessions() -> Option<SessionHistory> {
    let folder = Folder::State.of_user()?;
    Some(SessionHistory::at(folder.join("sessions.json")))
}

/// Where the record of a run goes. `out` may be a file or a folder; several records need a folder.
pub(super) fn record_path(
    out: Option<&Path>,
    experiment: &str,
    target: &str,
    several: bool,
) -> Result<PathBuf> {
    let name = format!("{experiment}-{}", target.replace([':', '/'], "-"));
    match out {
        Some(folder) if folder.is_dir() => Ok(folder.join(format!("{name}.json"))),
        Some(file)
            if file
                .extension()
                .is_some_and(|extension| extension == "journal") =>
        {
            Err(usage(format!(
                "{} is a name for the journal of a run, not for its record\n  Continue a journal \
                 with --resume {0}, or name the record: --out {}",
                file.display(),
                file.with_extension("json").display()
            )))
        }
        Some(file) if several => Err(usage(format!(
            "several records cannot go into one file {}\n  Make a folder of that name, or omit \
             --out",
            file.display()
        ))),
        Some(file) => Ok(file.to_owned()),
        None => {
            let folder = records_folder()?;
            let at = now().replace(['-', ':'], "");
            Ok(folder.join(format!("{name}-{at}-{}.json", std::process::id())))
        }
    }
}

/// `$XDG_STATE_HOME/bpfcost/records`, or under `~/.local/state`; the current folder for a user
/// without a home.
fn records_folder() -> Result<PathBuf> {
    let Some(state) = Folder::State.of_user() else {
        return Ok(PathBuf::from("."));
    };
    let folder = state.join("records");
    fs::create_dir_all(&folder).with_context(|| {
        format!(
            "cannot make the folder for records {}; choose a file with --out",
            folder.display()
        )
    })?;
    Ok(folder)
}
