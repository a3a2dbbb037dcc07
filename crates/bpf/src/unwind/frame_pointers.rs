//! Rules of kernels that keep frame pointers instead of tables: how far a function has set up its frame is read from its
//! code.

use std::ops::Range;

use super::{memory::KernelReader, rule::Rule, symbols::KernelSymbols, table::RuleTable};
use crate::error::{Error, Result};

/// `push %rbp`.
const PUSH: u8 = 0x55;
/// `mov %rsp,%rbp`, which sets the frame up.
const SET_UP_FRAME: [u8; 3] = [0x48, 0x89, 0xe5];
/// Bytes of a function to look at. Where a kernel keeps frame pointers, nine in ten have both instructions there.
const LOOKED_AT: usize = 32;
/// Bytes of the instruction that ftrace makes a call, and how it begins: a call, or nothing.
const FTRACE_LENGTH: u64 = 5;
const FTRACE: [&[u8]; 2] = [&[0xe8], &[0x0f, 0x1f, 0x44, 0, 0]];
/// Bytes of text that are read at once.
const WINDOW: usize = 1 << 16;

/// Adds the rules of the kernel, whose text ends at `end`.
///
/// # Errors
///
/// Where it keeps no frame pointers.
pub(super) fn add_frame_pointers(
    symbols: &KernelSymbols,
    memory: &mut KernelReader,
    mut table: RuleTable,
    end: u64,
) -> Result<RuleTable> {
    let mut code = TextReader::new(memory);
    let functions: Vec<Function> = symbols
        .functions()
        .filter(|start| *start < end)
        .map(|start| Function::from_code(start, code.at(start)))
        .collect();
    let keeping = functions.iter().filter(|one| one.frame.is_some()).count();
    check_frame_pointers(functions.len(), keeping)?;
    let start = table.base;
    let fixed = AssemblyText::from_symbols(symbols);
    table.add(
        start,
        end,
        entry_rules(&functions, |start| fixed.rule(start)),
    );
    Ok(table)
}

/// A kernel has frame pointers if most functions set up a frame: of `all` that were looked at, `keeping` do.
fn check_frame_pointers(all: usize, keeping: usize) -> Result<()> {
    if keeping > 0 && 2 * keeping >= all {
        return Ok(());
    }
    Err(Error::Refused(
        "this kernel unwinds its stacks by neither ORC nor frame pointers (another unwinder, or tables that were left \
         out)\n  Take them with the kernel's helper: bpfcost stack --helper"
            .to_owned(),
    ))
}

/// Code in assembly that keeps no frame pointers of its own, where stacks begin.
struct AssemblyText {
    /// Entries from user space and by interrupts: registers are on top of the stack when they call.
    entries: Range<u64>,
    /// Starts of threads and CPUs: nothing called them.
    starts: Vec<u64>,
}

impl AssemblyText {
    fn from_symbols(symbols: &KernelSymbols) -> Self {
        let [start, end] = ["__entry_text_start", "__entry_text_end"]
            .map(|name| symbols.address(name).unwrap_or_default());
        // Until Linux 6.5, the one in assembly had the name that a function in C has since.
        let fork = symbols.address("ret_from_fork_asm");
        let fork = fork.or_else(|| symbols.address("ret_from_fork"));
        let starts = [
            "startup_64",
            "secondary_startup_64",
            "secondary_startup_64_no_verify",
            "common_startup_64",
        ];
        let starts = starts.into_iter().filter_map(|name| symbols.address(name));
        AssemblyText {
            entries: start..end,
            starts: starts.chain(fork).collect(),
        }
    }

    /// The rule of the function that starts there, if it is one of these.
    fn rule(&self, start: u64) -> Option<Rule> {
        if self.starts.contains(&start) {
            return Some(Rule::END);
        }
        self.entries.contains(&start).then_some(Rule::ON_TOP)
    }
}

/// Beginnings of functions, in the order of their addresses.
struct TextReader<'a> {
    memory: &'a mut KernelReader,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> TextReader<'a> {
    fn new(memory: &'a mut KernelReader) -> Self {
        TextReader {
            memory,
            start: 0,
            bytes: Vec::new(),
        }
    }

    /// Reads the beginning of the function; nothing where it is gone, as the kernel's init text is.
    fn at(&mut self, function: u64) -> &[u8] {
        let end = self.start + self.bytes.len() as u64;
        if function < self.start || function + LOOKED_AT as u64 > end {
            self.start = function;
            // There may be a hole behind it.
            let read = self.memory.bytes(function, WINDOW);
            let read = read.or_else(|_| self.memory.bytes(function, LOOKED_AT));
            self.bytes = read.unwrap_or_default();
        }
        let at = (function - self.start) as usize;
        self.bytes.get(at..at + LOOKED_AT).unwrap_or_default()
    }
}

/// A function of a kernel that keeps frame pointers, by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    /// Bytes before ftrace's instruction is over.
    traced: u64,
    /// Bytes before it has saved rbp, and before its frame is set up. Compilers put other instructions between the two.
    frame: Option<(u64, u64)>,
}

impl Function {
    fn from_code(start: u64, code: &[u8]) -> Self {
        let is_traced = FTRACE.iter().any(|begin| code.starts_with(begin));
        let traced = if is_traced { FTRACE_LENGTH } else { 0 };
        let body = code.get(traced as usize..).unwrap_or_default();
        let push = body.iter().position(|byte| *byte == PUSH);
        let frame = push.and_then(|push| {
            let mut behind = body.get(push + 1..)?.windows(SET_UP_FRAME.len());
            let between = behind.position(|code| code == SET_UP_FRAME)?;
            let saved = traced + push as u64 + 1;
            Some((saved, saved + (between + SET_UP_FRAME.len()) as u64))
        });
        Function {
            start,
            traced,
            frame,
        }
    }

    /// Returns the function's rules, and the address at which each begins.
    fn rules(self) -> Vec<(u64, Rule)> {
        let entry = (self.start, Rule::ENTRY);
        match self.frame {
            Some((saved, set_up)) => vec![
                entry,
                (self.start + saved, Rule::SAVED),
                (self.start + set_up, Rule::FRAME),
            ],
            // Where it calls others, it has a frame.
            None => vec![entry, (self.start + self.traced + 1, Rule::FRAME)],
        }
    }
}

/// Rules of functions that keep frame pointers, sorted as their starts are; but for those that have a `fixed` one.
fn entry_rules(functions: &[Function], fixed: impl Fn(u64) -> Option<Rule>) -> Vec<(u64, Rule)> {
    let ends = functions.iter().skip(1).map(|next| next.start);
    let rules = functions
        .iter()
        .zip(ends.chain([u64::MAX]))
        .flat_map(|(function, end)| {
            let mut rules = match fixed(function.start) {
                Some(rule) => vec![(function.start, rule)],
                None => function.rules(),
            };
            // Of two names of one function the last one counts; a function may end before its frame is set up.
            rules.retain(|(start, _)| *start < end);
            rules
        });
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_neither_table_nor_frame_pointers_is_refused() {
        for (all, keeping) in [(256, 256), (256, 128)] {
            check_frame_pointers(all, keeping).expect("frame pointers");
        }
        for (all, keeping) in [(256, 127), (256, 0), (0, 0)] {
            let refused = check_frame_pointers(all, keeping)
                .expect_err("none")
                .to_string();
            assert!(
                refused.contains("neither ORC nor frame pointers"),
                "{refused}"
            );
            assert!(refused.contains("bpfcost stack --helper"), "{refused}");
        }
    }

    #[test]
    fn frames_are_set_up_among_other_instructions() {
        let start = 0x100;
        let is = |code: &[u8], traced, frame| {
            let expected = Function {
                start,
                traced,
                frame,
            };
            assert_eq!(Function::from_code(start, code), expected, "{code:x?}");
        };
        // As compilers write it: with ftrace's instruction before, and `xor %eax,%eax` between.
        is(&[0x55, 0x48, 0x89, 0xe5], 0, Some((1, 4)));
        let traced = [0x0f, 0x1f, 0x44, 0, 0, 0x55, 0x31, 0xc0, 0x48, 0x89, 0xe5];
        is(&traced, 5, Some((6, 11)));
        is(&[0xe8, 0x55, 0x48, 0x89, 0xe5, 0xc3], 5, None);
        is(&[0x48, 0x89, 0xe5, 0x55], 0, None);
        is(&[0x55, 0x53, 0x48, 0x89, 0xfb], 0, None);
        is(&[], 0, None);
    }

    #[test]
    fn functions_have_rules_of_each_part_of_their_beginning() {
        let framed = |start| Function {
            start,
            traced: 5,
            frame: Some((6, 9)),
        };
        let bare = |start| Function {
            start,
            traced: 0,
            frame: None,
        };
        // Two names of one function, one that is too short for a frame, and one in assembly.
        let functions = [
            framed(0x100),
            framed(0x100),
            framed(0x200),
            bare(0x204),
            bare(0x400),
        ];
        let rules = entry_rules(&functions, |start| (start == 0x400).then_some(Rule::END));
        let expected = [
            (0x100, Rule::ENTRY),
            (0x106, Rule::SAVED),
            (0x109, Rule::FRAME),
            (0x200, Rule::ENTRY),
            (0x204, Rule::ENTRY),
            (0x205, Rule::FRAME),
            (0x400, Rule::END),
        ];
        assert_eq!(rules, expected);
    }
}
