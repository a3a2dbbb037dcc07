//! Packet events: two ends of a veth in a network namespace of bpfcost's own, without other processes.
//!
//! Packets go from one end to the other and are dropped there, as early as IPv4 can: their destination is a third
//! machine. So each packet passes every hook on its way once, and there are no other packets.

mod frames;
mod gro;
mod group;
pub(super) mod hook;
mod live;
mod sendto;
mod veth;

pub(super) use frames::Frames;
pub(crate) use group::cgroup_root;
pub(super) use sendto::Sendto;
