//! The holders of locks in tables that processes share.

use super::super::layout::{CHILD_AREAS, FIRST_CHILD_HOLDER};
use std::collections::BTreeSet;

/// The holders of one process and its forked children that may still hold a lock. A holder's number is that of an area;
/// the areas of forked children follow those of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holders {
    /// True if the process itself runs.
    pub(in super::super) is_running: bool,
    /// The first holders of the children that run.
    pub(in super::super) children: BTreeSet<u32>,
}

impl Holders {
    /// Returns whether a holder's process is among those that run.
    pub(crate) fn contains(&self, holder: u32) -> bool {
        match holder.checked_sub(FIRST_CHILD_HOLDER) {
            None => self.is_running,
            Some(area) => {
                let first = holder - area % CHILD_AREAS as u32;
                self.children.contains(&first)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_the_process_or_a_child_that_runs() {
        let holders = Holders {
            is_running: false,
            children: BTreeSet::from([FIRST_CHILD_HOLDER + 16]),
        };
        let first = FIRST_CHILD_HOLDER;
        let running = [first + 16, first + 31];
        let ended = [1, first - 1, first, first + 15, first + 32];
        assert!(running.iter().all(|&one| holders.contains(one)));
        assert!(!ended.iter().any(|&one| holders.contains(one)));
    }
}
