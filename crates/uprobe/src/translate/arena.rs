//! Arenas: memory that BPF programs of the kernel, programs here and the tool have at the same addresses.
//!
//! A pointer has two forms, as in the kernel: the address that user space has, and its low half alone, which an access
//! is made through. Each access is checked here, so that it reaches nothing but the arena, whatever the pointer is: beyond
//! the arena, a load gives 0, and a store does nothing. A page that no access has met before may be missing, or impossible
//! to get; the kernel is asked for it, as a fault could not be answered ([`Pass::touch_function`]).

use super::{
    assembler::{
        Condition, Memory, Op, R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI, Reg, Shift, Size,
    },
    error::Result,
    instruction::{Cast, Instruction, Width},
    jumps::ShortJump,
    maps::ArenaPlace,
    pointers::ArenaUse,
    translator::Pass,
};

/// The bits of an address in a page of 4,096 bytes.
const PAGE_BITS: u8 = 12;

/// `rt_sigprocmask` reads a signal set of 8 bytes before it rejects a `how` that it does not have: a page that can't be
/// there is `EFAULT`, and no signal.
const RT_SIGPROCMASK: u64 = 14;
const NO_HOW: u64 = 0x7fff;
const SET_BYTES: u64 = 8;
const EINVAL: i32 = -22;

/// Comparison of a byte in memory with a number, and a store of one.
const COMPARE_BYTE: Memory<'static> = Memory {
    prefix: 0,
    size: Size::S32,
    code: &[0x80],
    is_byte: false,
};
const STORE_BYTE: Memory<'static> = Memory {
    code: &[0xc6],
    ..COMPARE_BYTE
};

/// Target of an access: a base and an offset.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) base: Reg,
    pub(super) offset: i16,
    /// The jumps of an access that is not made.
    beyond: Vec<ShortJump>,
}

impl Place {
    /// Returns whether the access may not be made.
    pub(super) fn is_conditional(&self) -> bool {
        !self.beyond.is_empty()
    }
}

impl Pass<'_> {
    /// Changes the form of a pointer.
    pub(super) fn cast(
        &mut self,
        index: usize,
        instruction: Instruction,
        dst: Reg,
        source: Reg,
    ) -> Result<()> {
        let (Some(cast), Some(arena)) = (instruction.cast(), self.arena) else {
            return self.unsupported(index, "a cast without an arena".to_owned());
        };
        self.code.mov(Size::S32, dst, source);
        if cast == Cast::ToKernel || arena.keeps_short {
            return Ok(());
        }
        // Nothing stays nothing.
        self.code.test(Size::S32, dst, dst);
        let zero = self.code.skip_if(Condition::Equal);
        self.code.constant(R11, arena.start >> 32 << 32);
        self.code.op(Size::S64, Op::Or, dst, R11);
        self.code.land(zero);
        Ok(())
    }

    /// Returns where an access goes, in the arena or elsewhere. Before one to the arena, `cleared` becomes 0: it stays so where the
    /// access is not made.
    pub(super) fn access_place(
        &mut self,
        index: usize,
        (base, offset): (Reg, i16),
        width: Width,
        cleared: Option<Reg>,
    ) -> Result<Place> {
        let arena = match (self.arena_use(index), self.arena) {
            (ArenaUse::Access, Some(arena)) => arena,
            (ArenaUse::Unclear(what), _) => return self.unsupported(index, what.to_owned()),
            _ => {
                return Ok(Place {
                    base,
                    offset,
                    beyond: Vec::new(),
                });
            }
        };
        // How far it is from the arena's beginning. What is before that is a huge number without a sign.
        self.code.mov(Size::S32, R9, base);
        let from_start = i64::from(offset) - (arena.start & u64::from(u32::MAX)) as i64;
        self.add(R9, from_start);
        if let Some(cleared) = cleared {
            self.code.constant(cleared, 0);
        }
        let bytes = width.bytes().cast_unsigned();
        let last = arena.bytes - u64::from(bytes);
        match i32::try_from(last) {
            Ok(last) => self.code.op_immediate(Size::S64, Op::Cmp, R9, last),
            Err(_) => {
                self.code.constant(R10, last);
                self.code.op(Size::S64, Op::Cmp, R9, R10);
            }
        }
        let mut beyond = vec![self.code.skip_if(Condition::Above)];
        // Unaligned, it may be in two pages.
        let unaligned = (bytes > 1).then(|| {
            self.code
                .test_immediate(Size::S32, R9, bytes.cast_signed() - 1);
            self.code.skip_if(Condition::NotEqual)
        });
        self.code.mov(Size::S64, R10, R9);
        self.code
            .shift_immediate(Size::S64, Shift::Right, R10, PAGE_BITS);
        self.compare_state(arena, R10);
        let there = self.code.skip_if(Condition::NotEqual);
        if let Some(unaligned) = unaligned {
            self.code.land(unaligned);
        }
        self.has_touch = true;
        self.code.constant(R10, bytes.into());
        let touch = self.at_touch();
        self.code.call(touch);
        beyond.push(self.code.skip_if(Condition::Equal));
        self.code.land(there);
        self.code.constant(R10, arena.start);
        self.code.op(Size::S64, Op::Add, R9, R10);
        Ok(Place {
            base: R9,
            offset: 0,
            beyond,
        })
    }

    /// Returns where an access that is not made goes on.
    pub(super) fn land_access(&mut self, place: Place) {
        for jump in place.beyond {
            self.code.land(jump);
        }
    }

    fn add(&mut self, reg: Reg, number: i64) {
        match i32::try_from(number) {
            Ok(0) => {}
            Ok(number) => self.code.op_immediate(Size::S64, Op::Add, reg, number),
            Err(_) => {
                self.code.constant(R10, number.cast_unsigned());
                self.code.op(Size::S64, Op::Add, reg, R10);
            }
        }
    }

    /// Compares with 0 whether a page is there, by its number in the arena.
    fn compare_state(&mut self, arena: ArenaPlace, page: Reg) {
        self.code.address_constant(R11, arena.pages);
        self.code.op(Size::S64, Op::Add, R11, page);
        self.code.memory(&COMPARE_BYTE, Op::Cmp as u8, R11, 0);
        self.code.immediate(&[0]);
    }

    /// Asks the kernel for the pages of an access: R10 bytes, R9 from the arena's beginning. The flag of zero says that one
    /// can't be had. It changes no register but R10 and R11.
    pub(super) fn touch_function(&mut self) {
        let (label, Some(arena)) = (self.at_touch(), self.arena) else {
            return;
        };
        let kept = [RAX, RCX, RDX, RSI, RDI, R8, R9];
        self.code.bind(label);
        for reg in kept {
            self.code.push(reg);
        }
        // From the last page down to the first.
        self.code.op(Size::S64, Op::Add, R10, R9);
        self.code.op_immediate(Size::S64, Op::Sub, R10, 1);
        self.code.mov(Size::S64, R8, R10);
        for reg in [R8, R9] {
            self.code
                .shift_immediate(Size::S64, Shift::Right, reg, PAGE_BITS);
        }
        let again = self.code.here();
        self.compare_state(arena, R8);
        let there = self.code.skip_if(Condition::NotEqual);
        self.code.mov(Size::S64, RSI, R8);
        self.code
            .shift_immediate(Size::S64, Shift::Left, RSI, PAGE_BITS);
        self.code.constant(RAX, arena.start);
        self.code.op(Size::S64, Op::Add, RSI, RAX);
        self.code.constant(RDI, NO_HOW);
        self.code.constant(RDX, 0);
        self.code.constant(R10, SET_BYTES);
        self.code.constant(RAX, RT_SIGPROCMASK);
        self.code.system_call();
        self.code.constant(R10, 0);
        self.code.op_immediate(Size::S64, Op::Cmp, RAX, EINVAL);
        let failed = self.code.skip_if(Condition::NotEqual);
        self.code.address_constant(R11, arena.pages);
        self.code.op(Size::S64, Op::Add, R11, R8);
        self.code.memory(&STORE_BYTE, 0, R11, 0);
        self.code.immediate(&[1]);
        self.code.land(there);
        self.code.constant(R10, 1);
        self.code.op_immediate(Size::S64, Op::Sub, R8, 1);
        self.code.op(Size::S64, Op::Cmp, R8, R9);
        self.code.repeat_if(Condition::GreaterEqual, again);
        self.code.land(failed);
        for reg in kept.into_iter().rev() {
            self.code.pop(reg);
        }
        self.code.test(Size::S32, R10, R10);
        self.code.ret();
    }
}
