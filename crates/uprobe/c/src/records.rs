//! Records of ring buffers and lines of text that programs write.

#![allow(
    unsafe_code,
    reason = "pointers from C are read, functions of C called, and functions exported by their names"
)]

use super::{
    argument::{null, text, write},
    failure::answer,
    handle::{Handle, locked},
};
use std::ffi::{c_char, c_int, c_void};

/// `bpfcost_uprobe_record_fn`.
type RecordFn =
    unsafe extern "C" fn(context: *mut c_void, pid: c_int, record: *const c_void, size: usize);

/// `bpfcost_uprobe_line_fn`.
type LineFn = unsafe extern "C" fn(context: *mut c_void, line: *const Line);

/// `struct bpfcost_uprobe_line`.
#[repr(C)]
struct Line {
    pid: c_int,
    thread: u32,
    cpu: u32,
    reserved: u32,
    time: u64,
    text: *const c_char,
    size: usize,
}

/// Gives the records of a ring buffer to a function.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_records(
    handle: *mut Handle,
    map: *const c_char,
    take: Option<RecordFn>,
    context: *mut c_void,
) -> c_int {
    answer(|| {
        let take = take.ok_or_else(|| null("the function"))?;
        // SAFETY: the caller keeps to the header, here and below.
        let mut opened = unsafe { locked(handle) }?;
        // SAFETY: the same.
        let map = unsafe { text(map, "the name of a map") }?;
        // An error where it is no ring, also while no process has it.
        opened.probes.map(map)?.dropped()?;
        opened.probes.consume(map, |pid, record| {
            // SAFETY: the same; the bytes live through the call.
            unsafe { take(context, pid, record.as_ptr().cast(), record.len()) };
        })?;
        Ok(())
    })
}

/// Writes how many records the rings had no room for.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_lost_records(
    handle: *mut Handle,
    map: *const c_char,
    lost: *mut u64,
) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header, here and below.
        let opened = unsafe { locked(handle) }?;
        // SAFETY: the same.
        let dropped = unsafe { opened.map(map) }?.dropped()?;
        // SAFETY: the same.
        unsafe { write(lost, dropped, "the place for the number") }
    })
}

/// Gives the lines that programs wrote to a function.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_lines(
    handle: *mut Handle,
    take: Option<LineFn>,
    context: *mut c_void,
) -> c_int {
    answer(|| {
        let take = take.ok_or_else(|| null("the function"))?;
        // SAFETY: the caller keeps to the header, here and below.
        let mut opened = unsafe { locked(handle) }?;
        opened.probes.trace(|line| {
            let line = Line {
                pid: line.pid,
                thread: line.thread,
                cpu: line.cpu,
                reserved: 0,
                time: line.time,
                text: line.text.as_ptr().cast(),
                size: line.text.len(),
            };
            // SAFETY: the same; the line and its text live through the call.
            unsafe { take(context, &raw const line) };
        })?;
        Ok(())
    })
}

/// Writes how many lines there was no room for.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_lost_lines(handle: *mut Handle, lost: *mut u64) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header, here and below.
        let dropped = unsafe { locked(handle) }?.probes.trace_dropped();
        // SAFETY: the same.
        unsafe { write(lost, dropped, "the place for the number") }
    })
}
