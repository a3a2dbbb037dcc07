//! Constants: maps that nothing can change any more, which libbpf makes of `.rodata`.

#![allow(unsafe_code, reason = "asks the kernel")]

use std::{fs, os::fd::AsRawFd as _};

use libbpf_rs::libbpf_sys;

use super::map::LoadedMap;

impl LoadedMap {
    /// Returns its only value, if nothing can change that: programs can't write it, and user space has frozen it. The
    /// verifier takes such values for constants.
    pub fn constants(&self) -> Option<Vec<u8>> {
        let is_constant = self.is_read_only && self.is_array() && self.entries == 1;
        // First: what is read before could still change.
        if !is_constant || !self.is_frozen() {
            return None;
        }
        let key = 0_u32;
        let mut value = vec![0; self.value_size as usize];
        // SAFETY: the kernel reads a key of 4 bytes, and writes as many bytes as a value of this map has.
        let answer = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                self.number(),
                (&raw const key).cast(),
                value.as_mut_ptr().cast(),
            )
        };
        (answer == 0).then_some(value)
    }

    /// Returns whether the map is known to be frozen. Only `/proc` says so.
    fn is_frozen(&self) -> bool {
        let path = format!("/proc/self/fdinfo/{}", self.fd().as_raw_fd());
        fs::read_to_string(path).is_ok_and(|text| text.lines().any(is_frozen))
    }
}

/// Returns whether this line of a map's `fdinfo` says that the map is frozen.
fn is_frozen(line: &str) -> bool {
    let field = line.split_once(':');
    field.is_some_and(|(name, value)| name == "frozen" && value.trim() == "1")
}
