//! Any sequence of pops and pushes, beside a set that says what must come of it.

use std::collections::BTreeMap;

use bpfcost_pool::Object;
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::Make;

/// Cases, and steps of each at most. Miri draws them very slowly, and one thread has no races.
const CASES: u32 = if cfg!(miri) { 2 } else { 256 };
const STEPS: usize = if cfg!(miri) { 12 } else { 120 };

/// A step of a thread that says it is on that CPU.
#[derive(Clone, Copy, Debug)]
enum Step {
    Pop(usize),
    /// The index among the objects that are out, modulo their number.
    Push(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cpu = prop_oneof![0..6_usize, Just(usize::MAX)];
    let push = (cpu.clone(), any::<usize>()).prop_map(|(cpu, which)| Step::Push(cpu, which));
    vec(prop_oneof![cpu.prop_map(Step::Pop), push], 0..STEPS)
}

pub(crate) fn check(make: Make) {
    let mut config = Config::with_cases(CASES);
    // A failure is found again by its seed, which is printed; files of them are not kept.
    config.failure_persistence = None;
    let case = (1..20_usize, 1..6_usize, steps());
    TestRunner::new(config)
        .run(&case, |(objects, cpus, steps)| {
            let pool = make(objects, cpus).expect("it is small");
            let mut out: BTreeMap<usize, Object> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Pop(cpu) => match pool.pop(cpu) {
                        Some(object) => {
                            prop_assert!(object.index() < objects);
                            let index = object.index();
                            prop_assert!(out.insert(index, object).is_none());
                        }
                        None => prop_assert_eq!(out.len(), objects),
                    },
                    Step::Push(cpu, which) => {
                        let which = which % out.len().max(1);
                        let index = out.keys().nth(which).copied();
                        if let Some(object) = index.and_then(|index| out.remove(&index)) {
                            pool.push(cpu, object);
                        }
                    }
                }
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}
