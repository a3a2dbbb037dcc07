//! ORC: the kernel's table of what each of its instructions has on the stack. Source: the kernel's
//! arch/x86/kernel/unwind_orc.c and arch/x86/include/asm/orc_types.h.
//!
//! An entry's layout changed in Linux 6.3 and 6.4, which BTF shows, and the numbers of its registers in 7.2, which BTF
//! does not: they are told apart by the register that most entries have, the stack pointer.

use libbpf_rs::{
    Btf,
    btf::types::{MemberAttr, Struct},
};

use super::rule::{BpPlace, Rule, RuleKind, SpBase};
use crate::error::{Error, Result};

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 6;

/// A bit field of an entry.
#[derive(Clone, Copy, Debug)]
struct BitField {
    shift: u32,
    bits: u32,
}

impl BitField {
    /// `None` if an entry has no such bits, or no field of an entry has so many.
    fn new(shift: u32, bits: u32) -> Option<Self> {
        let is_inside = shift.checked_add(bits)? <= 8 * ENTRY_BYTES as u32;
        ((1..=8).contains(&bits) && is_inside).then_some(BitField { shift, bits })
    }

    fn extract(self, entry: u64) -> u8 {
        (entry >> self.shift) as u8 & ((1u16 << self.bits) - 1) as u8
    }
}

/// This kernel's layout of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrcLayout {
    sp: BitField,
    bp: BitField,
    kind: BitField,
    /// The field that says that the caller was interrupted; none before Linux 6.3, where the kind says so.
    signal: Option<BitField>,
    /// The field that says that a stack ends here; none since this is a kind (Linux 6.4).
    end: Option<BitField>,
}

/// The numbers of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrcRegisters {
    sp: u8,
    previous_sp: u8,
    sp_indirect: u8,
    bp_indirect: u8,
    r10: u8,
    r13: u8,
    dx: u8,
    di: u8,
}

/// A register that no entry names.
const UNDEFINED: u8 = 0;
/// rbp, in every kernel.
const BP: u8 = 4;
/// Before Linux 7.2, and since.
const NUMBERINGS: [OrcRegisters; 2] = [
    OrcRegisters {
        sp: 5,
        previous_sp: 1,
        sp_indirect: 9,
        bp_indirect: 8,
        r10: 6,
        r13: 7,
        dx: 2,
        di: 3,
    },
    OrcRegisters {
        sp: 3,
        previous_sp: 8,
        sp_indirect: 9,
        bp_indirect: 10,
        r10: 6,
        r13: 7,
        dx: 2,
        di: 5,
    },
];

impl OrcLayout {
    /// That of the kernel with these types; `None` where it has no ORC.
    pub(super) fn from_btf(btf: &Btf<'_>) -> Option<Self> {
        let entry = btf.type_by_name::<Struct<'_>>("orc_entry")?;
        let field = |name: &str| {
            let named = |member: &libbpf_rs::btf::types::StructMember<'_>| {
                member.name.is_some_and(|one| one == name)
            };
            match entry.iter().find(named)?.attr {
                MemberAttr::BitField { size, offset } => BitField::new(offset, size.into()),
                MemberAttr::Normal { .. } => None,
            }
        };
        Some(OrcLayout {
            sp: field("sp_reg")?,
            bp: field("bp_reg")?,
            kind: field("type")?,
            signal: field("signal"),
            end: field("end"),
        })
    }

    /// That of fields with these shifts and sizes: stack pointer, frame pointer, kind, signal, end.
    pub(super) fn with_fields(fields: [[u8; 2]; 5]) -> Option<Self> {
        let [sp, bp, kind, signal, end] =
            fields.map(|[shift, bits]| BitField::new(shift.into(), bits.into()));
        Some(OrcLayout {
            sp: sp?,
            bp: bp?,
            kind: kind?,
            signal,
            end,
        })
    }

    /// The numbers of registers in these entries.
    pub(super) fn registers(&self, entries: &[u8]) -> Result<OrcRegisters> {
        let mut counts = [0usize; 16];
        for entry in words(entries) {
            counts[usize::from(self.sp.extract(entry)) & 15] += 1;
        }
        let most = NUMBERINGS
            .into_iter()
            .max_by_key(|numbers| counts[usize::from(numbers.sp)]);
        let entries = entries.len() / ENTRY_BYTES;
        most.filter(|numbers| 2 * counts[usize::from(numbers.sp)] > entries)
            .ok_or_else(|| {
                Error::Refused(
                    "the ORC tables of this kernel are of an unknown form: stacks can't be walked by them"
                        .to_owned(),
                )
            })
    }

    /// The rules of entries.
    pub(super) fn rules<'a>(
        &'a self,
        registers: &'a OrcRegisters,
        entries: &'a [u8],
    ) -> impl Iterator<Item = Rule> + 'a {
        words(entries).map(move |entry| self.rule(registers, entry))
    }

    fn rule(&self, registers: &OrcRegisters, entry: u64) -> Rule {
        let sp_register = self.sp.extract(entry);
        let sp = match sp_register {
            BP => SpBase::Bp,
            number if number == registers.sp => SpBase::Sp,
            number if number == registers.sp_indirect => SpBase::SpIndirect,
            number if number == registers.bp_indirect => SpBase::BpIndirect,
            number if number == registers.r10 => SpBase::R10,
            number if number == registers.r13 => SpBase::R13,
            number if number == registers.dx => SpBase::Dx,
            number if number == registers.di => SpBase::Di,
            _ => SpBase::Other,
        };
        let bp = match self.bp.extract(entry) {
            UNDEFINED => BpPlace::Same,
            BP => BpPlace::Chained,
            number if number == registers.previous_sp => BpPlace::Saved,
            _ => return Rule::default(),
        };
        let has_end_kind = self.kind.bits > 2;
        let kind = match (self.kind.extract(entry), has_end_kind) {
            _ if self.end.is_some() && sp_register == UNDEFINED => {
                match self.end.is_some_and(|end| end.extract(entry) == 1) {
                    true => RuleKind::End,
                    false => RuleKind::Unknown,
                }
            }
            (1, true) => RuleKind::End,
            (2, true) | (0, false) => RuleKind::Call,
            (3, true) | (1, false) => RuleKind::Regs,
            (4, true) | (2, false) => RuleKind::Iret,
            _ => RuleKind::Unknown,
        };
        let regs = matches!(kind, RuleKind::Regs | RuleKind::Iret);
        Rule {
            kind,
            sp,
            sp_offset: entry as i16,
            bp,
            bp_offset: (entry >> 16) as i16,
            exact: self
                .signal
                .map_or(regs, |signal| signal.extract(entry) == 1),
        }
    }
}

/// Entries as little-endian words.
fn words(entries: &[u8]) -> impl Iterator<Item = u64> + '_ {
    entries.chunks_exact(ENTRY_BYTES).map(|entry| {
        let mut word = [0; 8];
        word[..ENTRY_BYTES].copy_from_slice(entry);
        u64::from_le_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.4 to 7.2 lay out an entry.
    const SINCE_6_4: OrcLayout = OrcLayout {
        sp: BitField { shift: 32, bits: 4 },
        bp: BitField { shift: 36, bits: 4 },
        kind: BitField { shift: 40, bits: 3 },
        signal: Some(BitField { shift: 43, bits: 1 }),
        end: None,
    };

    /// As Linux 6.1 does.
    const OF_6_1: OrcLayout = OrcLayout {
        kind: BitField { shift: 40, bits: 2 },
        signal: None,
        end: Some(BitField { shift: 42, bits: 1 }),
        ..SINCE_6_4
    };

    fn entry(sp_offset: i16, bp_offset: i16, sp: u8, bp: u8, rest: u8) -> Vec<u8> {
        let mut bytes = [sp_offset.to_le_bytes(), bp_offset.to_le_bytes()].concat();
        bytes.extend([sp | bp << 4, rest]);
        bytes
    }

    fn only(layout: &OrcLayout, registers: &OrcRegisters, entry: &[u8]) -> Rule {
        let rules: Vec<Rule> = layout.rules(registers, entry).collect();
        assert_eq!(rules.len(), 1);
        rules[0]
    }

    #[test]
    fn entries_are_read_as_each_kernel_lays_them_out() {
        let [old, new] = NUMBERINGS;
        let saved = Rule {
            kind: RuleKind::Call,
            sp: SpBase::Sp,
            sp_offset: 48,
            bp: BpPlace::Saved,
            bp_offset: -16,
            exact: false,
        };
        let with_old = entry(48, -16, 5, 1, 2);
        assert_eq!(only(&SINCE_6_4, &old, &with_old), saved);
        assert_eq!(only(&SINCE_6_4, &new, &entry(48, -16, 3, 8, 2)), saved);
        assert_eq!(only(&OF_6_1, &old, &entry(48, -16, 5, 1, 0)), saved);
        let interrupted = only(&SINCE_6_4, &old, &entry(0, 0, 5, 0, 3 | 8));
        assert_eq!(
            (interrupted.kind, interrupted.exact),
            (RuleKind::Regs, true)
        );
        let interrupted = only(&OF_6_1, &old, &entry(0, 0, 5, 0, 1));
        assert_eq!(
            (interrupted.kind, interrupted.exact),
            (RuleKind::Regs, true)
        );
        let kind = |layout, bytes: &[u8]| only(layout, &old, bytes).kind;
        assert_eq!(kind(&SINCE_6_4, &entry(0, 0, 0, 0, 1)), RuleKind::End);
        assert_eq!(kind(&SINCE_6_4, &entry(0, 0, 0, 0, 0)), RuleKind::Unknown);
        assert_eq!(kind(&OF_6_1, &entry(0, 0, 0, 0, 4)), RuleKind::End);
        assert_eq!(kind(&OF_6_1, &entry(0, 0, 0, 0, 0)), RuleKind::Unknown);
        let indirect = only(&SINCE_6_4, &old, &entry(8, 0, 9, 0, 2));
        assert_eq!(indirect.sp, SpBase::SpIndirect);
        assert_eq!(
            only(&SINCE_6_4, &new, &entry(8, 0, 10, 0, 2)).sp,
            SpBase::BpIndirect
        );
        let register = |number| only(&SINCE_6_4, &old, &entry(8, 0, number, 0, 2)).sp;
        let named = [SpBase::R10, SpBase::R13, SpBase::Dx, SpBase::Di];
        assert_eq!([6, 7, 2, 3].map(register), named);
        assert_eq!(register(0), SpBase::Other);
    }

    #[test]
    fn registers_are_told_apart_by_the_one_that_most_entries_have() {
        let many = |sp: u8| [entry(8, 0, sp, 0, 2).repeat(9), entry(16, 0, 4, 0, 2)].concat();
        assert_eq!(SINCE_6_4.registers(&many(5)).unwrap(), NUMBERINGS[0]);
        assert_eq!(SINCE_6_4.registers(&many(3)).unwrap(), NUMBERINGS[1]);
        assert!(SINCE_6_4.registers(&many(7)).is_err());
    }
}
