//! Counts of what an object's programs did.

/// Counts of an object's programs while they were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// Runs of programs.
    pub hits: u64,
    /// Calls without a run: in too many probes already, or no memory left for the thread. A process that started and could
    /// not be stopped, or not be attached to, counts as one.
    pub missed: u64,
}

/// Counts of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCounts {
    /// The program's name.
    pub program: String,
    /// The name of the program's section.
    pub section: String,
    /// Number of processes that it was attached to. Their forked children, which run it too, are not counted.
    pub processes: u64,
    /// Runs, and calls without one.
    pub counts: ProcessCounts,
}

/// Counts of an object's programs, each by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// The programs that sections give a place, in the order of the object.
    pub programs: Vec<ProgramCounts>,
    /// Calls that no program can be said to have missed: a process that could not be stopped or attached to as it started
    /// is one, and so is a file that a forked child loaded itself.
    pub missed: u64,
}

impl ObjectCounts {
    /// Counts of all programs together.
    pub fn total(&self) -> ProcessCounts {
        let mut total = ProcessCounts {
            hits: 0,
            missed: self.missed,
        };
        for program in &self.programs {
            total.add(program.counts);
        }
        total
    }
}

impl ProcessCounts {
    pub(super) fn add(&mut self, more: ProcessCounts) {
        self.hits += more.hits;
        self.missed += more.missed;
    }
}
