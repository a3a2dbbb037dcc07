//! Code that a function's jump to another function leads to, up to its return.
//!
//! The return address above that code is replaced while it runs ([`super::super::trampoline`]), by one that no table of
//! unwinding has. An exception that passes it ends the process; a thread that is cancelled leaves out the cleanups of its
//! callers. So nothing there may begin either: all of the code is of one file, is called directly or through a resolved
//! entry of the file's own global offset table, and is described by that table of unwinding. To throw and to unwind take a
//! call of a function pointer (the personality, the stop function) or of another file, and a caller's function pointer may
//! do anything.
//!
//! In glibc, two kinds of functions are not followed: those that end the process (`abort`, and what prints the reason
//! first), and the one that reads the allocator's settings in the process's first call of `malloc`, before there is a
//! second thread that could cancel it.

use super::{Image, around};
use crate::process::{memory::Memory, site};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice,
    FrameDescriptionEntry, LittleEndian, ParsedEhFrameHdr, UnwindContext, UnwindSection as _,
};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, SymbolIndex, elf};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Number of functions that are followed from one jump, and bytes of their code.
const FUNCTIONS: usize = 500;
const BYTES: u64 = 1 << 20;
/// The symbol by which the file is glibc's C library, or has it inside.
const FATAL: &str = "__libc_fatal";
/// Other functions that end the process there.
const ENDS: [&str; 6] = [
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__fortify_fail",
    "__stack_chk_fail",
    ABORT,
];
const ABORT: &str = "abort";
/// The end of a process whose stack is damaged: compilers have functions call it.
const STACK_CHECK: &str = "__stack_chk_fail";
/// The function that glibc's own initialisers alone call.
const SETTINGS: &str = "__tunable_get_val";

const NO_FRAME: &str =
    "it leaves by a jump to another function while its own stack frame may be there";
const UNKNOWN: &str = "it leaves by a jump to code that its file says nothing about";
const POINTER: &str = "it leaves by a jump to another function, which may call a function pointer: an exception from there would find no caller";
const OTHER_FILE: &str = "it leaves by a jump to another function, which may call those of other files: an exception from there would find no caller";
const CALLER: &str =
    "it leaves by a jump to another function, which may look at its return address";
const BACK: &str = "it leaves by a jump to code that jumps back into it";
const TOO_MUCH: &str =
    "it leaves by a jump to another function, which may call too many others to look at them all";

/// A jump of a function to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailJump {
    /// Address of the jump.
    pub address: u64,
    /// Reason why the return address must stay as it is there, or `None`.
    pub obstacle: Option<&'static str>,
}

/// Entry of the global offset table.
enum Slot {
    /// The dynamic linker fills it, with this symbol's function.
    Symbol(String),
    /// The function that a resolver chooses is there.
    Resolved,
}

/// A part of a function, and where the caller's stack begins there: so many bytes above a register.
type Row = (Range<u64>, Register, i64);
type Frame<'a> = FrameDescriptionEntry<EndianSlice<'a, LittleEndian>>;

/// A file's code.
pub(super) struct Reach<'a> {
    image: &'a Image,
    file: &'a object::File<'a>,
    /// Added to the file's addresses in the process.
    bias: u64,
    frames: Option<Frames<'a>>,
    slots: BTreeMap<u64, Slot>,
    /// Functions that end the process.
    ends: BTreeSet<u64>,
    settings: Option<u64>,
}

struct Frames<'a> {
    section: EhFrame<EndianSlice<'a, LittleEndian>>,
    /// The address of the section.
    start: u64,
    bases: BaseAddresses,
    index: Index<'a>,
}

/// Place of the frame of an address.
enum Index<'a> {
    /// The file's own table.
    Header(ParsedEhFrameHdr<EndianSlice<'a, LittleEndian>>),
    /// All frames by their first address, for a file without: static programs.
    All(BTreeMap<u64, Frame<'a>>),
}

impl<'a> Frames<'a> {
    fn find(file: &'a object::File<'a>) -> Option<Self> {
        let section = |name| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let (frames_at, frames) = section(".eh_frame")?;
        let mut bases = BaseAddresses::default().set_eh_frame(frames_at);
        let section_of_frames = EhFrame::new(frames, LittleEndian);
        let index = match section(".eh_frame_hdr") {
            Some((at, header)) => {
                bases = bases.set_eh_frame_hdr(at);
                let header = EhFrameHdr::new(header, LittleEndian);
                Index::Header(header.parse(&bases, 8).ok()?)
            }
            None => {
                let mut all = BTreeMap::new();
                let mut entries = section_of_frames.entries(&bases);
                while let Some(entry) = entries.next().ok()? {
                    if let CieOrFde::Fde(partial) = entry {
                        let frame = partial.parse(EhFrame::cie_from_offset).ok()?;
                        all.insert(frame.initial_address(), frame);
                    }
                }
                Index::All(all)
            }
        };
        Some(Frames {
            section: section_of_frames,
            start: frames_at,
            bases,
            index,
        })
    }

    fn at(&self, address: u64) -> Option<Frame<'a>> {
        match &self.index {
            Index::Header(header) => {
                let found = header.table()?.lookup(address, &self.bases).ok()?;
                // A damaged file leads to before the frames.
                let offset = found.direct().ok()?.checked_sub(self.start)?;
                let offset = EhFrameOffset(usize::try_from(offset).ok()?);
                let find = EhFrame::cie_from_offset;
                let frame = self.section.fde_from_offset(&self.bases, offset, find);
                frame.ok().filter(|frame| frame.contains(address))
            }
            Index::All(all) => {
                let (_, frame) = all.range(..=address).next_back()?;
                frame.contains(address).then(|| frame.clone())
            }
        }
    }

    /// The beginning of the caller's stack, from a register, in each part of a function. `None` where that is computed.
    fn rows(&self, frame: &Frame<'a>) -> Option<Vec<Row>> {
        let mut context = UnwindContext::new();
        let mut rows = frame.rows(&self.section, &self.bases, &mut context).ok()?;
        let mut all = Vec::new();
        while let Some(row) = rows.next_row().ok()? {
            let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
                return None;
            };
            let range = row.start_address()..row.end_address();
            all.push((range, general_register(register.0)?, offset));
        }
        Some(all)
    }
}

impl<'a> Reach<'a> {
    pub(super) fn new(image: &'a Image, file: &'a object::File<'a>, bias: u64) -> Self {
        let mut reach = Reach {
            image,
            file,
            bias,
            frames: Frames::find(file),
            slots: slots(file),
            ends: BTreeSet::new(),
            settings: None,
        };
        reach.find_ends();
        reach
    }

    /// Returns why a jump of the function at `function` may not have its return address replaced.
    pub(super) fn obstacle(
        &self,
        jump: &Instruction,
        function: Range<u64>,
    ) -> Option<&'static str> {
        let frames = self.frames.as_ref();
        let rows = frames.and_then(|frames| frames.rows(&frames.at(jump.ip())?));
        let Some((frames, rows)) = frames.zip(rows) else {
            return Some(UNKNOWN);
        };
        let row = row(&rows, jump.ip());
        if row.map(|row| (row.1, row.2)) != Some((Register::RSP, 8)) {
            return Some(NO_FRAME);
        }
        let mut queue = match self.target(jump) {
            Ok(Some(target)) => vec![target],
            Ok(None) => return None,
            Err(reason) => return Some(reason),
        };
        let (mut seen, mut bytes) = (BTreeSet::new(), 0_u64);
        while let Some(address) = queue.pop() {
            if function.contains(&address) && address != function.start {
                return Some(BACK);
            }
            let Some(frame) = frames.at(address) else {
                return Some(UNKNOWN);
            };
            if !seen.insert(frame.initial_address()) {
                continue;
            }
            bytes = bytes.saturating_add(frame.len());
            if seen.len() > FUNCTIONS || bytes > BYTES {
                return Some(TOO_MUCH);
            }
            match self.callees(frames, &frame) {
                Ok(more) => queue.extend(more),
                Err(reason) => return Some(reason),
            }
        }
        None
    }

    /// The functions that one calls, or jumps to.
    fn callees(&self, frames: &Frames<'a>, frame: &Frame<'a>) -> Result<Vec<u64>, &'static str> {
        let range = frame.initial_address()..frame.end_address();
        let rows = frames.rows(frame).ok_or(UNKNOWN)?;
        let mut callees = Vec::new();
        for instruction in self.decode(range.clone()).ok_or(UNKNOWN)? {
            if instruction.is_invalid() {
                return Err(UNKNOWN);
            }
            let at = instruction.ip();
            let &(_, register, offset) = row(&rows, at).ok_or(UNKNOWN)?;
            let has_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
            if has_memory
                && instruction.memory_base() == register
                && instruction.memory_index() == Register::None
                && instruction.memory_displacement64() as i64 == offset - 8
            {
                return Err(CALLER);
            }
            let leads = match instruction.flow_control() {
                FlowControl::Call => instruction.code() != Code::Syscall,
                FlowControl::IndirectCall
                | FlowControl::IndirectBranch
                | FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                | FlowControl::XbeginXabortXend => true,
                FlowControl::Next
                | FlowControl::Return
                | FlowControl::Interrupt
                | FlowControl::Exception => false,
            };
            if !leads || matches!(instruction.code(), Code::Xend | Code::Xabort_imm8) {
                continue;
            }
            if self.is_settings(&instruction) {
                return Ok(Vec::new());
            }
            let callee = self.target(&instruction)?;
            let is_call = instruction.flow_control() == FlowControl::Call;
            callees.extend(callee.filter(|callee| is_call || !range.contains(callee)));
        }
        Ok(callees)
    }

    /// The function that a call or a jump leads to; `None` where that ends the process.
    fn target(&self, instruction: &Instruction) -> Result<Option<u64>, &'static str> {
        let slot = match self.slot(instruction) {
            Some(slot) => slot,
            None if instruction.op0_kind() == OpKind::NearBranch64 => {
                let target = instruction.near_branch_target();
                return Ok(Some(target).filter(|target| !self.ends.contains(target)));
            }
            None => return Err(POINTER),
        };
        match self.slots.get(&slot) {
            None => return Err(POINTER),
            Some(Slot::Symbol(name)) if name == STACK_CHECK => return Ok(None),
            Some(_) => {}
        }
        // The dynamic linker writes it once.
        let address = Memory::open(self.image.pid)
            .and_then(|memory| memory.read_u64(slot.wrapping_add(self.bias)))
            .map_err(|_| OTHER_FILE)?;
        let target = address.wrapping_sub(self.bias);
        let mut sections = self.file.sections();
        let section = sections
            .find(|one| super::span(one.address(), one.size()).contains(&target))
            .filter(|_| self.image.mapping(address).is_some());
        // It leads back to its stub before it is written.
        let is_own =
            section.is_some_and(|one| one.name().is_ok_and(|name| !name.starts_with(".plt")));
        if !is_own {
            return Err(OTHER_FILE);
        }
        Ok(Some(target).filter(|target| !self.ends.contains(target)))
    }

    /// The address of the pointer that leads a call or a jump on, also where a stub of the procedure linkage table is in
    /// between.
    fn slot(&self, instruction: &Instruction) -> Option<u64> {
        let read = |one: &Instruction| {
            let is_pointer = one.op0_kind() == OpKind::Memory && one.is_ip_rel_memory_operand();
            is_pointer.then(|| one.ip_rel_memory_address())
        };
        if instruction.op0_kind() != OpKind::NearBranch64 {
            return read(instruction);
        }
        let stub = instruction.near_branch_target();
        let mut code = self.decode(stub..stub.checked_add(16)?)?.into_iter();
        let mut next = code.next()?;
        if next.code() == Code::Endbr64 {
            next = code.next()?;
        }
        let is_jump = next.flow_control() == FlowControl::IndirectBranch;
        read(&next).filter(|_| is_jump)
    }

    fn is_settings(&self, instruction: &Instruction) -> bool {
        if self.ends.is_empty() {
            return false; // The file is not glibc's.
        }
        let slot = self.slot(instruction).map(|slot| self.slots.get(&slot));
        match slot {
            Some(slot) => matches!(slot, Some(Slot::Symbol(name)) if name == SETTINGS),
            None => {
                instruction.op0_kind() == OpKind::NearBranch64
                    && self.settings == Some(instruction.near_branch_target())
            }
        }
    }

    fn decode(&self, range: Range<u64>) -> Option<Vec<Instruction>> {
        let code = around::code(self.file, range.clone())?;
        let decoder = Decoder::with_ip(64, code, range.start, DecoderOptions::NONE);
        Some(decoder.into_iter().collect())
    }

    /// Looks for glibc's functions that end the process. Its message has no symbol: `__libc_fatal` calls it, and it calls
    /// `abort`.
    fn find_ends(&mut self) {
        let mut named = BTreeMap::new();
        for symbol in self.file.symbols().chain(self.file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            let is_wanted = ENDS.contains(&name) || [FATAL, SETTINGS].contains(&name);
            if is_wanted && symbol.is_definition() {
                named.insert(name, symbol.address());
            }
        }
        let (Some(&fatal), Some(&abort)) = (named.get(FATAL), named.get(ABORT)) else {
            return;
        };
        self.settings = named.remove(SETTINGS);
        self.ends.extend(named.values());
        let calls = |address: u64| -> Vec<u64> {
            let frame = self.frames.as_ref().and_then(|frames| frames.at(address));
            let range = frame.map(|frame| frame.initial_address()..frame.end_address());
            let code = range.and_then(|range| self.decode(range));
            let calls = code.unwrap_or_default().into_iter();
            let near = calls.filter(|one| one.code() == Code::Call_rel32_64);
            near.map(|one| one.near_branch_target()).collect()
        };
        let messages: Vec<u64> = calls(fatal)
            .into_iter()
            .filter(|&callee| calls(callee).contains(&abort))
            .collect();
        self.ends.extend(messages);
    }
}

/// The row of an address. The rows of a function are in order.
fn row(rows: &[Row], address: u64) -> Option<&Row> {
    let next = rows.partition_point(|(range, ..)| range.start <= address);
    let row = rows.get(next.checked_sub(1)?)?;
    row.0.contains(&address).then_some(row)
}

/// The entries of the global offset table that the dynamic linker fills with functions.
fn slots(file: &object::File<'_>) -> BTreeMap<u64, Slot> {
    let symbols = file.dynamic_symbol_table();
    let mut slots = BTreeMap::new();
    for section in file.sections() {
        let is_relocations = section.name().is_ok_and(|name| name.starts_with(".rela"));
        let (true, Ok(data)) = (is_relocations, section.data()) else {
            continue;
        };
        for entry in data.chunks_exact(24) {
            let number =
                |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
            let (slot, kind, symbol) = (number(0), number(8) as u32, number(8) >> 32);
            let name = || {
                let index = SymbolIndex(symbol as usize);
                let symbol = symbols.as_ref()?.symbol_by_index(index).ok()?;
                symbol.name().ok().map(str::to_owned)
            };
            let slot_of = match kind {
                elf::R_X86_64_IRELATIVE => Some(Slot::Resolved),
                elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => name().map(Slot::Symbol),
                _ => None,
            };
            if let Some(one) = slot_of {
                slots.insert(slot, one);
            }
        }
    }
    slots
}

/// A general register by its number in tables of unwinding.
fn general_register(number: u16) -> Option<Register> {
    use Register::*;
    const ALL: [Register; 16] = [
        RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15,
    ];
    ALL.get(usize::from(number)).copied()
}

/// The jumps of a function to others. `address` is the function's in the file.
pub(super) fn tail_jumps(
    image: &Image,
    file: &object::File<'_>,
    function: &super::Function,
    address: u64,
) -> Vec<TailJump> {
    let jumps = site::tail_jumps(function);
    if function.is_go || jumps.is_empty() {
        return Vec::new();
    }
    let bias = function.address.wrapping_sub(address);
    let reach = Reach::new(image, file, bias);
    let code = super::span(address, function.code.len() as u64);
    jumps
        .into_iter()
        .map(|at| {
            // Decoded at the file's address, as all that it leads to is.
            let from = at.wrapping_sub(bias);
            let found = reach.decode(from..code.end);
            let jump = found.and_then(|code| code.first().copied());
            TailJump {
                address: at,
                obstacle: jump.map_or(Some(UNKNOWN), |jump| reach.obstacle(&jump, code.clone())),
            }
        })
        .collect()
}
