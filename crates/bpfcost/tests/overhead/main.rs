//! `bpfcost overhead` as its user meets it: its four forms, its kinds of probes, its mistakes, and that nothing is left.
//! What needs BPF goes through `require`.

#[path = "../common/patched.rs"]
mod patched;
#[path = "../../../bpf/tests/require/mod.rs"]
mod require;
#[path = "../cli/tool.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tool;

// Tests start in the order of their names, and these take longest.
mod as_before;
mod live;
mod measuring;
mod mistakes;
mod object;
mod probes;
