//! The C interface of `bpfcost_uprobe`, which `include/bpfcost_uprobe.h` declares and documents.
//!
//! Each function checks its arguments, calls the Rust function of that name, and makes the answer a number. A panic is an
//! error, too.

mod argument;
mod entries;
mod failure;
mod handle;
mod maps;
mod places;
mod records;
