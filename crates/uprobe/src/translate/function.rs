//! The functions of a program: where each begins and ends, what it saves, and the stack that it takes.

use super::{
    error::{Error, Result},
    instruction::{FRAME, Instruction, atomic, class, jump, mode, pseudo},
};

/// The stack that BPF gives to one function, in bytes.
const LARGEST_STACK: u32 = 512;

/// A chain of more functions is rejected by the verifier.
const DEEPEST_CALLS: usize = 16;

/// A main program, or a subprogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// The first instruction.
    pub(crate) start: usize,
    /// The one behind the last.
    pub(crate) end: usize,
    /// Which of R6 to R9 it writes.
    pub(crate) saved: [bool; 4],
    /// True if it needs the frame pointer.
    pub(crate) has_frame: bool,
    /// Bytes of BPF stack below the frame pointer.
    pub(crate) stack: u32,
    /// True if it has `may_goto`, whose counter is below the BPF stack.
    pub(crate) has_may_goto: bool,
    /// True if it calls anything.
    pub(crate) has_calls: bool,
    /// True if it makes tail calls.
    pub(crate) has_tail_calls: bool,
    /// The first instructions of the functions that it calls, or passes on.
    callees: Vec<usize>,
}

/// The functions in the order of their instructions; the first is the main program.
pub(crate) fn functions(program: &[Instruction]) -> Result<Vec<Function>> {
    let mut starts = vec![0];
    for (index, instruction) in each(program) {
        if let Some(distance) = callee(*instruction) {
            starts.push(target(program, index, distance)?);
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([program.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| Function::parse(program, start, end))
        .collect()
}

/// All instructions, wide ones once.
pub(crate) fn each(program: &[Instruction]) -> impl Iterator<Item = (usize, &Instruction)> {
    let mut is_second = false;
    program.iter().enumerate().filter(move |(_, instruction)| {
        let skip = is_second;
        is_second = !skip && instruction.is_wide();
        !skip
    })
}

/// The function that an instruction calls, or loads the address of: its distance from the next instruction.
pub(crate) fn callee(instruction: Instruction) -> Option<i32> {
    let is_call = instruction.is_call() && instruction.src == pseudo::CALL;
    let is_address = instruction.is_wide() && instruction.src == pseudo::FUNCTION;
    (is_call || is_address).then_some(instruction.immediate)
}

/// The instruction that a jump or call leads to.
pub(crate) fn target(
    program: &[Instruction],
    index: usize,
    distance: impl Into<i64>,
) -> Result<usize> {
    usize::try_from(index as i64 + 1 + distance.into())
        .ok()
        .filter(|target| *target < program.len())
        .ok_or(Error::Malformed {
            instruction: index,
            what: "a jump leads out of the program",
        })
}

impl Function {
    fn parse(program: &[Instruction], start: usize, end: usize) -> Result<Self> {
        let mut function = Function {
            start,
            end,
            saved: [false; 4],
            has_frame: false,
            stack: 0,
            has_may_goto: false,
            has_calls: false,
            has_tail_calls: false,
            callees: Vec::new(),
        };
        for (index, instruction) in each(&program[start..end]) {
            function.add(*instruction);
            if let Some(distance) = callee(*instruction) {
                let callee = target(program, start + index, distance)?;
                function.callees.push(callee);
            }
        }
        function.stack = function.stack.next_multiple_of(8);
        Ok(function)
    }

    fn add(&mut self, instruction: Instruction) {
        self.has_calls |= instruction.is_call();
        self.has_tail_calls |= instruction.is_tail_call();
        let is_atomic = instruction.class() == class::STX && instruction.mode() == mode::ATOMIC;
        let writes_dst = !matches!(
            instruction.class(),
            class::ST | class::STX | class::JMP | class::JMP32
        );
        if let (6..=9, true) = (instruction.dst, writes_dst || is_atomic) {
            self.saved[usize::from(instruction.dst) - 6] = true;
        }
        // Fetching atomics write their source.
        if let (6..=9, true) = (instruction.src, is_atomic) {
            self.saved[usize::from(instruction.src) - 6] = true;
        }
        if instruction.code == class::JMP | jump::JCOND {
            self.has_may_goto = true;
            self.has_frame = true;
        }
        let (is_base, is_copied) = match instruction.class() {
            class::LDX => (instruction.src == FRAME, false),
            class::ST => (instruction.dst == FRAME, false),
            // A load-acquire has its address in the source.
            class::STX if is_atomic && instruction.immediate == atomic::LOAD_ACQUIRE => {
                (instruction.src == FRAME, false)
            }
            class::STX => (instruction.dst == FRAME, instruction.src == FRAME),
            class::LD => (false, false),
            _ => {
                let is_source = instruction.has_register_operand() && instruction.src == FRAME;
                (false, is_source || instruction.dst == FRAME)
            }
        };
        if is_base {
            let depth = u32::from(instruction.offset.min(0).unsigned_abs());
            self.stack = self.stack.max(depth);
            self.has_frame = true;
        }
        // Where a copy of the frame pointer goes is the verifier's knowledge: all of the stack, then.
        if is_copied {
            self.stack = LARGEST_STACK;
            self.has_frame = true;
        }
    }

    /// Registers pushed behind the frame pointer.
    pub(crate) fn pushes(&self) -> u32 {
        self.saved.iter().map(|saved| u32::from(*saved)).sum()
    }

    /// Bytes below the frame pointer (or the return address, without one), before the saved registers: BPF stack,
    /// counter, and what keeps calls aligned to 16.
    pub(crate) fn frame(&self) -> u32 {
        let counter = u32::from(self.has_may_goto) * 8;
        let pushed = 8 * (1 + u32::from(self.has_frame) + self.pushes());
        let frame = self.stack + counter;
        if self.has_calls && !(pushed + frame).is_multiple_of(16) {
            frame + 8
        } else {
            frame
        }
    }

    /// Bytes of native stack, the return address included.
    fn native_stack(&self) -> u32 {
        8 * (1 + u32::from(self.has_frame) + self.pushes()) + self.frame()
    }
}

/// The native stack that a program takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stack {
    /// Stack that the deepest chain of calls takes, without that of helpers.
    pub(crate) deepest: u32,
    /// Most stack that the callers of a function with a tail call take; `None` where no function makes one.
    pub(crate) below_tail_call: Option<u32>,
}

/// The stack of a program; `loop_stack` is what `bpf_loop` adds to a function that it calls.
pub(crate) fn stack(functions: &[Function], loop_stack: u32) -> Result<Stack> {
    let mut stack = Stack::default();
    let walk = Walk {
        functions,
        loop_stack,
    };
    walk.add(&mut stack, 0, 0, 0)?;
    Ok(stack)
}

struct Walk<'a> {
    functions: &'a [Function],
    loop_stack: u32,
}

impl Walk<'_> {
    /// Adds a function, by its first instruction, whose callers take `below` bytes.
    fn add(&self, stack: &mut Stack, start: usize, below: u32, depth: usize) -> Result<()> {
        let index = self
            .functions
            .binary_search_by_key(&start, |function| function.start);
        let function = index
            .ok()
            .filter(|_| depth < DEEPEST_CALLS)
            .map(|index| &self.functions[index])
            .ok_or(Error::Malformed {
                instruction: start,
                what: "functions call each other too deeply",
            })?;
        if function.has_tail_calls {
            // Its own frame is gone by then.
            stack.below_tail_call = stack.below_tail_call.max(Some(below));
        }
        let here = below + function.native_stack();
        // The return address of a helper.
        let helper = if function.has_calls { 8 } else { 0 };
        stack.deepest = stack.deepest.max(here + helper);
        for callee in &function.callees {
            self.add(stack, *callee, here + self.loop_stack, depth + 1)?;
        }
        Ok(())
    }
}
