//! The congestion control of TCP that new connections have.

use std::{collections::BTreeSet, fs, io};

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const CHOSEN: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Names of those that the kernel has.
pub(super) fn available() -> BTreeSet<String> {
    let names = fs::read_to_string(AVAILABLE).unwrap_or_default();
    names.split_ascii_whitespace().map(str::to_owned).collect()
}

/// A choice for all new connections. Dropping it chooses the earlier one again.
#[derive(Debug)]
pub(super) struct CongestionControl {
    earlier: String,
}

impl CongestionControl {
    /// Chooses one by its name.
    pub(super) fn choose(name: &str) -> io::Result<Self> {
        let earlier = fs::read_to_string(CHOSEN)?;
        fs::write(CHOSEN, name)?;
        Ok(CongestionControl { earlier })
    }
}

impl Drop for CongestionControl {
    fn drop(&mut self) {
        let _ = fs::write(CHOSEN, self.earlier.trim());
    }
}
