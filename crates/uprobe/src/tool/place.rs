//! The place in a process that an event of a tool is for.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::decoy::EventPlace;
use crate::{
    probes::At,
    process::{self, Function, Image},
};

/// A place of a file, as a tool has named it.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) place: EventPlace,
    /// The file, as it is found from here.
    pub(super) path: PathBuf,
}

/// Processes that are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    One(i32),
    /// All that execute the file, also those to come.
    All,
}

/// A function of a process, and the point in it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) function: Function,
    pub(super) at: At,
}

impl Spot {
    /// The place in a process.
    pub(super) fn find(&self, pid: i32, images: &mut Images) -> process::Result<Found> {
        let image = images.open(pid, &self.path)?;
        let EventPlace {
            offset,
            is_return,
            semaphore,
        } = self.place;
        let outside = |offset: u64| process::Error::Symbol {
            symbol: format!("{offset:#x}"),
            reason: format!("process {pid} does not execute this part of the file"),
        };
        let address = image.address(offset).ok_or_else(|| outside(offset))?;
        let function = image.function_around(address)?;
        let from = address - function.address;
        let semaphore = match semaphore {
            0 => None,
            offset => image.semaphore(offset)?,
        };
        let at = match (from, is_return) {
            (0, false) if semaphore.is_none() => At::Entry,
            (0, true) => At::Return,
            (offset, false) => At::Inside { offset, semaphore },
            (offset, true) => {
                return Err(process::Error::Symbol {
                    symbol: format!("{}+{offset:#x}", function.name),
                    reason: "a return probe belongs at a function's first instruction".to_owned(),
                });
            }
        };
        Ok(Found { function, at })
    }
}

/// The files of processes that were read last.
#[derive(Debug, Default)]
pub(super) struct Images {
    last: Option<(i32, PathBuf, Image)>,
}

impl Images {
    fn open(&mut self, pid: i32, path: &Path) -> process::Result<&Image> {
        let is_it = |(of, from, _): &(i32, PathBuf, Image)| *of == pid && from == path;
        if !self.last.as_ref().is_some_and(is_it) {
            let image = Image::of_file(pid, path)?;
            self.last = Some((pid, path.to_owned(), image));
        }
        let (.., image) = self.last.as_ref().expect("it was just read");
        Ok(image)
    }

    /// Forgets them.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

/// The process that a thread is of; the number itself if there is none.
pub(super) fn process_of(thread: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    pid.and_then(|pid| pid.trim().parse().ok())
        .unwrap_or(thread)
}

/// Returns whether a process has another numbering of processes than this one.
pub(super) fn numbers_differ(pid: i32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid"));
    match (namespace("self"), namespace(&pid.to_string())) {
        (Ok(own), Ok(other)) => own != other,
        _ => true,
    }
}
