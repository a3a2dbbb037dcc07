//! What a trace of executed instructions tells of runs of a program: how many were at each of its addresses, and how many
//! in what it called.

use std::{collections::BTreeMap, fmt::Debug};

use anyhow::Result;
use bpfcost_bpf::program::MachineCode;
use serde::{Deserialize, Serialize};

/// An instruction that calls is followed at most so many bytes later by the one to which the call returns.
const LONGEST_INSTRUCTION: u64 = 15;

/// Instructions of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTrace {
    /// Those of the program, by their addresses.
    pub own: BTreeMap<u64, u64>,
    /// Those elsewhere in the kernel, by the address from which they were called. An interrupt looks like a call.
    pub called: BTreeMap<u64, u64>,
}

/// Traces what a machine executes.
pub trait InstructionTracer: Debug {
    /// The runs of a program that lies there, while `run` runs it.
    fn trace(
        &self,
        code: &MachineCode,
        run: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<RunTrace>>;
}

/// Reads a trace, address by address.
#[derive(Debug)]
pub struct TraceReader {
    code: MachineCode,
    runs: Vec<RunTrace>,
    under_way: Option<UnderWay>,
}

/// A run that has not ended.
#[derive(Debug, Default)]
struct UnderWay {
    run: RunTrace,
    /// The last address of the program.
    last: u64,
    /// Whether the last address was one of the program.
    inside: bool,
    /// The addresses of calls that have not returned: a helper may call a function of the program.
    calls: Vec<u64>,
}

impl RunTrace {
    /// All of its instructions.
    pub fn instructions(&self) -> u64 {
        self.own.values().chain(self.called.values()).sum()
    }
}

impl TraceReader {
    /// Of a program that lies there.
    pub fn new(code: MachineCode) -> Self {
        TraceReader {
            code,
            runs: Vec::new(),
            under_way: None,
        }
    }

    /// The next instruction's address.
    pub fn executed(&mut self, address: u64) {
        let function = self.code.function(address);
        let begins = self
            .code
            .functions
            .first()
            .is_some_and(|main| main.start == address);
        let Some(under_way) = &mut self.under_way else {
            if begins {
                let mut under_way = UnderWay::default();
                under_way.inside(address, true);
                self.under_way = Some(under_way);
            }
            return;
        };
        if let Some(function) = function {
            under_way.inside(address, address == function.start);
            return;
        }
        if under_way.inside && self.code.is_end(under_way.last) {
            self.runs
                .extend(self.under_way.take().map(|ended| ended.run));
            return;
        }
        let returns = self
            .code
            .function(under_way.last)
            .is_some_and(|one| one.is_exit(under_way.last));
        under_way.outside(returns);
    }

    /// The runs that began and ended.
    pub fn into_runs(self) -> Vec<RunTrace> {
        self.runs
    }
}

impl UnderWay {
    fn inside(&mut self, address: u64, is_called: bool) {
        if !self.inside && !is_called {
            let returns = |call: &mut u64| {
                (*call..=call.saturating_add(LONGEST_INSTRUCTION)).contains(&address)
            };
            self.calls.pop_if(returns);
        }
        *self.run.own.entry(address).or_default() += 1;
        (self.last, self.inside) = (address, true);
    }

    fn outside(&mut self, returns: bool) {
        if self.inside && !returns {
            self.calls.push(self.last);
        }
        self.inside = false;
        if let Some(&call) = self.calls.last() {
            *self.run.called.entry(call).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use bpfcost_bpf::program::MachineFunction;

    use super::*;

    /// A program with one function that a helper calls.
    fn code() -> MachineCode {
        let function = |start, end, exits| MachineFunction { start, end, exits };
        MachineCode {
            functions: vec![
                function(100, 120, vec![(115, 119)]),
                function(200, 220, vec![(218, 219)]),
            ],
        }
    }

    fn read(addresses: &[u64]) -> Vec<RunTrace> {
        let mut reader = TraceReader::new(code());
        for &address in addresses {
            reader.executed(address);
        }
        reader.into_runs()
    }

    fn run(own: &[(u64, u64)], called: &[(u64, u64)]) -> RunTrace {
        RunTrace {
            own: own.iter().copied().collect(),
            called: called.iter().copied().collect(),
        }
    }

    #[test]
    fn a_run_goes_from_its_entry_to_its_exit() {
        let alone = run(&[(100, 1), (104, 1), (115, 1), (118, 1)], &[]);
        assert_eq!(
            read(&[9, 104, 100, 104, 115, 118, 9, 104, 9]),
            std::slice::from_ref(&alone),
            "what comes before and after is not of it"
        );
        assert_eq!(alone.instructions(), 4);
        assert_eq!(read(&[100, 104, 9]), [], "it has not ended");
        let twice = read(&[100, 115, 9, 9, 100, 115, 9]);
        assert_eq!(
            twice,
            [
                run(&[(100, 1), (115, 1)], &[]),
                run(&[(100, 1), (115, 1)], &[])
            ]
        );
    }

    #[test]
    fn what_is_called_counts_for_the_call() {
        // The helper calls the second function twice, which calls another helper.
        let addresses = [
            100, 104, 9, 9, 200, 204, 8, 8, 8, 209, 218, 9, 200, 204, 8, 209, 218, 9, 109, 115, 7,
        ];
        let expected = run(
            &[
                (100, 1),
                (104, 1),
                (109, 1),
                (115, 1),
                (200, 2),
                (204, 2),
                (209, 2),
                (218, 2),
            ],
            &[(104, 4), (204, 4)],
        );
        assert_eq!(read(&addresses), [expected]);
    }

    #[test]
    fn functions_that_return_by_a_thunk_and_interrupts_are_no_end() {
        // From the second function back to the first by way of 5; an interrupt at 106, and one at the entry.
        let addresses = [100, 3, 104, 200, 218, 5, 106, 3, 3, 106, 109, 115, 5];
        let expected = run(
            &[
                (100, 1),
                (104, 1),
                (106, 2),
                (109, 1),
                (115, 1),
                (200, 1),
                (218, 1),
            ],
            &[(100, 1), (106, 2)],
        );
        assert_eq!(read(&addresses), [expected]);
    }
}
