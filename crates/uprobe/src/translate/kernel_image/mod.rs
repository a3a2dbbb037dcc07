//! The kernel's own machine code of a loaded program, moved to user space: a second opinion on our translator.
//!
//! This is a cross-check, not a way to run probes: it needs root (`/proc/kallsyms` with addresses, unblinded constants),
//! and takes the kernel's inlined helpers only where they work in user space. What changes in the code: calls lead to
//! the table's helpers and the moved subprograms, jumps to the kernel's return thunk are returns, and addresses of
//! maps are replaced.
//!
//! The kernel inlines lookups of arrays: it adds the distance of the values from the beginning of its `struct
//! bpf_array`. So an array's [`super::MapPlace::handle`] must be that much below its values
//! ([`KernelImage::values_offset`]).
//!
//! An error, as they depend on the kernel around them: `may_goto` that looks at the clock (since 6.15), helpers that
//! the kernel inlines as reads of the CPU's data, and helpers that the table does not have, `bpf_loop` among them where
//! the kernel does not inline it.

mod image;
mod symbols;

use std::collections::HashMap;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction as Native, OpKind, Register};

use self::{image::Image, symbols::Symbols};
use super::{
    Backend, FunctionOffset, MachineCode, MapLayout, Program,
    error::{Error, Result},
    function,
    helper_table::HelperTable,
    instruction::{Instruction, pseudo},
};

/// The largest frame of one function, with what the kernel saves.
const FRAME_BYTES: usize = 640;

/// The kernel's translator.
#[derive(Debug)]
pub struct KernelImage {
    symbols: Symbols,
    values_offset: u64,
}

impl KernelImage {
    /// Reads what must be known of the running kernel: its symbols, and the layout of arrays.
    pub fn of_this_kernel() -> Result<Self> {
        Ok(KernelImage {
            symbols: Symbols::read()?,
            values_offset: symbols::array_values_offset()?,
        })
    }

    /// Returns how far the values of an array are from the beginning of its `struct bpf_array`, in bytes.
    pub fn values_offset(&self) -> u64 {
        self.values_offset
    }
}

impl Backend for KernelImage {
    fn name(&self) -> &'static str {
        "kernel image"
    }

    fn translate(
        &self,
        program: &Program<'_>,
        at: u64,
        helpers: &HelperTable,
        maps: &dyn MapLayout,
    ) -> Result<MachineCode> {
        if program.instructions.iter().any(Instruction::is_tail_call) {
            // The jump would lead into the kernel.
            return Err(Error::KernelImage("it makes a tail call".to_owned()));
        }
        let image = Image::read(program.fd)?;
        let addresses = self.constants(program, &image, maps)?;
        let mut moving = Moving {
            image: &image,
            symbols: &self.symbols,
            helpers,
            at,
            bytes: image.code.clone(),
            stubs: HashMap::new(),
        };
        let mut constants = addresses.into_iter();
        let mut offset = 0;
        for (start, length) in image.functions.clone() {
            let code = &image.code[offset..offset + length];
            let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
            for native in decoder {
                let position = offset + (native.ip() - start) as usize;
                moving.instruction(&native, position, &mut constants)?;
            }
            offset += length;
        }
        let functions = function::functions(program.instructions)?;
        // The kernel removes functions that nothing calls: then only the main program's place is known.
        let known = if functions.len() == image.functions.len() {
            functions.len()
        } else {
            1
        };
        let offsets = image.functions.iter().scan(0, |end, (_, length)| {
            let start = *end;
            *end += *length;
            u32::try_from(start).ok()
        });
        Ok(MachineCode {
            bytes: moving.bytes,
            functions: functions
                .iter()
                .zip(offsets)
                .take(known)
                .map(|(function, offset)| FunctionOffset {
                    instruction: function.start,
                    offset,
                })
                .collect(),
            stack_bytes: u32::try_from(functions.len() * FRAME_BYTES).unwrap_or(u32::MAX),
            tail_entry: 0,
            tail_stack_bytes: None,
        })
    }
}

/// A constant of 64 bits that the kernel loads.
#[derive(Clone, Copy, Debug)]
enum Constant {
    /// A number; it stays.
    Number(u64),
    /// A map or a value of one, and where it is in the target.
    Map(u64),
}

impl KernelImage {
    /// The constants that do not fit into 32 bits, in the order of instructions.
    fn constants(
        &self,
        program: &Program<'_>,
        image: &Image,
        maps: &dyn MapLayout,
    ) -> Result<Vec<Constant>> {
        let fds = map_ids(program.instructions)?;
        let fd = |id: i32| {
            let fd = fds.get(&id.cast_unsigned()).copied();
            fd.ok_or_else(|| Error::KernelImage(format!("it uses the unknown map {id}")))
        };
        let mut constants = Vec::new();
        for (index, instruction) in function::each(&image.instructions) {
            if !instruction.is_wide() {
                continue;
            }
            let second = image.instructions.get(index + 1).copied();
            let high = second.unwrap_or_default().immediate.cast_unsigned();
            let low = instruction.immediate.cast_unsigned();
            match instruction.src {
                0 => constants.push(Constant::Number(u64::from(high) << 32 | u64::from(low))),
                pseudo::MAP_FD => {
                    let place = maps.place(fd(instruction.immediate)?)?;
                    let array = place.array;
                    if array.is_some_and(|array| array.values - self.values_offset != place.handle)
                    {
                        let wrong =
                            "an array's handle is not as far from its values as in the kernel";
                        return Err(Error::KernelImage(wrong.to_owned()));
                    }
                    constants.push(Constant::Map(place.handle));
                }
                pseudo::MAP_VALUE => {
                    let place = maps.place(fd(instruction.immediate)?)?;
                    let values = place.array.map_or(0, |array| array.values);
                    constants.push(Constant::Map(values + u64::from(high)));
                }
                // Callbacks are called directly, and their addresses unused.
                _ => {}
            }
        }
        constants.retain(|constant| match constant {
            Constant::Map(_) => true,
            Constant::Number(value) => {
                u32::try_from(*value).is_err() && i32::try_from(value.cast_signed()).is_err()
            }
        });
        Ok(constants)
    }
}

/// The file descriptors that the instructions have, by the ids that the kernel gave those maps.
fn map_ids(instructions: &[Instruction]) -> Result<HashMap<u32, i32>> {
    let mut ids = HashMap::new();
    for (_, instruction) in function::each(instructions) {
        if instruction.is_wide() && matches!(instruction.src, pseudo::MAP_FD | pseudo::MAP_VALUE) {
            ids.insert(image::map_id(instruction.immediate)?, instruction.immediate);
        }
    }
    Ok(ids)
}

/// The code on its way.
struct Moving<'a> {
    image: &'a Image,
    symbols: &'a Symbols,
    helpers: &'a HelperTable,
    at: u64,
    bytes: Vec<u8>,
    /// Jumps to helpers that calls do not reach: where they are, by the helper's address.
    stubs: HashMap<u64, u64>,
}

impl Moving<'_> {
    fn instruction(
        &mut self,
        native: &Native,
        position: usize,
        constants: &mut impl Iterator<Item = Constant>,
    ) -> Result<()> {
        let failed = |why: String| Err(Error::KernelImage(why));
        if native.segment_prefix() == Register::GS {
            return failed("it reads data of the CPU".to_owned());
        }
        match native.code() {
            Code::Mov_r64_imm64 => {
                let found = native.immediate64();
                let Some(constant) = constants.next() else {
                    return failed(format!("the constant {found:#x} is unknown"));
                };
                match constant {
                    Constant::Number(expected) if expected == found => {}
                    Constant::Number(expected) => {
                        return failed(format!("the constant {found:#x} is not {expected:#x}"));
                    }
                    Constant::Map(address) => {
                        self.bytes[position + 2..position + 10]
                            .copy_from_slice(&address.to_le_bytes());
                    }
                }
            }
            Code::Call_rel32_64 => {
                let target = self.call_target(native.near_branch_target())?;
                self.relative(position + 1, target);
            }
            Code::Jmp_rel32_64 | Code::Jmp_rel8_64
                if !self.is_inside(native.near_branch_target()) =>
            {
                let name = self.symbols.name(native.near_branch_target());
                if !name.is_some_and(|name| name.ends_with("return_thunk")) {
                    return failed(format!("it jumps to {}", name.unwrap_or("unknown code")));
                }
                // RET, and INT3 behind it.
                self.bytes[position] = 0xc3;
                self.bytes[position + 1..position + native.len()].fill(0xcc);
            }
            _ if native.op_kinds().any(|kind| kind == OpKind::FarBranch32)
                || native.is_call_near_indirect()
                || native.is_jmp_near_indirect() =>
            {
                return failed("it jumps to an address that is computed".to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn is_inside(&self, address: u64) -> bool {
        let mut functions = self.image.functions.iter();
        functions.any(|(start, length)| (*start..*start + *length as u64).contains(&address))
    }

    /// Returns where a call to this address of the kernel leads in the target.
    fn call_target(&mut self, address: u64) -> Result<u64> {
        let mut offset = 0;
        for (start, length) in &self.image.functions {
            if *start == address {
                return Ok(self.at + offset);
            }
            offset += *length as u64;
        }
        let name = self.symbols.name(address);
        let helper = name
            .and_then(symbols::helper)
            .and_then(|id| self.helpers.address(id));
        let Some(helper) = helper else {
            let name = name.map_or_else(|| format!("unknown code at {address:#x}"), str::to_owned);
            return Err(Error::KernelImage(format!("it calls {name}")));
        };
        let distance = helper.wrapping_sub(self.at).cast_signed();
        if distance.unsigned_abs() < 1 << 30 {
            return Ok(helper);
        }
        if let Some(stub) = self.stubs.get(&helper) {
            return Ok(*stub);
        }
        let stub = self.at + self.bytes.len() as u64;
        // mov r11, helper; jmp r11
        self.bytes.extend_from_slice(&[0x49, 0xbb]);
        self.bytes.extend_from_slice(&helper.to_le_bytes());
        self.bytes.extend_from_slice(&[0x41, 0xff, 0xe3]);
        self.stubs.insert(helper, stub);
        Ok(stub)
    }

    fn relative(&mut self, position: usize, target: u64) {
        let end = self.at + position as u64 + 4;
        let distance = i32::try_from(target.wrapping_sub(end).cast_signed());
        let distance = distance.expect("the code is small, and helpers are near or have stubs");
        self.bytes[position..position + 4].copy_from_slice(&distance.to_le_bytes());
    }
}
