//! The maps of a program in a BPF file system of its own, for a person's loader.

#![allow(unsafe_code)]

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::ffi::OsStrExt as _,
    },
    path::PathBuf,
};

use libbpf_rs::{MapCore as _, Object, libbpf_sys as sys};

use crate::{
    error::{Result, failed},
    mount::{self, MountedFs},
};

/// Pinned maps, each by its name. The file system is mounted nowhere: it is gone when this is dropped, and when this process
/// ends, however it does.
#[derive(Debug)]
pub struct PinnedMaps(MountedFs);

impl PinnedMaps {
    /// The folder with the pins, as other processes find it.
    pub fn folder(&self) -> PathBuf {
        self.0.path_for_others()
    }

    /// All maps of a loaded object that have names.
    pub(crate) fn of_object(object: &Object) -> Result<Self> {
        let pinned = PinnedMaps(mount::open("bpf")?);
        for map in object.maps().filter(|map| map.autocreate()) {
            let name = map.name().to_string_lossy().into_owned();
            // Sections are maps too, with a dot in their names, and a file system does not take it.
            if name.contains('.') {
                continue;
            }
            let path = pinned.0.path(&name);
            let pin = CString::new(path.as_os_str().as_bytes())
                .map_err(io::Error::other)
                .and_then(|path| {
                    // SAFETY: the descriptor is open, and the path ends with a zero.
                    match unsafe { sys::bpf_obj_pin(map.as_fd().as_raw_fd(), path.as_ptr()) } {
                        0 => Ok(()),
                        error => Err(io::Error::from_raw_os_error(-error)),
                    }
                });
            pin.map_err(failed(name, "pinning it for --setup"))?;
        }
        Ok(pinned)
    }
}
