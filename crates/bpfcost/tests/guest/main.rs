//! Guests as their user meets them: what they measure, each way in which they can end, and that nothing
//! of them is left. What needs a guest goes through `require`. Tests start in the order of their names: what takes minutes
//! has a name that comes early, so that no CPU is idle at the end.

#[path = "../common/kept.rs"]
mod kept;
#[path = "../../../bpf/tests/require/mod.rs"]
mod shared;
#[path = "../cli/tool.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tool;

mod attach;
mod attach_stacks;
mod attaching;
mod datapath;
mod ends;
mod exact;
mod faults;
mod features;
mod frame_pointer;
mod gate;
mod hook;
mod inside;
mod interrupts;
mod iperf3;
mod kernels;
mod kretprobe;
mod lacking;
mod measures;
mod planted;
mod program;
mod reads;
mod require;
mod stack;
mod visit;
