//! Flame graphs, drawn by inferno, in files that `--svg` names.

use std::{fs, io, path::Path};

use anyhow::{Context, Result};
use inferno::flamegraph::{self, Options};

use super::{
    exit::{usage, with_advice},
    output::note,
};
use bpfcost_record::FileError;

/// Sees that a file can be written, before anything is measured.
pub(super) fn check(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(usage(format!(
            "{} is a folder\n  Name a file in it: --svg {}",
            path.display(),
            path.join("stacks.svg").display()
        )));
    }
    if is_special(path) {
        return Ok(());
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(usage(format!(
            "there is no folder {0}\n  Make it: mkdir -p {0}",
            folder.display()
        )));
    }
    let tried = tempfile::tempfile_in(folder).map(drop);
    tried.map_err(|error| not_written(path, error))
}

/// Draws folded lines, `outer;inner COUNT`, into a file. Fails where there are none.
pub(super) fn write(path: &Path, title: String, unit: &str, lines: &[String]) -> Result<()> {
    let mut options = Options::default();
    options.title = title;
    options.count_name = unit.to_owned();
    // The same picture of the same stacks.
    options.deterministic = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .context("cannot draw the flame graph")?;
    if is_special(path) {
        fs::write(path, svg).map_err(|error| not_written(path, error))?;
    } else {
        bpfcost_record::replace(path, |file| file.write_all(&svg)).map_err(
            |error| match error {
                FileError::Write(_, error) => not_written(path, error),
                other => other.into(),
            },
        )?;
    }
    note!("flame graph: {}", path.display());
    Ok(())
}

fn not_written(path: &Path, error: io::Error) -> anyhow::Error {
    let error = anyhow::Error::from(error).context(format!("cannot write {}", path.display()));
    with_advice(&error, "Choose another file: --svg FILE")
}

/// True if a path is there, and no file.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file())
}
