//! A rule: how to get from a frame to its caller. In BPF it is `struct unwind_rule`, here a word with the same bytes.

/// A record that a frame's caller left, of `enum unwind_kind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum RuleKind {
    /// A return address.
    Call = 1,
    /// `struct pt_regs`.
    Regs = 2,
    /// The last five words of it.
    Iret = 3,
    /// Nothing: the stack ends.
    End = 4,
    /// The root of stacks that begin with registers.
    Start = 5,
    /// Code without a rule.
    #[default]
    Unknown = 6,
}

/// The base of the caller's stack pointer, of `enum unwind_sp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum SpBase {
    #[default]
    Other = 0,
    Sp = 1,
    Bp = 2,
    SpIndirect = 3,
    BpIndirect = 4,
    R10 = 5,
    R13 = 6,
    Dx = 7,
    Di = 8,
}

/// The place of the caller's rbp, of `enum unwind_bp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum BpPlace {
    #[default]
    Same = 0,
    Saved = 1,
    Chained = 2,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Rule {
    pub(super) kind: RuleKind,
    pub(super) sp: SpBase,
    pub(super) sp_offset: i16,
    pub(super) bp: BpPlace,
    pub(super) bp_offset: i16,
    /// True where the caller's address is an interrupted instruction, not a return address.
    pub(super) exact: bool,
}

impl Rule {
    /// A function that has set up its frame: rbp points at the saved one.
    pub(super) const FRAME: Rule = Rule {
        kind: RuleKind::Call,
        sp: SpBase::Bp,
        sp_offset: 16,
        bp: BpPlace::Saved,
        bp_offset: -16,
        exact: false,
    };

    /// A function at its entry: the return address is on top of the stack.
    pub(super) const ENTRY: Rule = Rule {
        kind: RuleKind::Call,
        sp: SpBase::Sp,
        sp_offset: 8,
        bp: BpPlace::Same,
        bp_offset: 0,
        exact: false,
    };

    /// A function that has saved rbp, and has not set up its frame yet.
    pub(super) const SAVED: Rule = Rule {
        sp_offset: 16,
        bp: BpPlace::Saved,
        bp_offset: -16,
        ..Rule::ENTRY
    };

    /// The words above a frame whose address is known: its return address, and the rbp that it saved.
    pub(super) const ABOVE_FRAME: Rule = Rule {
        bp: BpPlace::Saved,
        bp_offset: -16,
        ..Rule::ENTRY
    };

    /// `struct pt_regs` on top of the stack.
    pub(super) const ON_TOP: Rule = Rule {
        kind: RuleKind::Regs,
        sp: SpBase::Sp,
        sp_offset: 0,
        bp: BpPlace::Same,
        bp_offset: 0,
        exact: true,
    };

    /// Nothing: the stack ends.
    pub(super) const END: Rule = Rule {
        kind: RuleKind::End,
        sp: SpBase::Other,
        ..Rule::ENTRY
    };

    /// Registers that are known.
    pub(super) const REGISTERS: Rule = Rule {
        kind: RuleKind::Start,
        sp: SpBase::Other,
        exact: true,
        ..Rule::ENTRY
    };

    /// The bytes of `struct unwind_rule`.
    pub(super) fn word(self) -> u64 {
        let [sp, bp, kind] = [self.sp as u64, self.bp as u64, self.kind as u64];
        u64::from(self.sp_offset as u16)
            | u64::from(self.bp_offset as u16) << 16
            | sp << 32
            | bp << 40
            | kind << 48
            | u64::from(self.exact) << 56
    }
}
