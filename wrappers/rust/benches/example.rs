//! An example that needs neither root nor a guest; `BPFCOST_EXAMPLE` holds another command line.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    let line = env::var("BPFCOST_EXAMPLE");
    bpfcost_bench::main(&[line
        .as_deref()
        .unwrap_or("run pool --case line/own --quick")])
}
