//! The answer in the shape that was asked for.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use anyhow::Result;

use super::Args;
use crate::{
    cli::{
        exit::{lacking, usage, with_advice},
        output::{heard, note, write_answer},
    },
    stack::{self, Profile},
};
use bpfcost_record::FileError;

/// Whether a file can be written, before anything is measured.
pub(super) fn check_svg(path: &Path) -> Result<()> {
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

fn not_written(path: &Path, error: io::Error) -> anyhow::Error {
    let error = anyhow::Error::from(error).context(format!("cannot write {}", path.display()));
    with_advice(&error, "Choose another file: --svg FILE")
}

/// Whether a path is there, and no file.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file())
}

/// Shows the profile in the shape that was asked for.
pub(super) fn show(args: &Args, profile: &Profile) -> Result<()> {
    let summary = || stack::summary(profile);
    if args.json {
        write_answer(|out| profile.write_json(out))?;
    } else if args.folded {
        let lines = profile.folded();
        write_answer(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))?;
        note!("{}", summary().trim_end());
    } else if let Some(path) = &args.svg {
        note!("{}", summary().trim_end());
        if profile.stacks.is_empty() {
            return Err(lacking(
                "there are no stacks, so no flame graph was written\n  Measure longer (--duration), or choose another \
                 event, process or command",
            ));
        }
        let svg = profile.svg()?;
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
    } else if args.live {
        note!("{}", summary().trim_end());
    } else {
        heard(format_args!("{}", stack::table(profile, args.top)))?;
        if profile.input.totals.events == 0 && (args.pid.is_some() || args.comm.is_some()) {
            note!("The event may have come in other processes: leave out --pid and --comm.");
        }
    }
    Ok(())
}
