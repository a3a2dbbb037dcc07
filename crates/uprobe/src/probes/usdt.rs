//! Arguments of USDT sites, for the functions of libbpf's `bpf/usdt.bpf.h`.
//!
//! The functions find a site's *spec* in the array [`SPECS`] by the program's cookie, which is the spec's number, and
//! read each argument from the context or from the process as the spec says. Sites with the same arguments and the same
//! cookie of the user have one spec.

use super::error::{Error, Result};
use std::collections::HashMap;

/// The map of specs.
pub(super) const SPECS: &str = "__bpf_usdt_specs";
/// The most arguments that a spec has room for.
const MAX_ARGUMENTS: usize = 12;

/// Registers as assemblers name them, 64 bits to 8, in the order of `struct pt_regs`.
const REGISTERS: [[&str; 4]; 20] = [
    ["r15", "r15d", "r15w", "r15b"],
    ["r14", "r14d", "r14w", "r14b"],
    ["r13", "r13d", "r13w", "r13b"],
    ["r12", "r12d", "r12w", "r12b"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rbx", "ebx", "bx", "bl"],
    ["r11", "r11d", "r11w", "r11b"],
    ["r10", "r10d", "r10w", "r10b"],
    ["r9", "r9d", "r9w", "r9b"],
    ["r8", "r8d", "r8w", "r8b"],
    ["rax", "eax", "ax", "al"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    [""; 4],
    ["rip", "eip", "", ""],
    [""; 4],
    [""; 4],
    ["rsp", "esp", "sp", "spl"],
];

/// The specs of an object's array.
#[derive(Debug, Default)]
pub(super) struct Specs {
    /// Numbers of specs, by the sites' arguments and the user's cookie.
    numbers: HashMap<(String, u64), u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Argument {
    /// 1, 2, 4 or 8.
    bytes: u8,
    is_signed: bool,
    operand: Operand,
}

/// Location of an argument. Registers are their offsets in `struct pt_regs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    Constant(i64),
    Register(u16),
    Memory {
        base: u16,
        /// A register, and by which power of 2 it is multiplied.
        index: Option<(u16, u8)>,
        displacement: i64,
    },
}

/// Layout of a spec: libbpf 1.7 made each argument longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// 16 bytes an argument, without a second register.
    Short,
    /// 24 bytes.
    Long,
}

impl Specs {
    /// The number of a spec. `write` gets what is new: the number, and the bytes.
    pub(super) fn number(
        &mut self,
        arguments: &str,
        cookie: u64,
        entries: u32,
        value_size: u32,
        write: impl FnOnce(u32, &[u8]),
    ) -> Result<u32> {
        let key = (arguments.to_owned(), cookie);
        if let Some(&number) = self.numbers.get(&key) {
            return Ok(number);
        }
        let wrong = |reason| Error::Usdt {
            arguments: arguments.to_owned(),
            reason,
        };
        let number = self.numbers.len() as u32;
        if number >= entries {
            let reason = format!(
                "all {entries} specs of the object are used: compile it with a greater BPF_USDT_MAX_SPEC_CNT"
            );
            return Err(wrong(reason));
        }
        let bytes = spec(arguments, cookie, value_size).map_err(wrong)?;
        write(number, &bytes);
        self.numbers.insert(key, number);
        Ok(number)
    }
}

/// The bytes of a spec: the arguments, the cookie, and how many arguments there are.
fn spec(arguments: &str, cookie: u64, value_size: u32) -> Result<Vec<u8>, String> {
    let format = Format::for_value_size(value_size)
        .ok_or_else(|| format!("a spec has {value_size} bytes, which no libbpf is known to use"))?;
    let all: Vec<&str> = arguments.split_ascii_whitespace().collect();
    if all.len() > MAX_ARGUMENTS {
        return Err(format!(
            "there are {} and at most {MAX_ARGUMENTS} can be read",
            all.len()
        ));
    }
    let mut bytes = Vec::new();
    for text in &all {
        let argument = Argument::parse(text)
            .ok_or_else(|| format!("{text} is no register, memory or constant that can be read"))?;
        let argument = format.argument(argument);
        let no_index = || format!("{text} has two registers, which the object's libbpf can't add");
        bytes.extend(argument.ok_or_else(no_index)?);
    }
    bytes.resize(MAX_ARGUMENTS * format.argument_bytes(), 0);
    bytes.extend(cookie.to_le_bytes());
    bytes.extend((all.len() as u64).to_le_bytes());
    Ok(bytes)
}

impl Format {
    fn for_value_size(value_size: u32) -> Option<Self> {
        let all = [Format::Short, Format::Long];
        all.into_iter()
            .find(|format| MAX_ARGUMENTS * format.argument_bytes() + 16 == value_size as usize)
    }

    fn argument_bytes(self) -> usize {
        match self {
            Format::Short => 16,
            Format::Long => 24,
        }
    }

    /// `None` where it has no room for a second register.
    fn argument(self, argument: Argument) -> Option<Vec<u8>> {
        let (kind, value, register, index) = match argument.operand {
            Operand::Constant(value) => (0_u8, value, 0, None),
            Operand::Register(register) => (1, 0, register, None),
            Operand::Memory {
                base,
                index,
                displacement,
            } => (2 + u8::from(index.is_some()), displacement, base, index),
        };
        let (index_register, shift) = index.unwrap_or_default();
        let mut bytes = value.to_le_bytes().to_vec();
        bytes.extend([kind, 0]);
        match self {
            Format::Short if index.is_some() => return None,
            Format::Short => bytes.extend([0; 2]),
            Format::Long => {
                bytes.extend((index_register | u16::from(shift) << 12).to_le_bytes());
                bytes.extend([0; 2]);
            }
        }
        bytes.extend(register.to_le_bytes());
        bytes.extend([argument.is_signed.into(), 64 - 8 * argument.bytes]);
        bytes.resize(self.argument_bytes(), 0);
        Some(bytes)
    }
}

impl Argument {
    /// `-4@%edi`, `8@16(%rsp)`, `1@-96(%rbp,%rax,8)`, `8@$5`: the size, negative where it is signed, and the operand.
    fn parse(text: &str) -> Option<Self> {
        let (size, operand) = text.split_once('@')?;
        let size: i8 = size.parse().ok()?;
        let bytes = size.unsigned_abs();
        Some(Argument {
            bytes: [1, 2, 4, 8].contains(&bytes).then_some(bytes)?,
            is_signed: size < 0,
            operand: Operand::parse(operand)?,
        })
    }
}

impl Operand {
    fn parse(text: &str) -> Option<Self> {
        if let Some(value) = text.strip_prefix('$') {
            return Some(Operand::Constant(number(value)?));
        }
        if text.starts_with('%') {
            return Some(Operand::Register(register(text)?));
        }
        let (displacement, inside) = text.strip_suffix(')')?.split_once('(')?;
        let displacement = match displacement {
            "" => 0,
            other => number(other)?,
        };
        let parts: Vec<&str> = inside.split(',').collect();
        let index = match parts[1..] {
            [] => None,
            [index] => Some((register(index)?, 0)),
            [index, scale] => {
                let scales = ["1", "2", "4", "8"];
                let shift = scales.iter().position(|&one| one == scale)?;
                Some((register(index)?, shift as u8))
            }
            _ => return None,
        };
        Some(Operand::Memory {
            base: register(parts[0])?,
            index,
            displacement,
        })
    }
}

/// A constant may be written as an unsigned number.
fn number(text: &str) -> Option<i64> {
    let unsigned = || text.parse::<u64>().ok().map(u64::cast_signed);
    text.parse().ok().or_else(unsigned)
}

/// A register's offset in `struct pt_regs`. Those of a register's second byte (`%ah`) are not there.
fn register(text: &str) -> Option<u16> {
    let name = text.strip_prefix('%').filter(|name| !name.is_empty())?;
    let index = REGISTERS.iter().position(|names| names.contains(&name))?;
    Some(8 * index as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_read_as_assemblers_write_them() {
        let memory = |base, index, displacement| Operand::Memory {
            base,
            index,
            displacement,
        };
        for (text, bytes, is_signed, operand) in [
            ("-4@%edi", 4, true, Operand::Register(112)),
            ("8@%r15", 8, false, Operand::Register(0)),
            ("-1@%spl", 1, true, Operand::Register(152)),
            ("2@%r9w", 2, false, Operand::Register(64)),
            ("8@16(%rsp)", 8, false, memory(152, None, 16)),
            ("-2@(%rax)", 2, true, memory(80, None, 0)),
            (
                "1@-96(%rbp,%rax,8)",
                1,
                false,
                memory(32, Some((80, 3)), -96),
            ),
            ("4@(%rbp,%r8)", 4, false, memory(32, Some((72, 0)), 0)),
            ("-4@$-9", 4, true, Operand::Constant(-9)),
            ("8@$18446744073709551615", 8, false, Operand::Constant(-1)),
        ] {
            let argument = Argument {
                bytes,
                is_signed,
                operand,
            };
            assert_eq!(Argument::parse(text), Some(argument), "{text}");
        }
    }

    #[test]
    fn what_can_not_be_read_is_refused() {
        for text in [
            "",
            "%edi",
            "3@%edi",
            "16@%rdi",
            "8f@%xmm0",
            "8@%xmm0",
            "1@%ah",
            "8@%",
            "8@",
            "8@symbol(%rip)",
            "8@8(%rsp",
            "8@8()",
            "8@(%rax,%rbx,3)",
            "8@(%rax,%rbx,8,9)",
            "8@(,%rbx,8)",
        ] {
            assert_eq!(Argument::parse(text), None, "{text}");
        }
        assert!(spec(&"8@%rdi ".repeat(13), 0, 304).is_err());
        assert!(spec("8@%rdi", 0, 305).is_err());
        assert!(spec("8@(%rax,%rbx)", 0, 208).is_err());
    }

    #[test]
    fn specs_are_laid_out_as_either_libbpf_has_them() {
        let (text, cookie) = ("-2@-8(%rbp) 8@$7", 0x55);
        let short = spec(text, cookie, 208).unwrap();
        assert_eq!(short[..8], (-8_i64).to_le_bytes());
        assert_eq!(short[8..16], [2, 0, 0, 0, 32, 0, 1, 48]);
        assert_eq!(
            short[16..32],
            [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            short[192..],
            [0x55, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
        );
        let long = spec("4@16(%rbx,%rcx,4)", 0, 304).unwrap();
        assert_eq!(long[8..16], [3, 0, 88, 0x20, 0, 0, 40, 0]);
        assert_eq!(long[16..24], [0, 32, 0, 0, 0, 0, 0, 0]);
        assert_eq!(long[296], 1);
        assert_eq!((short.len(), long.len()), (208, 304));
    }

    #[test]
    fn sites_with_the_same_arguments_have_one_spec() {
        let mut specs = Specs::default();
        let mut written = Vec::new();
        let mut number = |arguments, cookie| {
            specs.number(arguments, cookie, 2, 304, |number, _| written.push(number))
        };
        assert_eq!(number("8@%rdi", 0).unwrap(), 0);
        assert_eq!(number("8@%rdi", 1).unwrap(), 1);
        assert_eq!(number("8@%rdi", 0).unwrap(), 0);
        let full = number("8@%rsi", 0).unwrap_err().to_string();
        assert!(full.contains("BPF_USDT_MAX_SPEC_CNT"), "{full}");
        assert_eq!(written, [0, 1]);
    }
}
