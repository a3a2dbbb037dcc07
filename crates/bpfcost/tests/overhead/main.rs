//! `bpfcost overhead` as its user meets it: its four forms, its kinds of probes, its mistakes, and that nothing is left.
//! What needs BPF goes through `require`.

#[path = "../common/patched.rs"]
mod patched;
#[path = "../../../bpf/tests/require/mod.rs"]
mod require;
#[path = "../cli/tool.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tool;

// The first by its name, which is the order in which tests start: it waits for longer than all others together take.
mod as_before;
mod measuring;
mod mistakes;
mod object;
mod probes;
mod watched;
