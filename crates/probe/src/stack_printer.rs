//! Prints stacks as a tool does whose user watches: the names of functions, each event at once. Into /dev/null, so that no
//! terminal is part of the cost.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufWriter, Write},
    mem,
};

use anyhow::{Context as _, Result};
use bpfcost_bpf::unwind::KernelSymbols;

/// Counts of what was printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrintedStacks {
    /// Stacks.
    pub stacks: u64,
    /// Frames of all of them.
    pub frames: u64,
    /// Bytes that the kernel took.
    pub bytes: u64,
}

/// Prints stacks as the names of their functions.
pub struct StackPrinter {
    symbols: KernelSymbols,
    /// Lines by address: an address costs a search once.
    lines: HashMap<u64, Box<str>>,
    out: BufWriter<CountedFile>,
    stacks: u64,
    frames: u64,
    failed: Option<io::Error>,
}

struct CountedFile {
    file: File,
    bytes: u64,
}

impl Write for CountedFile {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let written = self.file.write(text)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl StackPrinter {
    /// Prints to `/dev/null`.
    pub fn open() -> Result<Self> {
        let file = File::create("/dev/null").context("cannot open /dev/null")?;
        Ok(StackPrinter {
            symbols: KernelSymbols::default(),
            lines: HashMap::new(),
            out: BufWriter::new(CountedFile { file, bytes: 0 }),
            stacks: 0,
            frames: 0,
            failed: None,
        })
    }

    /// Reads the names that it prints; after the programs were loaded, which have names too.
    pub fn read_symbols(&mut self) -> Result<()> {
        self.symbols = KernelSymbols::read()?;
        self.lines.clear();
        Ok(())
    }

    /// Prints a stack, one line a frame.
    pub fn print(&mut self, addresses: &[u64]) {
        for &address in addresses {
            let symbols = &self.symbols;
            let line = self
                .lines
                .entry(address)
                .or_insert_with(|| line(symbols, address));
            if let Err(error) = self.out.write_all(line.as_bytes()) {
                self.failed = Some(error);
            }
        }
        if let Err(error) = self.out.write_all(b"\n").and_then(|()| self.out.flush()) {
            self.failed = Some(error);
        }
        self.stacks += 1;
        self.frames += addresses.len() as u64;
    }

    /// The length of a stack's text.
    pub fn text_bytes(&self, addresses: &[u64]) -> u64 {
        let lines = addresses
            .iter()
            .map(|address| line(&self.symbols, *address));
        lines.map(|line| line.len() as u64).sum::<u64>() + 1
    }

    /// Takes the counts of what was printed since the last call; an error where that failed.
    pub fn take_counts(&mut self) -> Result<PrintedStacks> {
        let counts = PrintedStacks {
            stacks: mem::take(&mut self.stacks),
            frames: mem::take(&mut self.frames),
            bytes: mem::take(&mut self.out.get_mut().bytes),
        };
        match self.failed.take() {
            Some(error) => Err(error).context("cannot print stacks"),
            None => Ok(counts),
        }
    }
}

fn line(symbols: &KernelSymbols, address: u64) -> Box<str> {
    let text = match symbols.symbol(address) {
        Some(symbol) => match symbol.module {
            Some(module) => format!("    {} [{module}]\n", symbol.name),
            None => format!("    {}\n", symbol.name),
        },
        None => format!("    {address:#x}\n"),
    };
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_printed_as_names() {
        let symbols = KernelSymbols::parse(
            "ffffffff81000000 T one\nffffffffc0000000 t two\t[loop]\nffffffffc0001000 t three\t[bpf]\n",
        );
        let mut printer = StackPrinter::open().unwrap();
        printer.symbols = symbols;
        let stack = [
            0xffffffff81000010,
            0xffffffffc0000010,
            0xffffffffc0001000,
            0x10,
        ];
        let text = "    one\n    two [loop]\n    three [bpf]\n    0x10\n\n";
        for address in stack {
            assert!(
                text.contains(&*line(&printer.symbols, address)),
                "{address:#x}"
            );
        }
        assert_eq!(printer.text_bytes(&stack), text.len() as u64);
        for stacks in [1, 3] {
            (0..stacks).for_each(|_| printer.print(&stack));
            let printed = PrintedStacks {
                stacks,
                frames: 4 * stacks,
                bytes: text.len() as u64 * stacks,
            };
            assert_eq!(printer.take_counts().unwrap(), printed);
        }
        assert_eq!(printer.take_counts().unwrap(), PrintedStacks::default());
        assert_eq!(printer.lines.len(), 4);
    }
}
