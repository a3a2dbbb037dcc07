//! Drivers that make tail calls to a program as the kernel has loaded it (`PROGRAM_WINDOWS`).

#![allow(unsafe_code)]

use std::{
    ffi::CString,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
};

use libbpf_rs::{MapCore as _, MapFlags, libbpf_sys as sys};

use super::{code::Code, native::NativeProgram, raw::RawProgram, restore::Change, spliced::Body};
use crate::{
    error::{Error, Result, failed, lacks},
    run::SharedProgram,
    timed::{self, MapOverrides},
    timing::Loop,
};

/// The table of what drivers make tail calls to, and its slots (`enum program_slot`).
const SLOTS: &str = "program_slots";
const PROGRAM: u32 = 0;
const RETURN: u32 = 1;
/// The most runs of a window, one less than there are tail calls: one more is tried behind it (`PROGRAM_WINDOW`).
const MAX_RUNS: u32 = 32;
/// Tail calls of one run of a driver (`MAX_TAIL_CALL_CNT`).
const TAIL_CALLS: u32 = 33;
/// More than there are (`PROGRAM_PROBES`).
pub(super) const PROBES: u64 = 34;

/// A loaded driver of windows, and the program in it.
pub(super) fn load(
    native: &NativeProgram,
    body: Body,
    change: &Change,
) -> Result<(timed::TimedObject, SharedProgram)> {
    let (object, driver) = native.kind.driver();
    let name = format!("{driver}__windows");
    // What it loops with makes no difference: windows are short, and end by themselves.
    let mut open = timed::OpenObject::open(object, Loop::probe()?)?;
    open.with(&name)?;
    open.map(SLOTS, MapOverrides::default())?;
    for (name, value) in change.constants(native.kind) {
        open.set(name, value)?;
    }
    let c_name = CString::new(name.as_str()).map_err(|_| lacks(object, &name))?;
    // SAFETY: the object is open, and outlives the calls; the name ends with a zero.
    unsafe {
        let program =
            sys::bpf_object__find_program_by_name(open.libbpf().as_ptr(), c_name.as_ptr());
        // Tail calls are made between programs alike.
        if program.is_null()
            || sys::bpf_program__set_expected_attach_type(program, native.raw.attach) != 0
            || sys::bpf_program__set_flags(program, native.raw.flags) != 0
        {
            return Err(lacks(object, &name));
        }
    }
    let object = open.load()?;
    let program = SharedProgram::new(&object.program(&name)?)?;
    let returning = |code| {
        let raw = RawProgram {
            btf: None,
            code: Code::returning(code),
            ..native.raw.clone()
        };
        raw.load_explained()
            .map_err(|error| native.rejected(&error))
    };
    let put = |slot: u32, program: BorrowedFd<'_>| {
        let program = program.as_raw_fd().to_ne_bytes();
        let put = object
            .map(SLOTS)?
            .update(&slot.to_ne_bytes(), &program, MapFlags::ANY);
        put.map_err(failed(SLOTS, "having the kernel make tail calls to it"))
    };
    match body {
        Body::Program => put(PROGRAM, native.program.fd())?,
        Body::Return(code) => put(PROGRAM, returning(code)?.as_fd())?,
    }
    put(RETURN, returning(0)?.as_fd())?;
    Ok((
        object,
        program
            .taking_context(native.kind.takes_context())
            .beside(native.beside.clone()),
    ))
}

/// The runs of a window, if so many tail calls are left behind a window of one run: a power of two, so that batches have whole
/// windows wherever they can.
pub(super) fn runs(native: &NativeProgram, spare: u64) -> Result<u32> {
    // Before Linux 6.11, the tail calls of one run are none of another's.
    let used = u64::from(TAIL_CALLS).saturating_sub(spare).max(1);
    let fitting = u64::from(MAX_RUNS) / used;
    if spare == 0 || fitting == 0 {
        return Err(Error::Refused(format!(
            "{}: a run makes so many tail calls that the kernel, which allows {TAIL_CALLS} together, has none left for a loop",
            native.name
        )));
    }
    Ok(1 << fitting.ilog2())
}
