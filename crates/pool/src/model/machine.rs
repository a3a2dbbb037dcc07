//! The machine that pools are simulated on: how many cores there are, where, and what a cache line costs.

/// A machine that need not exist. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelMachine {
    /// Sockets.
    pub sockets: u32,
    /// Cores of a socket.
    pub cores: u32,
    /// Hardware threads of a core, which share its cache.
    pub threads_per_core: u32,
    /// The throughput of a core with two busy threads, as a multiple of that with one: 1 to 2.
    pub smt: f64,
    /// Bytes of a cache line. Less than there are stands for values that are larger than the pools'.
    pub line_bytes: usize,
    /// A load from a line that this core has.
    pub load_ns: f64,
    /// An atomic change of a line that this core owns.
    pub own_ns: f64,
    /// Getting a line from another core of the socket.
    pub near_ns: f64,
    /// Getting it from another socket.
    pub far_ns: f64,
}

/// The time of a local load as a share of that of a local atomic change, where only the change was measured: on the
/// cores of the last ten years an L1 hit is 4 to 5 cycles, a locked change 18 to 20.
const LOAD: f64 = 0.25;

impl ModelMachine {
    /// A machine of `sockets` sockets, each with `cores` cores of one thread.
    pub fn new(sockets: u32, cores: u32, own_ns: f64, near_ns: f64, far_ns: f64) -> Self {
        ModelMachine {
            sockets,
            cores,
            threads_per_core: 1,
            smt: 1.0,
            line_bytes: 64,
            load_ns: own_ns * LOAD,
            own_ns,
            near_ns,
            far_ns,
        }
    }

    /// Hardware threads of all cores.
    pub fn cpus(&self) -> u32 {
        self.sockets * self.cores * self.threads_per_core
    }

    /// The core of a CPU. They are numbered as Linux does: one thread of each core, socket after socket,
    /// then the second threads.
    pub(super) fn core(&self, cpu: u32) -> u32 {
        cpu % (self.sockets * self.cores)
    }

    /// The factor by which a CPU is slower than alone while the first `busy` CPUs are at work.
    pub(super) fn slowdown(&self, cpu: u32, busy: u32) -> f64 {
        let cores = self.sockets * self.cores;
        let together = (0..busy)
            .filter(|other| other % cores == cpu % cores)
            .count();
        match together {
            0 | 1 => 1.0,
            several => several as f64 / self.smt,
        }
    }

    /// The nanoseconds in which one core gets a line from another.
    pub(super) fn distance_ns(&self, from: u32, to: u32) -> f64 {
        if from / self.cores == to / self.cores {
            self.near_ns
        } else {
            self.far_ns
        }
    }
}
