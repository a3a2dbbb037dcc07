//! Arenas: where they are, and which ones can be used.
//!
//! An arena is at one address in all processes, which the map is made with (`map_extra`). It is chosen here: a process
//! that is probed may have another arena, or something else, where an object's source wants its own. Of what the source
//! says, the low half is kept: programs make their accesses by that, and by nothing else.

#![allow(
    unsafe_code,
    reason = "libbpf-rs does not say what a map was made with"
)]

use std::{
    io, process,
    sync::atomic::{AtomicU64, Ordering},
};

use libbpf_rs::{
    AsRawLibbpf as _, MapType, OpenMapMut, OpenObject,
    libbpf_sys::{self, bpf_map_info},
};
use object::{Object as _, ObjectSymbol as _};

use super::error::{Error, Result};
use crate::process::mappings;

/// A page of x86-64.
const PAGE_BYTES: u64 = 4096;
/// Addresses where the kernel, the heaps of Go and Java, and AddressSanitizer put nothing, in pieces of 4 GiB. An arena takes
/// a part of one.
const FIRST_PIECE: u64 = 0x4000;
const PIECES: u64 = 0x1000;
const PIECE_BITS: u32 = 32;
/// Default offset of an arena in its piece: not the beginning, so that a pointer to nothing leads to
/// nothing.
const START: u64 = 64 << 10;

/// Flags of the kernel: no page comes by itself, and pointers are always short.
const SEGV_ON_FAULT: u32 = libbpf_sys::BPF_F_SEGV_ON_FAULT;
const NO_USER_CONV: u32 = libbpf_sys::BPF_F_NO_USER_CONV;
/// The kernel function that takes pages away, and the section of variables in an arena.
const FREE_PAGES: &str = "bpf_arena_free_pages";
const VARIABLES: &str = ".addr_space.1";

/// Number of arenas that this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Addresses of an arena, the same in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    /// The address of its first page.
    pub start: u64,
    /// The bytes: whole pages.
    pub bytes: u64,
    /// True if pointers in it are always short (`BPF_F_NO_USER_CONV`).
    pub keeps_short: bool,
}

impl Arena {
    pub(super) fn from_info(kind: MapType, info: &bpf_map_info) -> Option<Self> {
        (kind == MapType::Arena).then(|| Arena {
            start: info.map_extra,
            bytes: u64::from(info.max_entries) * PAGE_BYTES,
            keeps_short: info.map_flags & NO_USER_CONV != 0,
        })
    }
}

/// Chooses the address of an arena. libbpf would replace what this process has there.
pub(super) fn set_address(map: &mut OpenMapMut<'_>) -> libbpf_rs::Result<()> {
    let pid = process::id().cast_signed();
    // SAFETY: the map lives as long as the object, which is borrowed.
    let wanted = unsafe { libbpf_sys::bpf_map__map_extra(map.as_libbpf_object().as_ptr()) };
    let bytes = u64::from(map.max_entries()) * PAGE_BYTES;
    let low = match wanted {
        0 if START + bytes <= 1 << PIECE_BITS => START,
        _ => wanted & u64::from(u32::MAX),
    };
    let own = mappings(pid).map_err(io::Error::other)?;
    let free = (0..PIECES).find_map(|_| {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        // Other processes of the tool begin elsewhere.
        let piece = FIRST_PIECE + (u64::from(process::id()) * 31 + number) % PIECES;
        let start = (piece << PIECE_BITS) + low;
        let is_free = own
            .iter()
            .all(|one| one.end <= start || start + bytes <= one.start);
        is_free.then_some(start)
    });
    let start = free.ok_or_else(|| io::Error::other("no address for an arena is free"))?;
    map.set_map_extra(start)
}

/// Refuses an arena whose pages may go away, and one that libbpf can't fill.
pub(super) fn check(object: &OpenObject, bytes: &[u8]) -> Result<()> {
    let Some(map) = object.maps().find(|map| map.map_type() == MapType::Arena) else {
        return Ok(());
    };
    let Ok(file) = object::File::parse(bytes) else {
        // libbpf has read it.
        return Ok(());
    };
    let refused = |reason: &str| {
        Err(Error::Arena {
            map: map.name().to_string_lossy().into_owned(),
            reason: reason.to_owned(),
        })
    };
    if file
        .symbols()
        .any(|one| one.is_undefined() && one.name() == Ok(FREE_PAGES))
    {
        return refused(
            "the object calls bpf_arena_free_pages, and a page that goes away may end the process\n  keep the pages, or use a kernel uprobe",
        );
    }
    if map.map_flags() & SEGV_ON_FAULT != 0 && file.section_by_name(VARIABLES).is_some() {
        return refused(
            "it has variables, and BPF_F_SEGV_ON_FAULT keeps libbpf from writing them\n  leave the flag out",
        );
    }
    Ok(())
}
