//! What a command says and how it ends: the answer on stdout, everything else on stderr, and the exit code. And the commands
//! that measure nothing, `report`, `compare` and `list`: the program `bpfcost-read` has only these, and builds without
//! clang, libbpf and Linux.
#![forbid(unsafe_code)]

pub mod compare;
pub mod exit;
pub mod list;
pub mod output;
pub mod parse;
pub mod report;
pub mod summary;
