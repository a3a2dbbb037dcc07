//! `bpfcost kernel`: kernels from a Debian archive that is made here and signed with its own key, so that
//! nothing depends on a network; and from the real one where `BPFCOST_REQUIRE` asks for guests.

mod archive;
mod builds;
mod faults;
mod fetches;
mod files;
mod lab;
mod paths;
