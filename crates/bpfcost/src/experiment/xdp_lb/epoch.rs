//! An epoch of `xdp-lb`: instances of the datapath, loaded afresh, and the trials run on them.

use std::{fs, net::IpAddr, thread, time::Duration};

use anyhow::{Context, Result, anyhow};
use bpfcost_bpf::{
    Pinned,
    lb::{self, Body, Datapath, LRU_ENTRIES, LoadBalancer, Reset, Work},
    timing::Seen,
};

use super::{
    Target, check, model, packet,
    scenario::{Flows, Scenario, Table},
    sequence::{Sequence, low_word},
    target_of,
};
use crate::experiment::{Batch, Case, Fault, Loaded, Problem, Setup, Trial};

/// How long the kernel may take to free tables before the next epoch goes on regardless.
const FREE_PATIENCE: Duration = Duration::from_millis(300);
/// The part of a batch that runs untimed before it, an eighth: so that a trial meets the caches and
/// predictors that its own case makes, not those that another case left behind.
const WARM_UP_SHARE: u64 = 8;
/// How often to look whether it has.
const FREE_POLL: Duration = Duration::from_millis(2);
/// Memory that may come and go meanwhile for other reasons, in KiB.
const FREE_SLACK_KIB: u64 = 1024;

/// Loaded instances, one per table that the cases need.
pub(super) struct Epoch {
    instances: Vec<(Table, LoadBalancer)>,
    cpus: Vec<u32>,
    seed: u64,
    /// Batches and replays so far: gives each its own sources.
    generation: u32,
    /// Those among them that brought fresh flows of 24 and of 12 bits: gives each a prefix that no
    /// flow still in the table has.
    fresh: [u32; 2],
    /// Kernel memory in use before anything was loaded, in KiB.
    vmalloc_before: Option<u64>,
    /// Keeps the engine's thread on the first CPU, so that trials don't move it.
    _pinned: Pinned,
}

/// How a batch or replay is run.
#[derive(Clone, Copy)]
struct Run {
    ops: u64,
    resets: u64,
}

impl Epoch {
    pub(super) fn load(setup: &Setup, datapath: Datapath) -> Result<Self> {
        let first = *setup.cpus.first().context("no CPU was chosen")?;
        let vmalloc_before = vmalloc_used();
        let pinned = Pinned::to(first)?;
        let mut tables: Vec<Table> = Vec::new();
        for case in &setup.cases {
            let table = match target_of(case)? {
                Target::Floor(_) => Table::Warm,
                Target::Scenario(scenario) => scenario.table,
            };
            if !tables.contains(&table) {
                tables.push(table);
            }
        }
        let mut instances: Vec<(Table, LoadBalancer)> = Vec::new();
        for table in tables {
            let shared = instances
                .first()
                .map(|(_, first)| first.shared())
                .transpose()?;
            let instance = LoadBalancer::load(&setup.cpus, datapath, shared.as_ref())?;
            if shared.is_none() {
                instance.set_rings(model::rings())?;
                instance.set_reals(model::reals())?;
            }
            instance.set_control(&model::control())?;
            for (key, vip) in model::vips() {
                instance.add_vip(&key, &vip)?;
            }
            if table == Table::Full {
                let (flows, entries) = model::foreign(LRU_ENTRIES);
                for &cpu in &setup.cpus {
                    instance.remember(cpu, &flows, &entries)?;
                }
            }
            instances.push((table, instance));
        }
        Ok(Epoch {
            instances,
            cpus: setup.cpus.clone(),
            seed: setup.seed,
            generation: 0,
            fresh: [0; 2],
            vmalloc_before,
            _pinned: pinned,
        })
    }

    fn instance(&mut self, table: Table) -> Result<&mut LoadBalancer> {
        let found = self.instances.iter_mut().find(|(own, _)| *own == table);
        found
            .map(|(_, instance)| instance)
            .ok_or_else(|| anyhow!("no instance with {table:?} table"))
    }

    /// The next sequences of a scenario, one per CPU.
    fn sequences(&mut self, scenario: &Scenario, resets: u64) -> Vec<Sequence> {
        self.generation += 1;
        let prefix = match scenario.flows {
            Flows::Fresh => self.fresh_prefix(scenario.mask),
            _ => low_word(scenario.source),
        };
        let generation = u64::from(self.generation) << 32;
        let sequence = |&cpu: &u32| {
            let seed = mix(self.seed ^ mix(generation | u64::from(cpu)));
            Sequence::new(scenario.source, scenario.mask, prefix, seed, resets)
        };
        self.cpus.iter().map(sequence).collect()
    }

    /// Sources of 24 bits get 1 to 199 in front, those of 12 bits get 200 to 255 and a number behind
    /// it: neither meets the other's flows, and an epoch ends, or has filled its tables several
    /// times over, before a prefix comes again.
    fn fresh_prefix(&mut self, mask: u32) -> u32 {
        let wide = mask > 0xfff;
        let count = &mut self.fresh[usize::from(wide)];
        *count += 1;
        if wide {
            (1 + *count % 199) << 24
        } else {
            ((200 + *count / 4096 % 56) << 24) | ((*count % 4096) << 12)
        }
    }

    fn works(&self, scenario: &Scenario, sequences: &[Sequence]) -> Vec<Work> {
        let input = packet::input(scenario);
        let work = |(&cpu, sequence): (&u32, &Sequence)| Work {
            cpu,
            packet: first_packet(scenario, &input, sequence),
            sources: sequence.sources(),
        };
        self.cpus.iter().zip(sequences).map(work).collect()
    }

    /// One proved batch of a scenario on all CPUs.
    fn batch(&mut self, scenario: &Scenario, run: Run) -> Result<(Vec<Seen>, u64), Fault> {
        let sequences = self.sequences(scenario, run.resets);
        let works = self.works(scenario, &sequences);
        let cpus = self.cpus.clone();
        let instance = self.instance(scenario.table)?;
        let before = counters(instance, &cpus)?;
        let seen = instance
            .batch(
                Body::Datapath,
                scenario.reset(),
                &works,
                run.ops,
                run.resets,
            )
            .map_err(anyhow::Error::from)?;
        let after = counters(instance, &cpus)?;

        let mut misses = 0;
        for (i, seen) in seen.iter().enumerate() {
            let expected = model::expected(scenario, &sequences[i], run.ops);
            misses += expected.misses;
            let last = sequences[i].address(sequences[i].last_word(run.ops));
            let outcome = expected_packet(scenario, &works[i].packet, last);
            let problem = batch_problem(scenario, seen, run.ops, &outcome)
                .or_else(|| check::counters(&expected, &before[i], &after[i], run.ops));
            if let Some(problem) = problem {
                return Err(Fault::Invalid(problem));
            }
        }
        if scenario.table == Table::Empty {
            self.forget(scenario, &sequences, run.ops)?;
        }
        Ok((seen, misses))
    }

    /// Takes what a batch brought into the empty table out again.
    fn forget(
        &mut self,
        scenario: &Scenario,
        sequences: &[Sequence],
        ops: u64,
    ) -> Result<(), Fault> {
        let cpus = self.cpus.clone();
        let instance = self.instance(scenario.table)?;
        for (cpu, sequence) in cpus.into_iter().zip(sequences) {
            let mut words: Vec<u32> = sequence.words(ops).collect();
            words.sort_unstable();
            words.dedup();
            let flows: Vec<_> = words
                .into_iter()
                .map(|word| model::flow(scenario, sequence.address(word)))
                .collect();
            instance.forget(cpu, &flows).map_err(anyhow::Error::from)?;
        }
        Ok(())
    }

    /// Puts every flow of a warm scenario into the table of each CPU.
    fn warm(&mut self, scenario: &Scenario) -> Result<()> {
        let cpus = self.cpus.clone();
        let base = low_word(scenario.source);
        let sequence = Sequence::new(scenario.source, scenario.mask, base, 1, 1);
        let instance = self.instance(scenario.table)?;
        let now = lb::now_ns();
        let (flows, entries): (Vec<_>, Vec<_>) = (0..=scenario.mask)
            .map(|low| sequence.address(base & !scenario.mask | low))
            .filter_map(|source| {
                let real = model::fate(scenario, source)?.real;
                Some((
                    model::flow(scenario, source),
                    model::entry(scenario, real, now),
                ))
            })
            .unzip();
        for cpu in cpus {
            instance.remember(cpu, &flows, &entries)?;
        }
        Ok(())
    }

    /// The first operations of a sequence, untimed, with every packet and every counter compared.
    fn replay(&mut self, scenario: &Scenario) -> Result<(), Fault> {
        let ops = lb::REPLAY_OPS as u64;
        let sequences = self.sequences(scenario, 1);
        for (work, sequence) in self.works(scenario, &sequences).iter().zip(&sequences) {
            let instance = self.instance(scenario.table)?;
            let before = instance.counters(work.cpu).map_err(anyhow::Error::from)?;
            let seen = instance
                .replay(scenario.reset(), work, ops as usize)
                .map_err(anyhow::Error::from)?;
            let after = instance.counters(work.cpu).map_err(anyhow::Error::from)?;
            if let Some(problem) = check::operations(ops, seen.len() as u64) {
                return Err(Fault::Invalid(problem));
            }
            for (number, (seen, word)) in seen.iter().zip(sequence.words(ops)).enumerate() {
                let what = format!("operation {number} of the replay");
                let expected = expected_packet(scenario, &work.packet, sequence.address(word));
                let problem = check::action(&what, scenario.action as u32, seen.action)
                    .or_else(|| check::packet(&what, &expected, &seen.packet));
                if let Some(problem) = problem {
                    return Err(Fault::Invalid(problem));
                }
            }
            let expected = model::expected(scenario, sequence, ops);
            if let Some(problem) = check::counters(&expected, &before, &after, ops) {
                return Err(Fault::Invalid(problem));
            }
        }
        if scenario.table == Table::Empty {
            self.forget(scenario, &sequences, ops)?;
        }
        Ok(())
    }

    /// One proved batch of an empty body: it must return what it was given.
    fn floor(&mut self, reset: Reset, run: Run) -> Result<Vec<Seen>, Fault> {
        let scenario = super::floor_packet(reset);
        let sequences = self.sequences(&scenario, run.resets);
        let works = self.works(&scenario, &sequences);
        let instance = self.instance(Table::Warm)?;
        let seen = instance
            .batch(Body::Empty, reset, &works, run.ops, run.resets)
            .map_err(anyhow::Error::from)?;
        for (i, seen) in seen.iter().enumerate() {
            let last = match reset {
                Reset::None | Reset::Strip => low_word(scenario.source),
                Reset::StripV4 | Reset::StripV6 => sequences[i].last_word(run.ops),
            };
            let outcome = packet::with_source(&works[i].packet, sequences[i].address(last));
            if let Some(problem) = batch_problem(&scenario, seen, run.ops, &outcome) {
                return Err(Fault::Invalid(problem));
            }
        }
        Ok(seen)
    }
}

impl Loaded for Epoch {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        let Target::Scenario(scenario) = target_of(case)? else {
            return Ok(());
        };
        if scenario.flows == Flows::Known {
            self.warm(&scenario)?;
        }
        self.replay(&scenario)
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let target = target_of(case)?;
        let run = |epoch: &mut Self, ops, resets| match &target {
            Target::Floor(reset) => Ok((epoch.floor(*reset, Run { ops, resets })?, None)),
            Target::Scenario(scenario) => {
                let (seen, misses) = epoch.batch(scenario, Run { ops, resets })?;
                Ok::<_, Fault>((seen, Some(misses)))
            }
        };
        run(self, (batch.0 / WARM_UP_SHARE).max(1), 1)?;
        // A floor's reset is all that it has, and nothing can't be done twice. What comes first
        // meets other caches than what comes second, so chance decides.
        let doubles =
            matches!(&target, Target::Scenario(scenario) if scenario.reset() != Reset::None);
        let doubled_first = mix(self.seed ^ u64::from(self.generation)) & 1 == 1;
        let mut doubled = None;
        if doubles && doubled_first {
            doubled = Some(run(self, batch.0, 2)?.0);
        }
        let (seen, misses) = run(self, batch.0, 1)?;
        if doubles && !doubled_first {
            doubled = Some(run(self, batch.0, 2)?.0);
        }
        let mut trial = trial(&seen, batch);
        if let Some(doubled) = doubled {
            trial
                .secondary
                .insert("reset_twice".into(), mean_ns_per_op(&doubled));
        }
        if let Some(misses) = misses {
            trial.secondary.insert("lru_misses".into(), misses as f64);
        }
        Ok(trial)
    }

    fn kernel_bytes(&self) -> Option<u64> {
        Some(
            self.instances
                .iter()
                .map(|(_, instance)| instance.kernel_bytes())
                .sum(),
        )
    }

    fn unload(self: Box<Self>) -> Result<()> {
        let before = self.vmalloc_before;
        drop(self);
        let Some(before) = before else { return Ok(()) };
        let mut waited = Duration::ZERO;
        while waited < FREE_PATIENCE
            && vmalloc_used().is_some_and(|now| now > before + FREE_SLACK_KIB)
        {
            thread::sleep(FREE_POLL);
            waited += FREE_POLL;
        }
        Ok(())
    }
}

/// What every batch must show, whatever its body: that it ran whole, and what it left.
fn batch_problem(scenario: &Scenario, seen: &Seen, ops: u64, outcome: &[u8]) -> Option<Problem> {
    check::together(seen.cpu, seen.together)
        .or_else(|| check::operations(ops, seen.ops))
        .or_else(|| check::action("the last operation", scenario.action as u32, seen.code))
        .or_else(|| check::packet("the last operation", outcome, &seen.output))
}

/// The packet of the first operation.
fn first_packet(scenario: &Scenario, input: &[u8], sequence: &Sequence) -> Vec<u8> {
    if scenario.mask == 0 {
        return input.to_vec();
    }
    packet::with_source(input, sequence.address(sequence.last_word(1)))
}

/// What an operation must leave of `input` when it comes from `source`.
fn expected_packet(scenario: &Scenario, input: &[u8], source: IpAddr) -> Vec<u8> {
    match model::fate(scenario, source) {
        None => input.to_vec(),
        Some(fate) => packet::encapsulated(
            &packet::with_source(input, source),
            source,
            scenario.source_port,
            fate.tunnel_end,
        ),
    }
}

fn counters(instance: &LoadBalancer, cpus: &[u32]) -> Result<Vec<lb::Counters>> {
    cpus.iter()
        .map(|&cpu| Ok(instance.counters(cpu)?))
        .collect()
}

fn trial(seen: &[Seen], batch: Batch) -> Trial {
    let mut trial = Trial {
        value: mean_ns_per_op(seen),
        ops: batch.0,
        elapsed_ns: seen.iter().map(Seen::elapsed_ns).fold(0.0, f64::max),
        secondary: Default::default(),
    };
    if seen.len() > 1 {
        for seen in seen {
            trial
                .secondary
                .insert(format!("cpu{}_ns_per_op", seen.cpu), seen.ns_per_op());
        }
        let start = seen.iter().map(|seen| seen.start_ns).min().unwrap_or(0);
        let end = seen.iter().map(|seen| seen.end_ns).max().unwrap_or(0);
        let seconds = end.saturating_sub(start) as f64 / 1e9;
        let ops = trial.ops * seen.len() as u64;
        trial
            .secondary
            .insert("ops_per_s".into(), ops as f64 / seconds);
    }
    trial
}

fn mean_ns_per_op(seen: &[Seen]) -> f64 {
    seen.iter().map(Seen::ns_per_op).sum::<f64>() / seen.len().max(1) as f64
}

/// Kernel memory of the kind that tables are made of, in KiB.
fn vmalloc_used() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmallocUsed:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Spreads a seed over all bits (Steele et al. 2014, SplitMix64's finaliser).
fn mix(mut seed: u64) -> u64 {
    seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}
