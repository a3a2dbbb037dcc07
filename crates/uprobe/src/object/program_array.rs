//! Arrays of programs, for tail calls: which programs the kernel has in them. libbpf puts those there that the object's
//! source names.

#![allow(unsafe_code, reason = "asks the kernel")]

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    ptr,
};

use libbpf_rs::{MapType, Program, libbpf_sys};

use super::{
    error::{Error, Result},
    loading::{LoadedObject, LoadedProgram},
    map::LoadedMap,
};

impl LoadedMap {
    /// Returns whether it is an array of programs.
    pub fn is_program_array(&self) -> bool {
        self.kind == MapType::ProgArray
    }

    /// The slots of an array of programs that are not empty, with the kernel's numbers of the programs.
    fn slots(&self) -> Result<Vec<(u32, u32)>> {
        let mut slots = Vec::new();
        for index in 0..self.entries {
            let mut id = 0_u32;
            // SAFETY: the kernel reads a key of 4 bytes and writes a value of 4 bytes.
            let answer = unsafe {
                libbpf_sys::bpf_map_lookup_elem(
                    self.fd().as_raw_fd(),
                    (&raw const index).cast(),
                    (&raw mut id).cast(),
                )
            };
            match io::Error::last_os_error() {
                _ if answer == 0 => slots.push((index, id)),
                error if error.kind() == io::ErrorKind::NotFound => {}
                error => return Err(self.failed(error)),
            }
        }
        Ok(slots)
    }

    /// Puts a program into a slot of the kernel's array, or empties the slot.
    pub(crate) fn set_slot(&self, index: u32, program: Option<&LoadedProgram>) -> Result<()> {
        let map = self.fd().as_raw_fd();
        let key = (&raw const index).cast();
        let answer = match program {
            Some(program) => {
                let fd = program.fd().as_raw_fd();
                // SAFETY: the kernel reads a key and a value of 4 bytes.
                unsafe { libbpf_sys::bpf_map_update_elem(map, key, (&raw const fd).cast(), 0) }
            }
            // SAFETY: the kernel reads a key of 4 bytes.
            None => unsafe { libbpf_sys::bpf_map_delete_elem(map, key) },
        };
        match io::Error::last_os_error() {
            _ if answer == 0 => Ok(()),
            // It was empty.
            error if program.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(()),
            error => Err(self.failed(error)),
        }
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Slots {
            map: self.name.clone(),
            source,
        }
    }
}

impl LoadedObject {
    /// The programs of an array of programs, by their slots.
    pub fn programs_of(&self, map: &LoadedMap) -> Result<Vec<(u32, &LoadedProgram)>> {
        let slots = map.slots()?;
        if slots.is_empty() {
            return Ok(Vec::new());
        }
        let id = |program: &LoadedProgram| Program::id_from_fd(program.fd().as_fd());
        let ids = self.programs().iter().map(id);
        let ids: Vec<u32> = ids
            .collect::<libbpf_rs::Result<_>>()
            .map_err(|error| map.failed(io::Error::other(error)))?;
        let known = |(index, id): (u32, u32)| {
            let program = ids.iter().position(|known| *known == id);
            let program = program.ok_or_else(|| Error::OtherProgram {
                map: map.name.clone(),
                index,
            })?;
            Ok((index, &self.programs()[program]))
        };
        slots.into_iter().map(known).collect()
    }

    /// Returns whether a program is in an array of programs.
    pub fn is_in_array(&self, program: &LoadedProgram) -> Result<bool> {
        for map in self.maps().iter().filter(|map| map.is_program_array()) {
            let programs = self.programs_of(map)?;
            if programs.iter().any(|(_, one)| ptr::eq(*one, program)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A program, and those that it may reach by tail calls.
    pub fn reachable<'a>(&'a self, program: &'a LoadedProgram) -> Result<Vec<&'a LoadedProgram>> {
        let mut all = vec![program];
        let mut arrays: Vec<&LoadedMap> = Vec::new();
        let mut next = 0;
        while let Some(program) = all.get(next).copied() {
            next += 1;
            for map in self.maps() {
                let is_done = arrays.iter().any(|done| ptr::eq(*done, map));
                if !map.is_program_array() || is_done || !program.uses(map) {
                    continue;
                }
                arrays.push(map);
                for (_, called) in self.programs_of(map)? {
                    if !all.iter().any(|one| ptr::eq(*one, called)) {
                        all.push(called);
                    }
                }
            }
        }
        Ok(all)
    }
}
