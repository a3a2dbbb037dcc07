//! Events on a network of the tool's own: two ends of a veth in a network namespace without other processes.
//!
//! Packets go from one end to the other and are dropped there, as early as IPv4 can: their address is that
//! of a third machine. So each packet passes every hook on its way once, and no other packet is there.

mod frames;
mod gro;
mod group;
mod hook;
mod live;
mod sendto;
mod veth;

pub(super) use frames::Frames;
pub(super) use sendto::Sendto;
