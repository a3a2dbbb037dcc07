//! A tool's commands for maps whose contents user space has.

use std::{collections::HashMap, io};

use libbpf_rs::libbpf_sys as sys;

use super::{
    call::{Batch, Element},
    caller::Caller,
};
use crate::probes::{self, Map};

/// Answers, with what they have to know of the commands before.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// The keys that a process goes through, by the process and the map.
    walks: HashMap<(i32, u32), Walk>,
}

/// The keys that a map had when a process began to go through them.
#[derive(Debug, Default)]
struct Walk {
    keys: Vec<Vec<u8>>,
    /// The place of the key that was given last.
    last: usize,
}

impl Server {
    /// Answers a command for one element.
    pub(super) fn element(
        &mut self,
        call: &Element,
        caller: &Caller,
        map: &Map<'_>,
    ) -> io::Result<i64> {
        let (key_bytes, value_bytes) = (map.loaded().key_size as usize, map.value_bytes());
        let key = |address| caller.read(address, key_bytes);
        match call.command {
            sys::BPF_MAP_LOOKUP_ELEM => {
                let value = value(map, &key(call.key)?)?.ok_or_else(missing)?;
                caller.write(call.value, &value)?;
            }
            sys::BPF_MAP_UPDATE_ELEM => {
                let (key, value) = (key(call.key)?, caller.read(call.value, value_bytes)?);
                map.update(&key, &value, call.flags).map_err(number)?;
            }
            sys::BPF_MAP_DELETE_ELEM => {
                if !map.delete(&key(call.key)?).map_err(number)? {
                    return Err(missing());
                }
            }
            sys::BPF_MAP_LOOKUP_AND_DELETE_ELEM => {
                let key = key(call.key)?;
                let value = value(map, &key)?.ok_or_else(missing)?;
                map.delete(&key).map_err(number)?;
                caller.write(call.value, &value)?;
            }
            _ => {
                let after = match call.key {
                    0 => None,
                    address => Some(key(address)?),
                };
                let next = self.next(caller.pid, map, after)?;
                caller.write(call.value, &next)?;
            }
        }
        Ok(0)
    }

    /// The key after one, or the first; the error of the last one is `ENOENT`.
    fn next(&mut self, pid: i32, map: &Map<'_>, after: Option<Vec<u8>>) -> io::Result<Vec<u8>> {
        let walk = self.walks.entry((pid, map.loaded().id)).or_default();
        let mut next = match after {
            None => walk.begin(map)?,
            Some(key) => {
                let is_last = walk.keys.get(walk.last) == Some(&key);
                let known = || walk.keys.iter().position(|one| *one == key);
                match is_last.then_some(walk.last).or_else(known) {
                    Some(place) => place + 1,
                    // As in the kernel, which begins again at a key that it doesn't know.
                    None => walk.begin(map)?,
                }
            }
        };
        while let Some(key) = walk.keys.get(next) {
            if value(map, key)?.is_some() {
                walk.last = next;
                return Ok(key.clone());
            }
            next += 1;
        }
        walk.keys = Vec::new();
        Err(missing())
    }

    /// Answers a command for many elements. The number of those that it was done for is written to the caller.
    pub(super) fn batch(
        &mut self,
        call: &Batch,
        caller: &Caller,
        map: &Map<'_>,
    ) -> io::Result<i64> {
        let mut done = 0;
        let answer = self.each(call, caller, map, &mut done);
        caller.write(call.count_at, &done.to_ne_bytes())?;
        answer
    }

    fn each(
        &mut self,
        call: &Batch,
        caller: &Caller,
        map: &Map<'_>,
        done: &mut u32,
    ) -> io::Result<i64> {
        // Of a caller that lies, the addresses may go past the end: they can't be read or written.
        let at = |first: u64, index: u32, bytes: u64| {
            first.wrapping_add(u64::from(index).wrapping_mul(bytes))
        };
        let key_at = |index| at(call.keys, index, map.loaded().key_size.into());
        let value_at = |index| at(call.values, index, map.value_bytes() as u64);
        if matches!(
            call.command,
            sys::BPF_MAP_UPDATE_BATCH | sys::BPF_MAP_DELETE_BATCH
        ) {
            let command = match call.command {
                sys::BPF_MAP_UPDATE_BATCH => sys::BPF_MAP_UPDATE_ELEM,
                _ => sys::BPF_MAP_DELETE_ELEM,
            };
            while *done < call.count {
                let one = Element {
                    command,
                    map: call.map,
                    key: key_at(*done),
                    value: value_at(*done),
                    flags: call.flags,
                };
                self.element(&one, caller, map)?;
                *done += 1;
            }
            return Ok(0);
        }
        let walk = self.walks.entry((caller.pid, map.loaded().id)).or_default();
        // Places among the keys are what the caller gets as the kernel's places.
        let mut place = match call.from {
            0 => walk.begin(map)?,
            address => {
                let bytes = caller.read(address, 4)?;
                u32::from_ne_bytes(bytes.try_into().expect("4 bytes")) as usize
            }
        };
        while *done < call.count {
            let Some(key) = walk.keys.get(place) else {
                return Err(missing());
            };
            place += 1;
            let Some(value) = value(map, key)? else {
                continue;
            };
            caller.write(key_at(*done), key)?;
            caller.write(value_at(*done), &value)?;
            if call.command == sys::BPF_MAP_LOOKUP_AND_DELETE_BATCH {
                map.delete(key).map_err(number)?;
            }
            *done += 1;
        }
        caller.write(call.to, &(place as u32).to_ne_bytes())?;
        Ok(0)
    }
}

impl Walk {
    /// Begins at the first key. Its place.
    fn begin(&mut self, map: &Map<'_>) -> io::Result<usize> {
        self.keys = map.keys().map_err(number)?;
        self.last = 0;
        Ok(0)
    }
}

/// The value of a key, or a stack's addresses.
fn value(map: &Map<'_>, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
    if !map.has_stacks() {
        return map.get(key).map_err(number);
    }
    let id = u32::from_ne_bytes(key.try_into().map_err(|_| io::ErrorKind::InvalidInput)?);
    let stack = map.stack(id).map_err(number)?;
    Ok(stack.map(|addresses| {
        let mut bytes: Vec<u8> = addresses.iter().flat_map(|one| one.to_ne_bytes()).collect();
        bytes.resize(map.value_bytes(), 0);
        bytes
    }))
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

/// The kernel's number of an error.
fn number(error: probes::Error) -> io::Error {
    let number = match error {
        probes::Error::Map { source, .. } => source.raw_os_error(),
        _ => None,
    };
    io::Error::from_raw_os_error(number.unwrap_or(libc::EINVAL))
}
