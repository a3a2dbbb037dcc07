//! Disturbances of a run, as a journal stores them. The target detects them.

use serde::{Deserialize, Serialize};

/// Disturbances of the machine while it measured. Parts of a resumed run add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disturbance {
    /// Time watched, times the CPUs online, in milliseconds: what the shares below refer to.
    pub capacity_ms: f64,
    /// Time watched, in milliseconds.
    pub wall_ms: f64,
    /// Time that the hypervisor took away, summed over CPUs.
    pub steal_ms: f64,
    /// CPU time that neither this process nor its children used, idle time left out.
    pub other_cpu_ms: f64,
    /// Moves of this program's threads between CPUs.
    pub migrations: u64,
    /// Lowest and highest frequency seen on the CPUs that measure, in MHz.
    pub mhz: Option<[f64; 2]>,
    /// Greatest resident memory of this program, in bytes.
    pub user_bytes: Option<u64>,
}

impl Disturbance {
    /// This part of a run and a later one, as one.
    pub fn merge(self, later: Disturbance) -> Disturbance {
        Disturbance {
            capacity_ms: self.capacity_ms + later.capacity_ms,
            wall_ms: self.wall_ms + later.wall_ms,
            steal_ms: self.steal_ms + later.steal_ms,
            other_cpu_ms: self.other_cpu_ms + later.other_cpu_ms,
            migrations: self.migrations.saturating_add(later.migrations),
            mhz: Self::widest(self.mhz, later.mhz),
            user_bytes: self.user_bytes.max(later.user_bytes),
        }
    }

    /// The range of frequencies that holds both.
    pub fn widest(one: Option<[f64; 2]>, other: Option<[f64; 2]>) -> Option<[f64; 2]> {
        one.into_iter()
            .chain(other)
            .reduce(|one, other| [one[0].min(other[0]), one[1].max(other[1])])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_run_add_up() {
        let one = Disturbance {
            steal_ms: 1.0,
            migrations: 2,
            mhz: Some([1000.0, 2000.0]),
            user_bytes: Some(5),
            ..Disturbance::default()
        };
        let other = Disturbance {
            steal_ms: 2.0,
            migrations: 1,
            mhz: Some([1500.0, 2500.0]),
            ..Disturbance::default()
        };
        let both = one.merge(other);
        assert_eq!(both.steal_ms, 3.0);
        assert_eq!(both.migrations, 3);
        assert_eq!(both.mhz, Some([1000.0, 2500.0]));
        assert_eq!(both.user_bytes, Some(5));
    }
}
