//! Scripts of threads on a pool in a model, and the laws that hold whatever happens between them.

use std::{collections::VecDeque, mem, sync::Arc};

use bpfcost_pool::Pool;

use crate::{
    subject::Subject,
    world::{Payload, World},
};

/// A case small enough to be gone through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) objects: usize,
    /// CPUs that the pool is made for; threads say theirs in turn.
    pub(crate) cpus: usize,
    /// The script of each thread: `-` takes an object out, `+` brings back the one that it has had longest.
    pub(crate) threads: &'static [&'static str],
}

impl Scene {
    /// Plays it once, to its end.
    pub(crate) fn play<W: World, S: Subject>(self) {
        let pool = Arc::new(S::build::<W>(self.objects, self.cpus));
        let payloads: Arc<[W::Payload]> =
            (0..self.objects).map(|_| W::Payload::default()).collect();
        let act = |(cpu, script): (usize, &&'static str)| {
            let (pool, payloads) = (pool.clone(), payloads.clone());
            let (script, cpus) = (*script, self.cpus);
            move || act(&*pool, &payloads, cpu % cpus, script)
        };
        let mut threads = self.threads.iter().enumerate().map(act);
        let first = threads.next();
        let others: Vec<_> = threads.map(W::spawn).collect();
        let mut taken = first.map_or(0, |run| run());
        taken += others.into_iter().map(|wait| wait()).sum::<u64>();
        drain(&*pool);
        let counted: u64 = payloads.iter().map(Payload::value).sum();
        assert_eq!(counted, taken, "an object had two owners");
    }
}

/// One thread, which ends with nothing in its hands: how many objects it got.
fn act(pool: &impl Pool, payloads: &[impl Payload], cpu: usize, script: &str) -> u64 {
    let mut held = VecDeque::new();
    let mut taken = 0;
    for step in script.chars() {
        match step {
            '-' => {
                if let Some(object) = pool.pop(cpu) {
                    payloads[object.index()].count_up();
                    taken += 1;
                    held.push_back(object);
                }
            }
            '+' => {
                if let Some(object) = held.pop_front() {
                    pool.push(cpu, object);
                }
            }
            _ => panic!("a script has - and + only, not {step}"),
        }
    }
    assert!(held.is_empty(), "{script} keeps objects");
    taken
}

/// All threads are done: every object is in the pool, once.
fn drain(pool: &impl Pool) {
    let mut came = vec![false; pool.capacity()];
    while let Some(object) = pool.pop(0) {
        let was = mem::replace(&mut came[object.index()], true);
        assert!(!was, "object {} came out twice", object.index());
    }
    let lost = came.iter().filter(|came| !**came).count();
    assert!(lost == 0, "{lost} objects were lost");
}
