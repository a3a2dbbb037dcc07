//! The sequence of source addresses of a trial, computed in user space.

use std::net::IpAddr;

use bpfcost_bpf::lb::Sources;

/// The sources of one batch on one CPU: the first, then one per reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    base: IpAddr,
    start: Sources,
    /// Resets between two operations: 1, or 2 where the reset is done twice.
    stride: u64,
}

impl Sequence {
    /// Sources that share `prefix` and vary under `mask`; `seed` decides them.
    pub(super) fn new(base: IpAddr, mask: u32, prefix: u32, seed: u64, stride: u64) -> Self {
        // Any state but 0, from which the generator never leaves.
        let state = (seed ^ (seed >> 32)) as u32 | 1;
        Sequence {
            base,
            start: Sources {
                state,
                mask,
                prefix: prefix & !mask,
            },
            stride,
        }
    }

    /// Returns the input of the BPF program: the state from which it continues after the first operation.
    pub(super) fn sources(&self) -> Sources {
        self.start
    }

    /// The low words of the first `ops` sources, in host order.
    pub(super) fn words(&self, ops: u64) -> impl Iterator<Item = u32> + use<> {
        let Sources {
            mut state,
            mask,
            prefix,
        } = self.start;
        let stride = self.stride;
        (0..ops).map(move |_| {
            let word = prefix | (state & mask);
            for _ in 0..stride {
                state = xorshift32(state);
            }
            word
        })
    }

    /// The low word of the source of operation `ops - 1`, in host order.
    pub(super) fn last_word(&self, ops: u64) -> u32 {
        let Sources {
            mut state,
            mask,
            prefix,
        } = self.start;
        if mask != 0 {
            for _ in 1..ops {
                for _ in 0..self.stride {
                    state = xorshift32(state);
                }
            }
        }
        prefix | (state & mask)
    }

    /// A source by its low word.
    pub(super) fn address(&self, word: u32) -> IpAddr {
        match self.base {
            IpAddr::V4(_) => IpAddr::V4(word.into()),
            IpAddr::V6(base) => {
                let high = u128::from(base) & !u128::from(u32::MAX);
                IpAddr::V6((high | u128::from(word)).into())
            }
        }
    }
}

/// The low word of an address, in host order.
pub(super) fn low_word(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => u128::from(address) as u32,
    }
}

/// Marsaglia 2003, the triple (13, 17, 5): every non-zero state once in 2³² − 1 steps.
fn xorshift32(mut state: u32) -> u32 {
    state ^= state << 13;
    state ^= state >> 17;
    state ^ (state << 5)
}
