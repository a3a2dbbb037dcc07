//! OpenSSL's functions in a library, or in a program that contains it.

use std::path::Path;

use bpfcost_uprobe::{
    probes::{At, Error, Place},
    process::{self, Function, Image},
};
use libbpf_rs::{ErrorKind, Link, ProgramMut, UprobeMultiOpts, UprobeOpts};

use super::{ENTER, ENTER_EX, LEAVE_READ, LEAVE_WRITE, READ, READ_EX, WRITE, WRITE_EX};
use crate::{
    agent_programs::KernelPrograms,
    error::{Result, failed},
};

/// The programs, and where each runs in a process.
const PLACES: [(&str, At, [&str; 2]); 4] = [
    (ENTER, At::Entry, [READ, WRITE]),
    (ENTER_EX, At::Entry, [READ_EX, WRITE_EX]),
    (LEAVE_READ, At::Return, [READ, READ_EX]),
    (LEAVE_WRITE, At::Return, [WRITE, WRITE_EX]),
];

/// Attaches the kernel's programs to a library for one process. `false`: it has no `SSL_read` or no `SSL_write`.
pub(super) fn uprobes(
    programs: &mut KernelPrograms,
    multi: bool,
    process: u32,
    library: &Path,
) -> Result<bool> {
    let object = &programs.object;
    let at = |program: &str, returns: bool, functions: &[&str]| {
        let program = object.program(program)?;
        let link = |function: &&str| link(&program, multi, returns, process, library, function);
        let links: libbpf_rs::Result<Vec<Link>> = functions.iter().map(link).collect();
        match links {
            Ok(links) => Ok(Some(links)),
            // So it says of a file that is not there, too.
            Err(error) if error.kind() == ErrorKind::NotFound && library.exists() => Ok(None),
            Err(source) => {
                let what = format!("{} of {}", functions.join(", "), library.display());
                Err(failed(what, "attaching a uprobe")(source))
            }
        }
    };
    let Some(mut links) = at(ENTER, false, &[READ, WRITE])? else {
        return Ok(false);
    };
    let newer = at(ENTER_EX, false, &[READ_EX, WRITE_EX])?;
    // Those that the library has, of each.
    let has = if newer.is_some() { 2 } else { 1 };
    links.extend(newer.into_iter().flatten());
    for (program, functions) in [
        (LEAVE_READ, [READ, READ_EX]),
        (LEAVE_WRITE, [WRITE, WRITE_EX]),
    ] {
        let returns = at(program, true, &functions[..has])?;
        links.extend(returns.into_iter().flatten());
    }
    programs.links.append(&mut links);
    Ok(true)
}

/// One link. Those of `uprobe.multi` are let go side by side; others wait for each other.
fn link(
    program: &ProgramMut<'_>,
    multi: bool,
    returns: bool,
    process: u32,
    library: &Path,
    function: &str,
) -> libbpf_rs::Result<Link> {
    let process = process.cast_signed();
    if multi {
        let options = UprobeMultiOpts {
            retprobe: returns,
            ..Default::default()
        };
        // By a pattern, which its name is too: by names, libbpf 1.7 finds none in a stripped library.
        return program.attach_uprobe_multi_with_opts(process, library, function, options);
    }
    let options = UprobeOpts {
        retprobe: returns,
        func_name: Some(function.to_owned()),
        ..Default::default()
    };
    program.attach_uprobe_with_opts(process, library, 0, options)
}

/// Finds those of OpenSSL's functions that a file has.
pub(super) fn functions(process: u32, file: &Path) -> Result<Vec<Function>> {
    let image = Image::of_file(process.cast_signed(), file).map_err(Error::from)?;
    let found = [READ, WRITE, READ_EX, WRITE_EX].map(|name| match image.function(name) {
        Ok(function) => Ok(Some(function)),
        Err(process::Error::NoSymbol { .. }) => Ok(None),
        Err(error) => Err(error),
    });
    let found: process::Result<Vec<Option<Function>>> = found.into_iter().collect();
    Ok(found.map_err(Error::from)?.into_iter().flatten().collect())
}

/// The places of programs at these functions; `None` without `SSL_read` or `SSL_write`.
pub(super) fn places(functions: &[Function]) -> Option<Vec<Place<'_>>> {
    let find = |name: &str| functions.iter().find(|function| function.name == name);
    find(READ).and(find(WRITE))?;
    let places = PLACES.iter().flat_map(|&(program, at, names)| {
        names.into_iter().filter_map(move |name| {
            Some(Place {
                program,
                function: find(name)?,
                at,
                cookie: 0,
            })
        })
    });
    Some(places.collect())
}
