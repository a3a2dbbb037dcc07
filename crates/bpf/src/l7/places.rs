//! Places of the programs in a process: functions of Go and sockets that are open.

use std::{fs, os::unix::ffi::OsStrExt as _, path::Path};

use bpfcost_uprobe::{
    probes::{At, Error, Place},
    process::{Function, Image},
};
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts};

use super::{ServerFunctions, TLS_ENTER, TLS_RETURN};
use crate::{
    error::{Result, failed},
    shared,
};

/// Finds the functions of a process, with the cookie of each one's entry program.
pub(super) fn find(process: u32, functions: &ServerFunctions) -> Result<Vec<(Function, u64)>> {
    let image = Image::of_program(process.cast_signed()).map_err(Error::from)?;
    let functions = functions.with_kinds().into_iter();
    let found = functions.map(|(function, cookie)| {
        let found = image.go_function(&function.name, function.offset, function.bytes);
        Ok((found.map_err(Error::from)?, cookie))
    });
    found.collect()
}

/// Places in the process for the programs of these functions.
pub(super) fn in_process(functions: &[(Function, u64)]) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    for (function, cookie) in functions {
        let place = |program, at| Place {
            program,
            function,
            at,
            cookie: *cookie,
        };
        places.push(place(TLS_ENTER, At::Entry));
        if *cookie != u64::from(shared::l7_kind::L7_CLOSE) {
            places.push(place(TLS_RETURN, At::Return));
        }
    }
    places
}

/// Attaches a program of the kernel to places in the program of a process, each with a cookie.
pub(super) fn uprobes(
    program: &ProgramMut<'_>,
    process: u32,
    places: &[(usize, u64)],
) -> Result<Link> {
    let file = format!("/proc/{process}/exe");
    let options = UprobeMultiOpts {
        offsets: places.iter().map(|(offset, _)| *offset).collect(),
        cookies: places.iter().map(|(_, cookie)| *cookie).collect(),
        ..Default::default()
    };
    let link = program.attach_uprobe_multi_with_opts(process.cast_signed(), file, "", options);
    link.map_err(failed(
        format!("process {process}"),
        "attaching uprobes to its program",
    ))
}

/// The descriptors of a process that are sockets.
pub(super) fn sockets(process: u32) -> Vec<u32> {
    let folder = fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"));
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let is_one = target.as_os_str().as_bytes().starts_with(b"socket:");
        is_one.then(|| entry.file_name().to_str()?.parse().ok())?
    };
    folder
        .into_iter()
        .flatten()
        .filter_map(|entry| socket(entry.ok()?))
        .collect()
}
