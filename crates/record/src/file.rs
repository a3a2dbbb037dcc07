//! The finished record as a file: written whole or not at all, and read with clear errors.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use tempfile::TempPath;
use thiserror::Error;

use crate::{Record, SCHEMA};

/// An error in writing or reading a record.
#[derive(Debug, Error)]
pub enum FileError {
    /// The folder that it should lie in is not there.
    #[error("there is no folder {0}; make it with `mkdir -p {0}`, or choose another --out")]
    NoFolder(PathBuf),
    /// A folder, a device or a pipe stands there.
    #[error("{0} is not a regular file; choose another --out")]
    NotPlain(PathBuf),
    /// The file can't be written: no space, no permission, …
    #[error("can't write {0}: {1}; {advice}", advice = way_out(.1))]
    Write(PathBuf, #[source] io::Error),
    /// There is nothing of that name.
    #[error(
        "there is no file or folder {0}\n  A run prints the path of its record; --out FILE sets it"
    )]
    Missing(PathBuf),
    /// The file can't be read.
    #[error("can't read {0}: {1}; name a record (*.json) that this user may read")]
    Read(PathBuf, #[source] io::Error),
    /// A folder without records.
    #[error(
        "the folder {0} holds no records (*.json); make one with `bpfcost run xdp-lb --out {0}`"
    )]
    NoRecords(PathBuf),
    /// Not JSON, or cut short.
    #[error(
        "{path} is damaged at line {line}, column {column}: {what}; copy it again, or measure anew with `bpfcost \
         run`"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// The error at that place.
        what: String,
    },
    /// Another kind of file.
    #[error(
        "{0} is not a record of bpfcost\n  A run prints the path of its record: `record: PATH`"
    )]
    NotJson(PathBuf),
    /// JSON, and something else.
    #[error(
        "{0} is JSON but not a bpfcost record: {1}\n  Name a file that `bpfcost run --out FILE` wrote"
    )]
    NotARecord(PathBuf, String),
    /// A run that did not finish.
    #[error("{0} is the journal of an unfinished run; finish it with `bpfcost run --resume {0}`")]
    Journal(PathBuf),
    /// Written by a newer program.
    #[error(
        "{0} was written by a newer bpfcost ({1}, schema {2}; this one reads up to \
         {SCHEMA}); update this one to read it"
    )]
    Newer(PathBuf, String, u32),
}

/// The advice for a file that can't be written.
fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room or choose another --out"
        }
        io::ErrorKind::NotFound => "its folder was removed meanwhile; choose another --out",
        _ => "choose another --out",
    }
}

/// Bytes that must be free before a run starts: a record of some 50,000 trials.
const HEADROOM: usize = 1 << 20;

/// Makes sure, before anything is measured, that a record can be written there.
pub fn writable(out: &Path) -> Result<(), FileError> {
    let out = follow_links(out)?;
    // Without a name, where the file system can: a kill leaves nothing of it behind.
    tempfile::tempfile_in(folder_of(&out)?)
        .and_then(|mut file| file.write_all(&vec![0; HEADROOM]))
        .map_err(|source| FileError::Write(out, source))
}

/// Writes a record: to a temporary file beside it, flushed to the disk, then renamed. Whatever
/// happens meanwhile, `out` holds what it held before, or the whole record.
pub fn write(record: &Record, out: &Path) -> Result<(), FileError> {
    replace(out, |file| {
        serde_json::to_writer(&mut *file, record)?;
        file.write_all(b"\n")
    })
}

/// Writes a file whole or not at all: without a name where the file system can, so that a kill leaves
/// nothing behind, then renamed over what was there.
pub fn replace(
    out: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let out = follow_links(out)?;
    let failed = |source| FileError::Write(out.clone(), source);
    let named = whole_file(&out, folder_of(&out)?, fill).map_err(failed)?;
    named.persist(&out).map_err(|error| failed(error.error))?;
    // The new name must outlive a power cut too. Where a folder can't be flushed, it is as safe as
    // the file system makes it.
    let _ = File::open(folder(&out)).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Fills a file and flushes it to the disk.
fn write_whole(file: &File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::new(file);
    fill(&mut writer)?;
    writer.flush()?;
    file.sync_all()
}

/// The mode of any new file, less the umask: others may read a record.
const MODE: u32 = 0o666;

/// Writes a file beside `out`. It has no name before it is whole, where that can be, and ends with this process if it gets none;
/// its name disappears when it is dropped.
fn whole_file(
    out: &Path,
    folder: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<TempPath> {
    #[cfg(target_os = "linux")]
    if let Ok(file) = unnamed::open(folder) {
        write_whole(&file, fill)?;
        return unnamed::name(&file, out);
    }
    let _ = out;
    let named = part()
        .permissions(fs::Permissions::from_mode(MODE))
        .tempfile_in(folder)?;
    write_whole(named.as_file(), fill)?;
    Ok(named.into_temp_path())
}

/// Files without a name, which Linux has.
#[cfg(target_os = "linux")]
mod unnamed {
    use std::{
        fs::{File, OpenOptions},
        io,
        os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _},
        path::Path,
    };

    use rustix::fs::{AtFlags, CWD, OFlags, linkat};
    use tempfile::TempPath;

    use super::{MODE, folder, part};

    pub(super) fn open(folder: &Path) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .mode(MODE)
            .custom_flags(OFlags::TMPFILE.bits() as i32)
            .open(folder)
    }

    /// Gives such a file a name beside `out`.
    pub(super) fn name(file: &File, out: &Path) -> io::Result<TempPath> {
        let fd_path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = |path: &Path| Ok(linkat(CWD, &fd_path, CWD, path, AtFlags::SYMLINK_FOLLOW)?);
        let named = part().make_in(folder(out), link)?;
        Ok(named.into_temp_path())
    }
}

/// A builder of names for unfinished files.
fn part() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".bpfcost-").suffix(".part");
    builder
}

/// The file that a path means, links followed; refuses what a rename would destroy.
fn follow_links(out: &Path) -> Result<PathBuf, FileError> {
    match fs::metadata(out) {
        Ok(seen) if seen.is_file() => {
            fs::canonicalize(out).map_err(|source| FileError::Write(out.to_owned(), source))
        }
        Ok(_) => Err(FileError::NotPlain(out.to_owned())),
        Err(_) if out.file_name().is_none() => Err(FileError::NotPlain(out.to_owned())),
        Err(_) if out.as_os_str().as_bytes().ends_with(b"/") => {
            Err(FileError::NoFolder(out.to_owned()))
        }
        Err(_) => Ok(out.to_owned()),
    }
}

/// The folder that `out` is to lie in, if it is there.
fn folder_of(out: &Path) -> Result<&Path, FileError> {
    let folder = folder(out);
    if folder.is_dir() {
        return Ok(folder);
    }
    Err(FileError::NoFolder(folder.to_owned()))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Reads the records of a file (one, or an array of them), or of every `*.json` in a folder, sorted
/// by name.
pub fn load(path: &Path) -> Result<Vec<Record>, FileError> {
    if !path.is_dir() {
        return load_file(path);
    }
    let failed = |source| FileError::Read(path.to_owned(), source);
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "json")
            && file.is_file()
        {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(FileError::NoRecords(path.to_owned()));
    }
    let records: Result<Vec<Vec<Record>>, FileError> =
        files.iter().map(|file| load_file(file)).collect();
    Ok(records?.concat())
}

fn load_file(path: &Path) -> Result<Vec<Record>, FileError> {
    let bytes = fs::read(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => FileError::Missing(path.to_owned()),
        _ => FileError::Read(path.to_owned(), source),
    })?;
    if path
        .extension()
        .is_some_and(|extension| extension == "journal")
    {
        return Err(FileError::Journal(path.to_owned()));
    }
    parse(&bytes, path)
}

/// The keys that every version of a record has.
#[derive(Deserialize)]
struct RecordVersion {
    schema: u32,
    #[serde(default)]
    bpfcost: String,
}

/// The records in a file's bytes; the path is for errors.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Vec<Record>, FileError> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|byte| !b"[{".contains(byte)) {
        return Err(FileError::NotJson(path.to_owned()));
    }
    let array = first == Some(&b'[');
    let error = |error: serde_json::Error| error_at(&error, path);
    let versions = if array {
        serde_json::from_slice::<Vec<RecordVersion>>(bytes).map_err(error)?
    } else {
        vec![serde_json::from_slice(bytes).map_err(error)?]
    };
    if let Some(newer) = versions.into_iter().find(|version| version.schema > SCHEMA) {
        return Err(FileError::Newer(
            path.to_owned(),
            newer.bpfcost,
            newer.schema,
        ));
    }
    if array {
        serde_json::from_slice(bytes).map_err(error)
    } else {
        Ok(vec![serde_json::from_slice(bytes).map_err(error)?])
    }
}

pub(super) fn error_at(error: &serde_json::Error, path: &Path) -> FileError {
    let path = path.to_owned();
    if error.is_data() {
        return FileError::NotARecord(path, error.to_string());
    }
    let text = error.to_string();
    let what = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(what, _)| what)
        .to_owned();
    FileError::Damaged {
        path,
        line: error.line(),
        column: error.column(),
        what,
    }
}

#[cfg(test)]
#[path = "tests/file.rs"]
mod tests;
