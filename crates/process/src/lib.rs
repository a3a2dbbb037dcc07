//! Processes that bpfcost starts: servers, clients, probes and agents. Each has its output captured and a control group of
//! its own (a process group if there are no control groups), and ends with its owner, however that ends. Settings of the
//! machine are restored the same way.

pub mod cgroup;
mod clock;
mod group;
mod output;
mod process;
mod process_tree;
pub mod program;
pub mod reaper;
pub mod restore;
mod run_context;
mod wait;
pub mod xdg;

pub use clock::{ProcessClock, ProcessTime};
pub use group::group_of;
pub use output::{Capture, Search};
pub use process::{ChildFailed, Process, allow_files, describe_exit, process_name};
pub use process_tree::{holds, process_tree, threads};
pub use run_context::RunContext;
pub use wait::{wait_for, wait_until};
