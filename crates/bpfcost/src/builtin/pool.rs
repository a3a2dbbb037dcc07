//! `pool`: what does a pool of objects cost under contention? Study 001 asked it of the kernel's list of
//! kretprobe records and of an array in its place; Linux 6.7 put a ring for each CPU there (lib/objpool.c).
//!
//! Threads on their CPUs take an object, sign it, hold it and return it, again and again, all beginning
//! together. The value is the time until the last is done by the pairs of one thread: ns per pair and thread,
//! with what the harness does to objects in it; floors are the same loop without a pool.
//!
//! All allowed CPUs are used by default, with up to four threads on each, so that threads are preempted with objects in
//! hand. Everything runs in user space, so it needs no privilege.

mod case;
mod epoch;
mod load;
mod space;

use anyhow::{Context, Result};
use bpfcost_threads::{BUILD, CpuLocation, PAIRS_PER_S, Spin, line::players};

use self::{case::PoolCase, space::Space};
use bpfcost_model::{
    Case, Description, Experiment, Layout, LoadedEpoch, Overhead, Pair, Scaling, Sentinel, Setup,
};

/// A batch's length where each thread has a CPU: shorter than a time slice. A thread that is alone because
/// something else has the other's CPU is fast, and batches of 10 ms on a busy machine are a mixture of both:
/// at 2 threads an array took 142 ns a pair in batches of 1 to 10 ms and 60 in those of 20 to 70, crossbeam's
/// queue 430 and 50.
const BATCH_NS: f64 = 2e6;
/// A batch's length for each thread that a CPU has where it has several: two time slices (ticks of 4 ms),
/// so that threads are preempted with objects in hand.
const CROWDED_NS: f64 = 8e6;
/// No batch is longer.
const LONGEST_NS: f64 = 200e6;

/// The experiment.
#[derive(Clone, Debug)]
pub struct Pools {
    cpus: Vec<u32>,
    space: Space,
}

impl Default for Pools {
    /// On all CPUs that this process may run on.
    fn default() -> Self {
        let cpus = bpfcost_bpf::allowed_cpus();
        let space = Space::on(cpus.len());
        Pools { cpus, space }
    }
}

impl Pools {
    /// Target length of a batch, in nanoseconds.
    fn batch_ns(&self, way: PoolCase) -> f64 {
        let threads = match way {
            PoolCase::Pool(_, point) | PoolCase::Alone(point) => point.threads,
            PoolCase::Line(_) => 1,
        };
        match threads.div_ceil(self.cpus.len().max(1)) {
            0 | 1 => BATCH_NS,
            each => (each as f64 * CROWDED_NS).min(LONGEST_NS),
        }
    }
}

impl Experiment for Pools {
    fn description(&self) -> Description {
        Description {
            layout: Layout::from(Scaling {
                over: "threads".into(),
                series: "pool".into(),
                rate: PAIRS_PER_S.into(),
            }),
            margin: 0.03,
            privileged: false,
            every_cpu: true,
            counts: false,
            contends: true,
            overhead: Overhead {
                // Measured on a shared virtual machine with two CPUs.
                load_s: 0.001,
                trial_s: 0.0005,
                batches: 1.2,
            },
            ..Description::new(
                "pool",
                "lock-free object pools under contention: the kernel's old one, its new one, and others",
                &[
                    (
                        "pool",
                        "freelist, array, array-padded, percpu, crossbeam-array, crossbeam-seg, concurrent, mutex",
                    ),
                    ("threads", "threads that use the pool, spread over the CPUs"),
                    (
                        "objects",
                        "objects in the pool: 2x is two per CPU and object taken at a time; 64 is 64 in total",
                    ),
                    ("hold", "dependent multiplications while an object is held"),
                    ("bulk", "objects taken before they are returned"),
                    (
                        "line",
                        "CPUs that change a cache line in turn: own (one CPU), near (another core), far (another \
                         socket)",
                    ),
                ],
            )
        }
    }

    fn on_cpus(&mut self, cpus: &[u32]) {
        cpus.clone_into(&mut self.cpus);
        self.space.turn_to(cpus.len());
    }

    fn set(&mut self, factor: &str, values: &str) -> Result<()> {
        self.space.set(factor, values)
    }

    fn cases(&self) -> Vec<Case> {
        let case = |way: PoolCase| Case {
            batch_ns: Some(self.batch_ns(way)),
            ..way.case()
        };
        case::all(&self.space).into_iter().map(case).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        case::pairs(&self.space)
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        let mut ways = case::all(&self.space).into_iter();
        let Some(PoolCase::Line(line)) = ways.find(|way| way.name() == case.name) else {
            return Ok(None);
        };
        let seats: Vec<CpuLocation> = self.cpus.iter().copied().map(CpuLocation::read).collect();
        Ok(players(line, &seats).err())
    }

    /// The build of the pools: no BPF program is timed.
    fn programs(&self) -> Result<Option<String>> {
        Ok(Some(format!("pools of build {BUILD}")))
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        Ok(Box::new(epoch::PoolEpoch::load(setup, &self.space)?))
    }

    fn sentinel(&self, setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        let cpu = *setup.cpus.first().context("no CPU was chosen")?;
        Ok(Some(Box::new(Spin { cpu })))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use bpfcost_model::Role;

    fn on(cpus: &[u32], set: &[(&str, &str)]) -> Pools {
        let mut pools = Pools::default();
        pools.on_cpus(cpus);
        for (factor, values) in set {
            pools.set(factor, values).expect("it can be set");
        }
        pools
    }

    fn names(pools: &Pools, role: Role) -> Vec<String> {
        let cases = pools.cases().into_iter();
        cases
            .filter(|case| case.role == role)
            .map(|case| case.name)
            .collect()
    }

    #[test]
    fn cases_of_two_cpus() {
        let names = names(&on(&[0, 1], &[]), Role::Case);
        // 8 pools at one load, 4 at 4 others, each with 1, 2, 4 and 8 threads; 3 lines.
        assert_eq!(names.len(), 4 * (8 + 4 * 4) + 3);
        for name in [
            "freelist/1",
            "array-padded/8",
            "mutex/4",
            "array/8/objects-1x",
            "percpu/8/objects-4x",
            "array/8/hold-100",
            "crossbeam-array/8/bulk-4",
            "line/far",
        ] {
            assert!(names.iter().any(|one| one == name), "{name}");
        }
    }

    #[test]
    fn names_differ_and_floors_and_pairs_are_there() {
        for set in [
            &[][..],
            &[("objects", "64,2x"), ("hold", "7"), ("bulk", "2,1")],
        ] {
            let pools = on(&[0, 1, 2], set);
            let cases = pools.cases();
            let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
            assert_eq!(names.len(), cases.len());
            for case in &cases {
                let floor = case.floor.as_deref();
                let needs = case.factors.contains_key("pool");
                assert_eq!(floor.is_some(), needs, "{}", case.name);
                assert!(floor.is_none_or(|floor| names.contains(floor)), "{floor:?}");
            }
            let pairs = pools.pairs();
            assert_eq!(pairs.len(), 7 * 5, "seven at 1, 2, 4, 8 and 12 threads");
            for pair in pairs {
                assert!(names.contains(pair.case.as_str()), "{}", pair.case);
                assert!(names.contains(pair.baseline.as_str()), "{}", pair.baseline);
            }
        }
    }

    #[test]
    fn names_say_what_is_unusual() {
        let set = [
            ("pool", "array"),
            ("threads", "16"),
            ("objects", "64"),
            ("hold", "0,500"),
        ];
        let pools = on(&[0, 1], &set);
        let expected = [
            "array/16/objects-64",
            "array/16/objects-64/hold-500",
            "array/16/objects-64/bulk-4",
        ];
        assert_eq!(names(&pools, Role::Case)[..3], expected);
        let floors = ["none/16", "none/16/hold-500", "none/16/bulk-4"];
        assert_eq!(names(&pools, Role::Floor), floors);
        assert_eq!(pools.pairs(), []);
    }

    #[test]
    fn batches_are_long_where_threads_share_a_cpu() {
        let pools = on(&[0, 1], &[("threads", "2,3,4096")]);
        let cases = pools.cases();
        let long = |name: &str| {
            let case = cases.iter().find(|case| case.name == name);
            case.expect(name).batch_ns
        };
        assert_eq!(long("array/2"), Some(BATCH_NS));
        assert_eq!(long("array/3"), Some(2.0 * CROWDED_NS));
        assert_eq!(long("none/4096"), Some(LONGEST_NS));
        assert_eq!(long("line/near"), Some(BATCH_NS));
    }
}
