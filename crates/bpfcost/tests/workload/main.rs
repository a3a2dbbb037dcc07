//! Workloads as their user meets them: the binary, the user's own definitions, real servers and clients. Nothing
//! here asks how long something takes.

#[path = "../common/kept.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod kept;
#[path = "../common/own_cgroups.rs"]
mod own_cgroups;
#[path = "../../../bpf/tests/require/mod.rs"]
mod require;
#[path = "../cli/running.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod running;
#[path = "../cli/tool.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod tool;

mod accounts;
mod agent;
mod alarms;
// Tests start in the order of their names, and this takes longest.
mod by_period;
mod definition;
mod definitions;
mod ends;
mod faults;
mod l7;
mod network;
mod own_server;
mod stack;
mod success;
mod syscount;
