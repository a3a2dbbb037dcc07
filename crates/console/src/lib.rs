//! What a command says and how it ends: the answer on stdout, everything else on stderr, and the exit code. And the commands
//! that need records alone, `report` and `compare`: the program `bpfcost-read` has only these, and builds without clang,
//! libbpf and Linux.
#![forbid(unsafe_code)]

pub mod compare;
pub mod exit;
pub mod output;
pub mod parse;
pub mod report;
pub mod summary;
