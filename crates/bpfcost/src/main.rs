//! bpfcost: what does eBPF cost? Parses, dispatches, and turns the outcome into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    bpfcost::cli::main()
}
