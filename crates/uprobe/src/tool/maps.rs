//! The maps of a tool: which of them user space has, and what the kernel's programs use.

#![allow(unsafe_code, reason = "asks the kernel")]

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
};

use libbpf_rs::{MapType, libbpf_sys as sys};

use super::{caller::Caller, start::adopt};
use crate::object::LoadedMap;

/// The maps that the tool's programs name, by the kernel's numbers.
#[derive(Debug, Default)]
pub(super) struct Maps {
    /// Those that no user-space program uses yet. None is held: what the tool has closed is gone.
    known: BTreeMap<u32, KnownMap>,
    /// Those of user space, with their types.
    pub(super) taken: BTreeMap<u32, MapType>,
    /// Those that programs in the kernel use.
    in_kernel: BTreeSet<u32>,
}

#[derive(Debug)]
struct KnownMap {
    name: String,
    kind: MapType,
    /// The value, if nothing changes it any more.
    constants: Option<Vec<u8>>,
}

impl Maps {
    /// The number of the map that a file of a process is of.
    pub(super) fn find(&mut self, caller: &Caller, file: RawFd) -> Option<u32> {
        let map = LoadedMap::from_fd(caller.file(file).ok()?).ok()?;
        let id = map.id;
        if !self.taken.contains_key(&id) {
            self.known.entry(id).or_insert_with(|| KnownMap {
                kind: map.kind,
                constants: map.constants(),
                name: map.name,
            });
        }
        Some(id)
    }

    /// The value of a map of constants.
    pub(super) fn constants(&self, id: u32) -> Option<Vec<u8>> {
        self.known.get(&id)?.constants.clone()
    }

    /// Takes a map for user space; `None` if it is there, or not known.
    pub(super) fn take(&mut self, id: u32) -> io::Result<Option<LoadedMap>> {
        if !self.known.contains_key(&id) {
            return Ok(None);
        }
        // SAFETY: the kernel takes a number.
        let file = unsafe { sys::bpf_map_get_fd_by_id(id) };
        if file < 0 {
            return Err(io::Error::from_raw_os_error(-file));
        }
        let map = LoadedMap::from_fd(adopt(file))?;
        self.known.remove(&id);
        self.taken.insert(id, map.kind);
        Ok(Some(map))
    }

    /// Notes that a program of the kernel uses maps. Returns one whose contents user space has, if there is one.
    pub(super) fn use_in_kernel(&mut self, maps: &[u32]) -> Option<u32> {
        let conflict = self.in_user_space(maps);
        if conflict.is_none() {
            self.in_kernel.extend(maps);
        }
        conflict
    }

    /// Returns one of these maps whose contents user space has, if there is one.
    pub(super) fn in_user_space(&self, maps: &[u32]) -> Option<u32> {
        let mut maps = maps.iter().copied();
        maps.find(|id| self.taken.get(id).is_some_and(is_separate))
    }

    /// Returns one of these maps that programs of the kernel use, and whose contents user space would have for itself.
    pub(super) fn conflict(&self, maps: &[u32]) -> Option<String> {
        let used = maps.iter().filter(|id| self.in_kernel.contains(id));
        let mut maps = used.filter_map(|id| self.known.get(id));
        let conflict = maps.find(|map| is_separate(&map.kind));
        conflict.map(|map| map.name.clone())
    }
}

/// Returns whether user space has a map's contents for itself: others are the kernel's own pages, or are handed on.
pub(super) fn is_separate(kind: &MapType) -> bool {
    !matches!(
        kind,
        MapType::Array
            | MapType::Arena
            | MapType::RingBuf
            | MapType::PerfEventArray
            | MapType::ProgArray
    )
}

/// Makes the map that a caller wants, if it is an array whose pages can't be mapped, so that they can. `None` for others,
/// and where the kernel wants it otherwise.
pub(super) fn create_mappable(attributes: &sys::bpf_attr, caller: &Caller) -> Option<OwnedFd> {
    let mut attributes = *attributes;
    // SAFETY: numbers, of the structure that the command has.
    let map = unsafe { &mut attributes.__bindgen_anon_1 };
    let is_plain = map.map_type == sys::BPF_MAP_TYPE_ARRAY
        && map.map_flags & (sys::BPF_F_MMAPABLE | sys::BPF_F_INNER_MAP) == 0
        && map.map_token_fd == 0
        && map.value_type_btf_obj_fd == 0;
    if !is_plain {
        return None;
    }
    map.map_flags |= sys::BPF_F_MMAPABLE;
    let types = match map.btf_fd {
        0 => None,
        fd => Some(caller.file(fd.cast_signed()).ok()?),
    };
    if let Some(types) = &types {
        map.btf_fd = types.as_raw_fd().cast_unsigned();
    }
    // SAFETY: the kernel reads the attributes, which live as long as the call.
    let map = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            sys::BPF_MAP_CREATE,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    (map >= 0).then(|| adopt(map as RawFd))
}

/// The entries that a map of the kernel has.
pub(super) fn entries(map: &LoadedMap) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    let value_bytes = match map.kind {
        MapType::Hash | MapType::LruHash => map.value_size as usize,
        MapType::PercpuHash | MapType::LruPercpuHash | MapType::PercpuArray => {
            map.stride() * libbpf_rs::num_possible_cpus().unwrap_or(1)
        }
        _ => return entries,
    };
    let fd = map.fd().as_raw_fd();
    let mut key: Option<Vec<u8>> = None;
    while entries.len() < map.entries as usize {
        let mut next = vec![0_u8; map.key_size as usize];
        let mut value = vec![0_u8; value_bytes];
        let before = key
            .as_ref()
            .map_or(std::ptr::null(), |key| key.as_ptr().cast());
        // SAFETY: keys and values are as long as the map says.
        let found = unsafe {
            sys::bpf_map_get_next_key(fd, before, next.as_mut_ptr().cast()) == 0
                && sys::bpf_map_lookup_elem(fd, next.as_ptr().cast(), value.as_mut_ptr().cast())
                    == 0
        };
        if !found {
            break;
        }
        entries.push((next.clone(), value));
        key = Some(next);
    }
    entries
}
