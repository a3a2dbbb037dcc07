//! A copy of a program that says where in the kernel's memory the machine code of each of its instructions lies, so that
//! a trace of addresses becomes one of source lines and calls.
//!
//! The kernel tells addresses for the entries of a program's line table only. So the copy is loaded with a table of its
//! own, in which each instruction is a line, and the object's own table is kept aside.

#![allow(unsafe_code)]

use std::{collections::BTreeMap, ffi::CStr};

use libbpf_rs::{
    AsRawLibbpf as _, Btf, Object,
    btf::{
        TypeId,
        types::{Enum, Func},
    },
    libbpf_sys::{self as sys, bpf_insn, bpf_line_info},
};
use serde::{Deserialize, Serialize};

use super::{
    code::{helper, is_kernel_function},
    native::{NativeProgram, records, taken_once},
    raw::{self, RawProgram},
};
use crate::{
    error::{Result, failed},
    run::{self, SharedProgram},
};

/// The kernel keeps a line's number above its column's bits.
const COLUMN_BITS: u32 = 10;
/// The kernel's list of helpers, and what their names begin with there.
const HELPERS: &str = "bpf_func_id";
const HELPER_PREFIX: &str = "BPF_FUNC_";

/// Machine code of a loaded program, in the kernel's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineCode {
    /// Functions, the program itself first.
    pub functions: Vec<MachineFunction>,
}

/// Machine code of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFunction {
    /// First address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
}

impl MachineCode {
    /// The function in which an address is.
    pub fn function(&self, address: u64) -> Option<&MachineFunction> {
        let mut functions = self.functions.iter();
        functions.find(|one| (one.start..one.end).contains(&address))
    }
}

/// A line of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// The file, as the compiler was given it.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
    /// Text of the line.
    pub text: String,
}

/// Source line and call at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePlace<'a> {
    /// The line that it was compiled from.
    pub line: Option<&'a SourceLine>,
    /// The helper or function of the kernel that the instruction calls, if it calls one.
    pub call: Option<String>,
}

/// The copy. Dropping it frees it.
#[derive(Debug)]
pub struct Traceable {
    program: SharedProgram,
    code: MachineCode,
    /// The instructions by the first addresses of their machine code; the last of those with one address has code.
    addresses: BTreeMap<u64, usize>,
    instructions: Vec<bpf_insn>,
    /// The lines by their first instructions.
    lines: BTreeMap<usize, SourceLine>,
    types: Option<Btf<'static>>,
}

impl Traceable {
    /// Loads it beside a program whose maps it shares; `None` if the object has no line numbers.
    pub fn load(native: &NativeProgram) -> Result<Option<Self>> {
        let lines = source_lines(native);
        if lines.is_empty() {
            return Ok(None);
        }
        let instructions = native.raw.code.instructions.clone();
        let raw = RawProgram {
            lines: numbered(&instructions),
            ..native.raw.clone()
        };
        let fd = raw.load_explained();
        let fd = fd.map_err(|error| taken_once(&native.file, &native.name, &error))?;
        let places = raw::places(&fd).map_err(failed(&*native.name, "asking for its addresses"))?;
        let number = |line: &bpf_line_info| (line.line_col >> COLUMN_BITS) as usize;
        let addresses: BTreeMap<u64, usize> = places
            .line_addresses
            .iter()
            .copied()
            .zip(places.lines.iter().map(number))
            .collect();
        let function = |(&start, &length): (&u64, &u32)| MachineFunction {
            start,
            end: start + u64::from(length),
        };
        let functions = places.functions.iter().zip(&places.lengths);
        Ok(Some(Traceable {
            program: SharedProgram::of_fd(&native.name, fd)
                .taking_context(native.kind.takes_context())
                .beside(native.beside.clone()),
            code: MachineCode {
                functions: functions.map(function).collect(),
            },
            addresses,
            instructions,
            lines,
            types: Btf::from_vmlinux().ok(),
        }))
    }

    /// Machine code of the copy.
    pub fn machine_code(&self) -> &MachineCode {
        &self.code
    }

    /// Runs it once; what it returns.
    pub fn run(&self, cpu: u32, packet: &[u8]) -> Result<u32> {
        Ok(run::on_cpu(&self.program, cpu, packet)?.code)
    }

    /// Finds the source line and call at an address.
    pub fn place(&self, address: u64) -> Option<CodePlace<'_>> {
        let function = self.code.function(address)?;
        let (_, &number) = self.addresses.range(function.start..=address).next_back()?;
        let instruction = self.instructions.get(number)?;
        Some(CodePlace {
            line: self
                .lines
                .range(..=number)
                .next_back()
                .map(|(_, line)| line),
            call: self.called(instruction),
        })
    }

    /// The name of what an instruction calls outside of the program.
    fn called(&self, instruction: &bpf_insn) -> Option<String> {
        if let Some(number) = helper(instruction) {
            let helpers = self
                .types
                .as_ref()
                .and_then(|types| types.type_by_name::<Enum<'_>>(HELPERS));
            let named = helpers.and_then(|all| {
                let mut members = all.iter();
                let member = members.find(|one| one.value == i64::from(number))?;
                Some(member.name?.to_string_lossy().replace(HELPER_PREFIX, ""))
            });
            return Some(named.unwrap_or_else(|| format!("helper {number}")));
        }
        is_kernel_function(instruction).then(|| {
            let number = TypeId::from(instruction.imm.cast_unsigned());
            let function = self
                .types
                .as_ref()
                .and_then(|types| types.type_by_id::<Func<'_>>(number));
            // That of a module has its own types.
            let name = function
                .filter(|_| instruction.off == 0)
                .and_then(|one| Some(one.name()?.to_owned()));
            name.map_or_else(
                || "a function of a module".to_owned(),
                |name| name.to_string_lossy().into_owned(),
            )
        })
    }
}

/// A line table in which each instruction is a line with the instruction's number.
fn numbered(instructions: &[bpf_insn]) -> Vec<bpf_line_info> {
    // The second half of one that loads 64 bits is none.
    let begins = |(_, one): &(usize, &bpf_insn)| one.code != 0;
    let numbers = instructions.iter().enumerate().filter(begins);
    let line = |(number, _): (usize, &bpf_insn)| bpf_line_info {
        insn_off: number as u32,
        line_col: (number as u32) << COLUMN_BITS,
        ..bpf_line_info::default()
    };
    numbers.map(line).collect()
}

/// The object's own lines, by the instructions at which they begin.
fn source_lines(native: &NativeProgram) -> BTreeMap<usize, SourceLine> {
    let program = native
        .object
        .progs()
        .find(|one| one.name() == native.name.as_str());
    let Some(program) = program else {
        return BTreeMap::new();
    };
    let program = program.as_libbpf_object().as_ptr();
    // SAFETY: a loaded program, which lives as long as its object, and owns the records.
    let lines: Vec<bpf_line_info> = unsafe {
        records(
            sys::bpf_program__line_info(program),
            sys::bpf_program__line_info_cnt(program),
        )
    };
    let line = |one: &bpf_line_info| (one.insn_off as usize, source_line(&native.object, one));
    lines.iter().map(line).collect()
}

/// The line that a record of a loaded program tells.
pub(crate) fn source_line(object: &Object, record: &bpf_line_info) -> SourceLine {
    let text = |offset: u32| {
        // SAFETY: the object has types if it has lines, and they live as long as it; the text ends with a zero.
        unsafe {
            let types = sys::bpf_object__btf(object.as_libbpf_object().as_ptr());
            if types.is_null() {
                return String::new();
            }
            let text = sys::btf__name_by_offset(types, offset);
            if text.is_null() {
                return String::new();
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    };
    SourceLine {
        file: text(record.file_name_off),
        line: record.line_col >> COLUMN_BITS,
        text: text(record.line_off).trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instruction_is_a_line_and_half_ones_are_none() {
        let of = |code| bpf_insn {
            code,
            ..bpf_insn::default()
        };
        let lines = numbered(&[of(0x18), of(0), of(0xb7), of(0x95)]);
        let numbers: Vec<_> = lines
            .iter()
            .map(|one| (one.insn_off, one.line_col >> 10))
            .collect();
        assert_eq!(numbers, [(0, 0), (2, 2), (3, 3)]);
    }
}
