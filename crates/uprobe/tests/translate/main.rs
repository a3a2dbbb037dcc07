//! The translator against the kernel: the same programs on the same inputs, by `BPF_PROG_TEST_RUN` and here.
//!
//! `random` takes `BPFCOST_TRANSLATE_PROGRAMS` for the number of generated programs, `BPFCOST_TRANSLATE_IMAGES` for
//! that of programs that run as the kernel's machine code, and `BPFCOST_TRANSLATE_SEED` for the first one's seed
//! (CONTRIBUTING.md, Test variables).

#![allow(unsafe_code, reason = "runs machine code, and calls the kernel")]

#[path = "../../../bpf/tests/require/mod.rs"]
mod require;

mod arena;
mod assemble;
mod btf;
mod calls;
mod dead_code;
mod decode;
mod edge;
mod format;
mod generator;
mod helpers;
mod input;
mod kernel;
mod machine;
mod random;
mod tail;
mod thread_table;
mod trial;
