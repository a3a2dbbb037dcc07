//! Our translator: two passes over a program, one function after the other.

use super::{
    Backend, FunctionOffset, MachineCode, MapLayout, MapPlace, Program,
    assembler::{Assembler, R8, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, Reg},
    dead_code::without_dead_code,
    error::{Error, Result},
    function::{self, Function},
    helper_table::HelperTable,
    instruction::{FRAME, Instruction, class, pseudo},
    labels::Label,
    map_use::{MapUse, map_uses},
    maps::{ArenaPlace, ArrayPlace},
    pointers::{ArenaUse, arena_uses},
};

/// R0 to R10, as the kernel has them on x86-64: arguments and results of helpers need no moves.
const REGISTERS: [Reg; 11] = [RAX, RDI, RSI, RDX, RCX, R8, RBX, R13, R14, R15, RBP];

/// Stack that `bpf_loop` takes with the return address of its call (`control.rs`).
const LOOP_STACK: u32 = 6 * 8;
/// Stack that asking for a page of an arena takes: the return address and seven registers (`arena.rs`).
const TOUCH_STACK: u32 = 8 * 8;

/// Our own translator of BPF to x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translator {
    /// True if to use the shifts of BMI2, which every x86-64-v3 CPU has.
    pub has_bmi2: bool,
}

impl Translator {
    /// A translator to the instructions of this machine's CPU.
    pub fn of_this_machine() -> Self {
        Translator {
            has_bmi2: std::arch::is_x86_feature_detected!("bmi2"),
        }
    }
}

impl Backend for Translator {
    fn name(&self) -> &'static str {
        "translator"
    }

    fn translate(
        &self,
        program: &Program<'_>,
        at: u64,
        helpers: &HelperTable,
        maps: &dyn MapLayout,
    ) -> Result<MachineCode> {
        if program.instructions.is_empty() {
            return Err(Error::Malformed {
                instruction: 0,
                what: "the program is empty",
            });
        }
        let instructions = &without_dead_code(program.instructions, &|fd| maps.constants(fd));
        let functions = function::functions(instructions)?;
        let labels = Numbering {
            instructions: instructions.len(),
            functions: functions.len(),
        };
        let mut pass = Pass {
            program: instructions,
            functions: &functions,
            current: 0,
            helpers,
            maps: Maps::new(maps),
            uses: &map_uses(instructions),
            arena: None,
            arena_uses: Vec::new(),
            has_bmi2: self.has_bmi2,
            has_loop: false,
            has_touch: false,
            tail_entry: 0,
            labels,
            code: Assembler::new(at, labels.count()),
        };
        pass.find_arena()?;
        pass.write()?;
        if pass.code.has_jumps() {
            pass.code = pass.code.again();
            pass.write()?;
        }
        let unbound = |label: Label| Error::Malformed {
            instruction: label.0,
            what: "a jump leads into the middle of an instruction",
        };
        let loop_stack = if pass.has_loop { LOOP_STACK } else { 0 };
        let stack = function::stack(&functions, loop_stack)?;
        let touch_stack = if pass.has_touch { TOUCH_STACK } else { 0 };
        let tail_entry = pass.tail_entry;
        let (bytes, offsets) = pass.code.finish().map_err(unbound)?;
        Ok(MachineCode {
            bytes,
            functions: functions
                .iter()
                .enumerate()
                .map(|(index, function)| FunctionOffset {
                    instruction: function.start,
                    offset: offsets[labels.function(index).0],
                })
                .collect(),
            stack_bytes: stack.deepest + touch_stack,
            tail_entry,
            tail_stack_bytes: stack.below_tail_call,
        })
    }
}

/// Numbers of labels: one for each instruction, each function's beginning and end, the loop, and what asks for pages.
#[derive(Clone, Copy, Debug)]
struct Numbering {
    instructions: usize,
    functions: usize,
}

impl Numbering {
    fn function(self, index: usize) -> Label {
        Label(self.instructions + index)
    }

    fn exit(self, index: usize) -> Label {
        Label(self.instructions + self.functions + index)
    }

    fn loop_function(self) -> Label {
        Label(self.instructions + 2 * self.functions)
    }

    fn touch_function(self) -> Label {
        Label(self.instructions + 2 * self.functions + 1)
    }

    fn count(self) -> usize {
        self.instructions + 2 * self.functions + 2
    }
}

/// The places of maps, asked for once each.
struct Maps<'a> {
    layout: &'a dyn MapLayout,
    known: Vec<(i32, MapPlace)>,
}

impl<'a> Maps<'a> {
    fn new(layout: &'a dyn MapLayout) -> Self {
        Maps {
            layout,
            known: Vec::new(),
        }
    }

    fn place(&mut self, fd: i32) -> Result<MapPlace> {
        if let Some((_, place)) = self.known.iter().find(|(known, _)| *known == fd) {
            return Ok(*place);
        }
        let place = self.layout.place(fd)?;
        self.known.push((fd, place));
        Ok(place)
    }

    fn array(&self, fd: i32) -> Option<ArrayPlace> {
        let (_, place) = self.known.iter().find(|(known, _)| *known == fd)?;
        place.array
    }
}

/// One pass over a program.
pub(super) struct Pass<'a> {
    pub(super) program: &'a [Instruction],
    functions: &'a [Function],
    /// The index of the function that is written.
    current: usize,
    pub(super) helpers: &'a HelperTable,
    maps: Maps<'a>,
    uses: &'a [MapUse],
    /// The arena, if the program has one, and which instructions work on it.
    pub(super) arena: Option<ArenaPlace>,
    arena_uses: Vec<ArenaUse>,
    pub(super) has_bmi2: bool,
    /// True if `bpf_loop` is called.
    pub(super) has_loop: bool,
    /// True if there are accesses to an arena.
    pub(super) has_touch: bool,
    /// Label at which tail calls enter the program.
    tail_entry: u32,
    labels: Numbering,
    pub(super) code: Assembler,
}

impl<'a> Pass<'a> {
    fn write(&mut self) -> Result<()> {
        for (index, function) in self.functions.iter().enumerate() {
            self.current = index;
            self.code.bind(self.labels.function(index));
            if index == 0 {
                if self.functions.iter().any(|one| one.has_tail_calls) {
                    self.begin_count();
                }
                self.tail_entry = self.code.offset();
            }
            self.prologue(function);
            let body = &self.program[function.start..function.end];
            for (offset, instruction) in function::each(body) {
                self.instruction(function.start + offset, *instruction)?;
            }
        }
        if self.has_loop {
            self.loop_function();
        }
        if self.has_touch {
            self.touch_function();
        }
        Ok(())
    }

    /// A program has at most one arena.
    fn find_arena(&mut self) -> Result<()> {
        let maps = self.program.iter().filter_map(Instruction::map);
        for fd in maps {
            // Where a map has no place, the instruction is refused that has it.
            let Some(arena) = self.maps.place(fd).ok().and_then(|place| place.arena) else {
                continue;
            };
            self.arena_uses = arena_uses(self.program, self.functions, fd)?;
            self.arena = Some(arena);
            break;
        }
        Ok(())
    }

    /// Returns how an instruction works on the arena's pointers.
    pub(super) fn arena_use(&self, index: usize) -> ArenaUse {
        self.arena_uses.get(index).copied().unwrap_or_default()
    }

    fn instruction(&mut self, index: usize, instruction: Instruction) -> Result<()> {
        self.code.bind(self.at_instruction(index));
        match instruction.class() {
            class::ALU | class::ALU64 => self.arithmetic(index, instruction),
            class::JMP | class::JMP32 => self.jump(index, instruction),
            class::LDX => self.load(index, instruction),
            class::ST | class::STX => self.store(index, instruction),
            _ if instruction.is_wide() => self.wide(index, instruction),
            _ => self.unsupported(index, "a load from packets".to_owned()),
        }
    }

    /// A load of a 64-bit number: as it is, or a map, a value, or a function.
    fn wide(&mut self, index: usize, instruction: Instruction) -> Result<()> {
        let dst = self.writable(index, instruction.dst)?;
        let second = self.program.get(index + 1).ok_or(Error::Malformed {
            instruction: index,
            what: "half of an instruction is missing",
        })?;
        let [low, high] = [instruction.immediate, second.immediate].map(i32::cast_unsigned);
        match instruction.src {
            0 => self
                .code
                .constant(dst, u64::from(high) << 32 | u64::from(low)),
            pseudo::MAP_FD => {
                let place = self.maps.place(instruction.immediate)?;
                let address = match (self.uses[index], place.array) {
                    (MapUse::SoleLoad, Some(array)) => array.values,
                    _ => place.handle,
                };
                self.code.address_constant(dst, address);
            }
            pseudo::MAP_VALUE => {
                let place = self.maps.place(instruction.immediate)?;
                let values = place.array.map(|array| array.values);
                let start = place.arena.map(|arena| arena.start);
                let values = values.or(start).ok_or(Error::Malformed {
                    instruction: index,
                    what: "a value's address of a map that is no array",
                })?;
                let address = values.wrapping_add(high.into());
                self.code.address_constant(dst, address);
            }
            pseudo::FUNCTION => {
                let target = function::target(self.program, index, instruction.immediate)?;
                let label = self.at_function(index, target)?;
                self.code.label_address(dst, label);
            }
            _ => return self.unsupported(index, "a kernel variable".to_owned()),
        }
        Ok(())
    }

    /// The array of a lookup, if it is known; and whether R1 holds the address of its values.
    pub(super) fn known_array(&self, index: usize) -> Option<(ArrayPlace, bool)> {
        match self.uses[index] {
            MapUse::Lookup { fd } => Some((self.maps.array(fd)?, false)),
            MapUse::SoleLookup { fd } => Some((self.maps.array(fd)?, true)),
            _ => None,
        }
    }

    /// The descriptor of the ring for lines of text.
    pub(super) fn trace_ring(&self) -> Option<u64> {
        self.maps.layout.trace_ring()
    }

    pub(super) fn function(&self) -> &'a Function {
        &self.functions[self.current]
    }

    pub(super) fn at_instruction(&self, index: usize) -> Label {
        Label(index)
    }

    pub(super) fn at_exit(&self) -> Label {
        self.labels.exit(self.current)
    }

    pub(super) fn at_loop(&self) -> Label {
        self.labels.loop_function()
    }

    pub(super) fn at_touch(&self) -> Label {
        self.labels.touch_function()
    }

    pub(super) fn at_function(&self, index: usize, start: usize) -> Result<Label> {
        let function = self
            .functions
            .binary_search_by_key(&start, |function| function.start);
        let function = function.map_err(|_| Error::Malformed {
            instruction: index,
            what: "a call of something that is no function",
        })?;
        Ok(self.labels.function(function))
    }

    pub(super) fn readable(&self, index: usize, register: u8) -> Result<Reg> {
        let register = REGISTERS.get(usize::from(register));
        register.copied().ok_or(Error::Malformed {
            instruction: index,
            what: "a register that does not exist",
        })
    }

    pub(super) fn writable(&self, index: usize, register: u8) -> Result<Reg> {
        if register == FRAME {
            return Err(Error::Malformed {
                instruction: index,
                what: "the frame pointer is written",
            });
        }
        self.readable(index, register)
    }

    #[expect(clippy::unused_self, reason = "reads like the other steps of a pass")]
    pub(super) fn unsupported<T>(&self, instruction: usize, what: String) -> Result<T> {
        Err(Error::UnsupportedInstruction { instruction, what })
    }
}
