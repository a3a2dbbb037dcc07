//! An arena in one process: at the address that it has in all of them.

use super::error::{Error, Result};
use crate::{
    object::{Arena, LoadedObject, LoadedProgram},
    process::{self, Runtime},
    translate::ArenaPlace,
};

/// The bits of an address in a page.
const PAGE_BITS: u32 = 12;

/// An arena that was mapped into a process, with memory for the state of its pages. A forked child begins without any of
/// them: it may not have the arena at all.
pub(super) fn place(runtime: &mut Runtime, arena: Arena) -> process::Result<ArenaPlace> {
    runtime.close_to_children_without(arena.start)?;
    Ok(ArenaPlace {
        start: arena.start,
        bytes: arena.bytes,
        pages: runtime.make_wiped(arena.bytes >> PAGE_BITS)?,
        keeps_short: arena.keeps_short,
    })
}

/// An error of mapping an object's memory: one about the arena's address names the arena.
pub(super) fn taken(error: process::Error, object: &LoadedObject) -> Error {
    let process::Error::AddressTaken { pid, address, what } = error else {
        return error.into();
    };
    let at = |arena: Arena| arena.start == address;
    let map = object.maps().iter().find(|map| map.arena.is_some_and(at));
    Error::ArenaTaken {
        map: map.map_or_else(String::new, |map| map.name.clone()),
        pid,
        address,
        what,
    }
}

/// An error where a program uses an arena in a process that filters a system call which that takes.
pub(super) fn check_calls(
    object: &LoadedObject,
    program: &LoadedProgram,
    call: &'static str,
    pid: i32,
) -> Result<()> {
    let mut maps = object.maps().iter();
    match maps.find(|map| map.arena.is_some() && program.uses(map)) {
        None => Ok(()),
        Some(map) => Err(Error::ArenaSeccomp {
            program: program.name.clone(),
            map: map.name.clone(),
            call,
            pid,
        }),
    }
}
