//! The values of each factor of `pool`: the defaults, or those of `--set`.

use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail};
use bpfcost_threads::PoolKind;

use super::{
    super::factor::{list, within},
    load::{ObjectCount, PoolLoad},
};
use bpfcost_text::suggest;

/// Threads per CPU, at most, by default.
const MAX_PER_CPU: usize = 4;

/// Threads that can be asked for. Each is one of this process; with thousands on a CPU it is the scheduler
/// that is measured.
const THREADS: RangeInclusive<usize> = 1..=4096;
/// Objects that can be asked for, in all: with more, memory is measured and no pool.
const OBJECTS: RangeInclusive<usize> = 1..=1 << 20;
/// Objects per CPU that can be asked for.
const OBJECTS_PER_CPU: RangeInclusive<usize> = 1..=1024;
/// Multiplications for which an object can be held: a million take about a millisecond.
const HOLD: RangeInclusive<u32> = 0..=1_000_000;
/// Objects that can be taken at a time.
const BULK: RangeInclusive<usize> = 1..=64;

/// The factors that can be set.
const FACTORS: [&str; 5] = ["pool", "threads", "objects", "hold", "bulk"];

/// The values of each factor. The first of each make the load that everything is compared at.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// Pools at the first load.
    pools: Vec<PoolKind>,
    /// Pools at the other loads.
    varied: Vec<PoolKind>,
    /// `None`: in powers of two, up to four a CPU.
    threads: Option<Vec<usize>>,
    objects: Vec<ObjectCount>,
    hold: Vec<u32>,
    bulk: Vec<usize>,
    cpus: usize,
}

impl Space {
    /// The default on so many CPUs.
    pub(super) fn on(cpus: usize) -> Self {
        Space {
            pools: PoolKind::all().collect(),
            varied: PoolKind::VARIED.into(),
            threads: None,
            objects: [2, 1, 4].map(ObjectCount::PerCpu).into(),
            hold: vec![0, 100],
            bulk: vec![1, 4],
            cpus: cpus.max(1),
        }
    }

    /// The same on another number of CPUs.
    pub(super) fn turn_to(&mut self, cpus: usize) {
        self.cpus = cpus.max(1);
    }

    fn threads(&self) -> Vec<usize> {
        let most = MAX_PER_CPU * self.cpus;
        self.threads.clone().unwrap_or_else(|| {
            let mut counts: Vec<usize> = (0..usize::BITS)
                .map(|power| 1 << power)
                .take_while(|&count| count < most)
                .collect();
            counts.push(most);
            counts
        })
    }

    /// Loads with the pools that are measured under them: the first, and those that differ from it in one
    /// factor.
    pub(super) fn loads(&self) -> Vec<(&[PoolKind], Vec<PoolLoad>)> {
        let first = PoolLoad {
            threads: 1,
            objects: self.objects[0],
            hold: self.hold[0],
            bulk: self.bulk[0],
        };
        let objects = self.objects[1..]
            .iter()
            .map(|&objects| PoolLoad { objects, ..first });
        let hold = self.hold[1..]
            .iter()
            .map(|&hold| PoolLoad { hold, ..first });
        let bulk = self.bulk[1..]
            .iter()
            .map(|&bulk| PoolLoad { bulk, ..first });
        let others = objects.chain(hold).chain(bulk);
        let threads = self.threads();
        let points = |load: PoolLoad| {
            let with = |&threads: &usize| PoolLoad { threads, ..load };
            threads.iter().map(with).collect()
        };
        [(&self.pools[..], points(first))]
            .into_iter()
            .chain(others.map(|load| (&self.varied[..], points(load))))
            .collect()
    }

    /// Gives a factor other values. A pool that was named is measured under every load.
    pub(super) fn set(&mut self, factor: &str, values: &str) -> Result<()> {
        match factor {
            "pool" => {
                self.pools = list(values, pool)?;
                self.varied.clone_from(&self.pools);
            }
            "threads" => self.threads = Some(list(values, |text| within(text, &THREADS))?),
            "objects" => self.objects = list(values, objects)?,
            "hold" => self.hold = list(values, |text| within(text, &HOLD))?,
            "bulk" => self.bulk = list(values, |text| within(text, &BULK))?,
            other => bail!(
                "pool has no factor {other}{} that can be set\n  These can: {}",
                suggest(other, FACTORS.into_iter()),
                FACTORS.join(", ")
            ),
        }
        Ok(())
    }
}

fn pool(name: &str) -> Result<PoolKind> {
    let names = || PoolKind::all().map(PoolKind::name);
    let named = |kind: &PoolKind| kind.name() == name;
    PoolKind::all().find(named).with_context(|| {
        format!(
            "there is no pool {name}{}\n  Pools: {}",
            suggest(name, names()),
            names().collect::<Vec<_>>().join(", ")
        )
    })
}

fn objects(text: &str) -> Result<ObjectCount> {
    match text.strip_suffix('x') {
        Some(each) => within(each, &OBJECTS_PER_CPU).map(ObjectCount::PerCpu),
        None => within(text, &OBJECTS).map(ObjectCount::Total),
    }
    .context("objects is a number in total, or a number per CPU and object at a time, like 2x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_four_a_cpu() {
        assert_eq!(Space::on(1).threads(), [1, 2, 4]);
        assert_eq!(Space::on(2).threads(), [1, 2, 4, 8]);
        assert_eq!(Space::on(3).threads(), [1, 2, 4, 8, 12]);
        assert_eq!(Space::on(96).threads().last(), Some(&384));
    }

    #[test]
    fn factors_take_other_values() {
        let mut space = Space::on(2);
        for (factor, values) in [
            ("pool", "mutex, percpu"),
            ("threads", "3,1"),
            ("objects", "64,1x"),
            ("hold", "500"),
            ("bulk", "64"),
        ] {
            space.set(factor, values).expect(factor);
        }
        space.turn_to(96);
        let loads = space.loads();
        let named = |kinds: &[PoolKind]| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>();
        assert_eq!(loads.len(), 2);
        for ((kinds, points), objects) in loads.iter().zip(["64", "1x"]) {
            assert_eq!(named(kinds), ["mutex", "percpu"]);
            let threads: Vec<usize> = points.iter().map(|point| point.threads).collect();
            assert_eq!(threads, [3, 1]);
            for point in points {
                assert_eq!(point.objects.to_string(), objects);
                assert_eq!((point.hold, point.bulk), (500, 64));
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (factor, values, words) in [
            ("thread", "1", "did you mean threads?"),
            ("line", "own", "no factor line"),
            ("pool", "aray", "did you mean array?"),
            ("pool", "array,array", "array is named twice"),
            ("threads", "0", "0 is not a number from 1 to 4096"),
            ("threads", "4097", "from 1 to 4096"),
            ("threads", "-1", "-1 is not"),
            ("threads", "1,,2", "nothing is not"),
            ("threads", "many", "many is not"),
            ("objects", "0", "from 1 to 1048576"),
            ("objects", "0x", "from 1 to 1024"),
            ("objects", "99999999999999999999", "from 1 to 1048576"),
            ("hold", "-1", "from 0 to 1000000"),
            ("bulk", "0", "from 1 to 64"),
        ] {
            let mut space = Space::on(2);
            let error = space.set(factor, values).expect_err(values);
            let error = format!("{error:#}");
            assert!(error.contains(words), "{factor}={values}: {error}");
        }
    }
}
