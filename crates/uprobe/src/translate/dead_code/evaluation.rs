//! Results of arithmetic and comparisons with numbers that are known.

use super::super::instruction::{Instruction, alu, class, jump};

/// Returns the result of arithmetic; `None` for other operations. `source` is the second operand: a register, or the
/// immediate number with its sign.
pub(super) fn arithmetic(instruction: Instruction, dst: u64, source: u64) -> Option<u64> {
    let operation = instruction.operation();
    if operation == alu::END {
        return byte_order(instruction, dst);
    }
    let is_wide = instruction.class() == class::ALU64;
    let (dst, source) = match is_wide {
        true => (dst, source),
        false => (low(dst), low(source)),
    };
    let signed = |value| signed(value, is_wide);
    let count = source & if is_wide { 63 } else { 31 };
    let result = match (operation, instruction.offset) {
        (alu::ADD, 0) => dst.wrapping_add(source),
        (alu::SUB, 0) => dst.wrapping_sub(source),
        (alu::MUL, 0) => dst.wrapping_mul(source),
        (alu::OR, 0) => dst | source,
        (alu::AND, 0) => dst & source,
        (alu::XOR, 0) => dst ^ source,
        (alu::LSH, 0) => dst << count,
        (alu::RSH, 0) => dst >> count,
        (alu::ARSH, 0) => (signed(dst) >> count).cast_unsigned(),
        (alu::NEG, 0) => dst.wrapping_neg(),
        // Nothing is divided by 0: the quotient is 0, and the remainder the dividend.
        (alu::DIV, 0) => dst.checked_div(source).unwrap_or(0),
        (alu::MOD, 0) => dst.checked_rem(source).unwrap_or(dst),
        (alu::DIV | alu::MOD, 1) => {
            let (dividend, divisor) = (signed(dst), signed(source));
            let result = match (operation, divisor) {
                (alu::DIV, 0) => 0,
                (alu::DIV, _) => dividend.wrapping_div(divisor),
                (_, 0) => dividend,
                _ => dividend.wrapping_rem(divisor),
            };
            result.cast_unsigned()
        }
        (alu::MOV, 0) => source,
        (alu::MOV, bits @ (8 | 16 | 32)) if instruction.has_register_operand() => {
            let above = 64 - bits.unsigned_abs();
            ((source << above).cast_signed() >> above).cast_unsigned()
        }
        _ => return None,
    };
    Some(if is_wide { result } else { low(result) })
}

/// Conversions to little endian, to big endian, and from one to the other.
fn byte_order(instruction: Instruction, value: u64) -> Option<u64> {
    let above = match instruction.immediate {
        16 => 48,
        32 => 32,
        64 => 0,
        _ => return None,
    };
    let is_little = instruction.class() == class::ALU && !instruction.has_register_operand();
    Some(match is_little {
        true => value << above >> above,
        false => value.swap_bytes() >> above,
    })
}

/// Returns whether a conditional jump is taken; `None` for other jumps.
pub(super) fn is_taken(instruction: Instruction, left: u64, right: u64) -> Option<bool> {
    let is_wide = instruction.class() == class::JMP;
    let (left, right) = match is_wide {
        true => (left, right),
        false => (low(left), low(right)),
    };
    let (signed_left, signed_right) = (signed(left, is_wide), signed(right, is_wide));
    Some(match instruction.operation() {
        jump::JEQ => left == right,
        jump::JNE => left != right,
        jump::JSET => left & right != 0,
        jump::JGT => left > right,
        jump::JGE => left >= right,
        jump::JLT => left < right,
        jump::JLE => left <= right,
        jump::JSGT => signed_left > signed_right,
        jump::JSGE => signed_left >= signed_right,
        jump::JSLT => signed_left < signed_right,
        jump::JSLE => signed_left <= signed_right,
        _ => return None,
    })
}

fn low(value: u64) -> u64 {
    value & u64::from(u32::MAX)
}

fn signed(value: u64, is_wide: bool) -> i64 {
    match is_wide {
        true => value.cast_signed(),
        false => (value << 32).cast_signed() >> 32,
    }
}
