//! Guests as their user meets them: what they measure, each way in which they can end, and that nothing
//! of them is left. What needs a guest goes through `require`.

#[path = "../common/kept.rs"]
mod kept;
#[path = "../../../bpf/tests/require/mod.rs"]
mod shared;
#[path = "../cli/tool.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tool;

mod attach;
mod attaching;
mod datapath;
mod ends;
mod exact;
mod faults;
mod features;
mod frame_pointer;
mod gate;
mod inside;
mod iperf3;
mod kernels;
mod kretprobe;
mod lacking;
mod measures;
mod planted;
mod program;
mod require;
mod stack;
mod stack_attach;
mod visit;
