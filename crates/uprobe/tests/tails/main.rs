//! Probes at the return of functions that leave by a jump to another one.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
mod counted;
mod held;
mod object;
mod refused;

use bpfcost_uprobe::process::{
    Attachment, Counts, Function, Hits, Image, Memory, Probe, Program, Runtime, mappings,
};
use common::{Binary, Target, program};
use std::path::Path;

/// A process of tails.c.
struct Tails {
    process: Target,
    memory: Memory,
    _binary: Binary,
}

/// The answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    calls: u64,
    wrong: u64,
    sum: u64,
}

impl Tails {
    fn start(flags: &[&str]) -> Self {
        let binary = Binary::compile("tails.c", flags);
        let process = binary.start(&[]);
        Tails {
            memory: Memory::open(process.pid()).unwrap(),
            process,
            _binary: binary,
        }
    }

    fn function(&self, name: &str) -> Function {
        let image = Image::of_program(self.process.pid()).unwrap();
        image.function(name).unwrap()
    }

    /// A function of the C library.
    fn library(&self, name: &str) -> Function {
        let pid = self.process.pid();
        let all = mappings(pid).unwrap();
        let mut names = all.iter().map(|mapping| mapping.name.as_str());
        let path = names.find(|name| name.contains("/libc.so")).unwrap();
        let image = Image::open(pid, Path::new(path)).unwrap();
        image.function(name).unwrap()
    }

    fn ask(&mut self, command: &str) -> Answer {
        self.process.send(command);
        self.answer(command)
    }

    fn answer(&mut self, command: &str) -> Answer {
        let line = self.process.line();
        let words: Vec<&str> = line.split(' ').collect();
        let [calls, wrong, sum] = words[..] else {
            panic!("{command}: it died: {line:?}");
        };
        Answer {
            calls: calls.parse().unwrap(),
            wrong: wrong.parse().unwrap(),
            sum: u64::from_str_radix(sum, 16).unwrap(),
        }
    }

    /// Has it call a function. Returns the calls and the sum of the results.
    fn call(&mut self, command: &str) -> (u64, u64) {
        let answer = self.ask(command);
        assert_eq!(answer.wrong, 0, "{command}");
        (answer.calls, answer.sum)
    }

    /// The sum that the programs made, from 0 on for the next ones.
    fn take_sum(&self) -> u64 {
        let at = self.process.address(0);
        let sum = self.memory.read_u64(at).unwrap();
        self.memory.write(at, &[0; 8]).unwrap();
        sum
    }

    /// The program that makes it.
    fn summing(&self, runtime: &mut Runtime) -> Program {
        program::sum_results(runtime, self.process.address(0))
    }
}

fn at_return(function: &Function, program: Program) -> Probe<'_> {
    Probe {
        function,
        entry: None,
        returns: Some(program),
        inside: &[],
    }
}

fn attach(runtime: &mut Runtime, functions: &[&Function], program: Program) -> Attachment {
    let probes: Vec<_> = functions
        .iter()
        .map(|one| at_return(one, program))
        .collect();
    runtime.attach(&probes).unwrap()
}

fn sum(counts: Counts) -> u64 {
    counts.hits + counts.missed
}

/// The returns of an attachment with one probe.
fn only(all: &[Hits]) -> Counts {
    assert_eq!(all.len(), 1);
    all[0].returns
}
