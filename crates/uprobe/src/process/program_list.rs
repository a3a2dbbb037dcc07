//! Code that runs several programs one after the other, where a place has more than one. A site's code calls it as it
//! would call a program.
//!
//! The code is never changed, as a thread may be in it: another list takes its place.

use super::{
    error::{Error, Result},
    layout::{FRAME_COOKIE, Layout, SLOT},
    runtime::Program,
};
use iced_x86::{
    IcedError,
    code_asm::{CodeAssembler, qword_ptr, registers::*},
};

/// The most bytes that a program takes, and those around them.
const PROGRAM: usize = 64;
const AROUND: usize = 16;

/// A program of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Listed {
    pub(super) program: Program,
    /// The slot that counts its runs; none where the site's code does.
    pub(super) slot: Option<u64>,
}

/// The most bytes of a list's code.
pub(super) fn most_bytes(list: &[Listed]) -> usize {
    PROGRAM * list.len() + AROUND
}

/// The code of a list, for an address.
pub(super) fn assemble(address: u64, layout: Layout, list: &[Listed]) -> Result<Vec<u8>> {
    write(address, layout, list).map_err(|error| Error::Code {
        what: "a list of programs".to_owned(),
        reason: error.to_string(),
    })
}

fn write(address: u64, layout: Layout, list: &[Listed]) -> Result<Vec<u8>, IcedError> {
    let mut a = CodeAssembler::new(64)?;
    // Programs preserve it.
    a.push(rbx)?;
    a.mov(rbx, rdi)?;
    // First: the thread runs all of them from here on, even if they are detached meanwhile.
    for slot in list.iter().filter_map(|listed| listed.slot) {
        a.inc(qword_ptr(layout.to_slots() + slot * SLOT).gs())?;
    }
    for Listed { program, .. } in list {
        a.mov(rax, program.cookie)?;
        a.mov(qword_ptr(rbx + FRAME_COOKIE), rax)?;
        a.mov(rdi, rbx)?;
        a.call(program.address)?;
    }
    a.pop(rbx)?;
    a.ret()?;
    a.assemble(address)
}
