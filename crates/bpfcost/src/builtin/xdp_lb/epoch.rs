//! An epoch of `xdp-lb`: loads instances of the datapath afresh, warms them up, and runs trials on them.

use std::net::IpAddr;

use anyhow::{Context, Result, anyhow};
use bpfcost_bpf::{
    lb::{self, LRU_ENTRIES, LbCounters, LbVariant, LbWork, LoadBalancer, Reset, TimedBody},
    timing::{Observation, Request},
};

use super::{
    CaseKind, case_kind, check, floor_packet,
    model::{self, Expected},
    packet,
    proof::{
        before_flood, expected_packet, first_packet, flood_problem, outcome_problem, table_problem,
    },
    scenario::{Flows, LruState, Scenario},
    sequence::{Sequence, low_word},
};
use crate::builtin::{
    batch::{self, mix},
    packet_diff,
    timed::TimedCases,
};
use bpfcost_model::{Case, Fault, Problem, Setup, Trial, prove};

/// Time for which flows in a table are taken to be fresh, a third of the life of a UDP entry: they must not expire
/// unnoticed if the program is stopped for a while, or the machine is slow.
const WARM_NS: u64 = 10_000_000_000;

/// Loaded instances, one per table that the cases need.
pub(super) struct XdpLbEpoch {
    instances: Vec<(LruState, LoadBalancer)>,
    cpus: Vec<u32>,
    /// The run's seed and, unless instructions are counted, the epoch, mixed.
    seed: u64,
    /// True if instructions are counted; see [`Setup`].
    exact: bool,
    entries: Vec<Entry>,
    /// Batches that brought fresh flows of 12 and of 24 bits: gives each a prefix that no flow still
    /// in the table has.
    fresh: [u32; 2],
}

/// A case in this epoch.
struct Entry {
    name: String,
    target: CaseKind,
    /// Batches and replays so far: gives each its own sequence.
    runs: u32,
    /// When its flows were put into the tables, by the datapath's clock.
    warmed_ns: u64,
}

/// Packets for every CPU: what goes in first, and what follows.
struct Traffic {
    sequences: Vec<Sequence>,
    works: Vec<LbWork>,
}

/// A batch, and what it must leave.
pub(super) struct XdpLbBatch {
    seen: Vec<Observation>,
    traffic: Traffic,
    /// Counters of each CPU before a scenario's batch, and their expected increase.
    counters: Vec<(LbCounters, Expected)>,
    begun_ns: u64,
}

impl AsRef<[Observation]> for XdpLbBatch {
    fn as_ref(&self) -> &[Observation] {
        &self.seen
    }
}

impl XdpLbEpoch {
    pub(super) fn load(setup: &Setup, variant: LbVariant) -> Result<Self> {
        let entries = setup
            .cases
            .iter()
            .map(|case| {
                let target = case_kind(case)?;
                Ok(Entry {
                    name: case.name.clone(),
                    target,
                    runs: 0,
                    warmed_ns: 0,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let mut instances: Vec<(LruState, LoadBalancer)> = Vec::new();
        for table in entries.iter().map(|entry| entry.target.table()) {
            if instances.iter().any(|(state, _)| *state == table) {
                continue;
            }
            let first = instances.first().map(|(_, first)| first);
            instances.push((table, instance(table, &setup.cpus, variant, first)?));
        }
        Ok(XdpLbEpoch {
            instances,
            cpus: setup.cpus.clone(),
            seed: if setup.exact {
                mix(setup.seed)
            } else {
                mix(setup.seed ^ mix(setup.epoch as u64))
            },
            exact: setup.exact,
            entries,
            fresh: [0; 2],
        })
    }

    fn entry(&self, case: &Case) -> Result<usize> {
        let position = self
            .entries
            .iter()
            .position(|entry| entry.name == case.name);
        position.with_context(|| format!("{} was not loaded in this epoch", case.name))
    }

    fn instance(&mut self, table: LruState) -> Result<&mut LoadBalancer> {
        let instance = self.instances.iter_mut().find(|(state, _)| *state == table);
        instance
            .map(|(_, instance)| instance)
            .ok_or_else(|| anyhow!("no instance with {table:?} table was loaded"))
    }

    /// The next packets of a case, for a scenario's reset done `resets` times.
    fn traffic(&mut self, index: usize, scenario: &Scenario, resets: u64) -> Traffic {
        let entry = &mut self.entries[index];
        entry.runs += 1;
        // The luck of a draw is noise on a clock, and an error in a count: there each batch has the
        // same draws, whatever the order of cases, and however many of them run.
        let run = if self.exact {
            0
        } else {
            (index as u64) << 48 | u64::from(entry.runs) << 16
        };
        let prefix = match scenario.flows {
            Flows::Fresh => self.fresh_prefix(scenario.mask),
            _ => low_word(scenario.source),
        };
        let sequence = |&cpu: &u32| {
            let seed = mix(self.seed ^ mix(run | u64::from(cpu)));
            Sequence::new(scenario.source, scenario.mask, prefix, seed, resets)
        };
        let sequences: Vec<Sequence> = self.cpus.iter().map(sequence).collect();
        let input = packet::input(scenario);
        let work = |(&cpu, sequence): (&u32, &Sequence)| LbWork {
            cpu,
            packet: first_packet(scenario, &input, sequence),
            sources: sequence.sources(),
        };
        let works = self.cpus.iter().zip(&sequences).map(work).collect();
        Traffic { sequences, works }
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

    /// Checks every counter and the tables after a batch of a scenario.
    fn check_scenario(
        &mut self,
        scenario: &Scenario,
        ops: u64,
        batch: &XdpLbBatch,
    ) -> Result<(), Fault> {
        let Traffic { sequences, works } = &batch.traffic;
        let begun_ns = batch.begun_ns;
        let instance = self.instance(scenario.table)?;
        for (i, seen) in batch.seen.iter().enumerate() {
            let (before, expected) = &batch.counters[i];
            let after = instance.counters(seen.cpu)?;
            let last = sequences[i].address(sequences[i].last_word(ops));
            let outcome = expected_packet(scenario, &works[i].packet, last);
            prove(outcome_problem(scenario, seen, &outcome))?;
            prove(check::counters(expected, before, &after, ops))?;
            prove(flood_problem(instance, expected, seen.cpu, begun_ns)?)?;
            prove(table_problem(instance, scenario, last, seen.cpu, begun_ns)?)?;
        }
        self.forget(scenario, sequences, ops)
    }

    /// Checks that an empty body returned its packet as it was given.
    fn check_floor(reset: Reset, ops: u64, batch: &XdpLbBatch) -> Result<(), Fault> {
        let scenario = floor_packet(reset);
        let Traffic { sequences, works } = &batch.traffic;
        for (i, seen) in batch.seen.iter().enumerate() {
            let last = sequences[i].address(sequences[i].last_word(ops));
            let outcome = packet::with_source(&works[i].packet, last);
            prove(outcome_problem(&scenario, seen, &outcome))?;
        }
        Ok(())
    }

    /// Takes what a batch brought into a table that must be empty out again.
    fn forget(
        &mut self,
        scenario: &Scenario,
        sequences: &[Sequence],
        ops: u64,
    ) -> Result<(), Fault> {
        if scenario.table != LruState::Empty {
            return Ok(());
        }
        let cpus = self.cpus.clone();
        let instance = self.instance(scenario.table)?;
        for (cpu, sequence) in cpus.into_iter().zip(sequences) {
            let mut words: Vec<u32> = sequence.words(ops).collect();
            words.sort_unstable();
            words.dedup();
            let flows: Vec<_> = words
                .iter()
                .map(|&word| model::flow(scenario, sequence.address(word)))
                .collect();
            instance.forget(cpu, &flows).map_err(|error| {
                Fault::Invalid(Problem {
                    check: "flows in the table".into(),
                    expected: format!("{} that the batch brought", flows.len()),
                    got: "fewer".into(),
                    detail: error.to_string(),
                })
            })?;
        }
        Ok(())
    }

    /// Puts every flow that a scenario may send into the warm table of each CPU, with a server that
    /// its ring would not give; again where that was a while ago.
    fn keep_warm(&mut self, index: usize, scenario: &Scenario) -> Result<()> {
        let now = lb::now_ns();
        let route = match model::route(scenario) {
            Some(route) if scenario.table == LruState::Warm => route,
            _ => return Ok(()),
        };
        let exact = self.exact;
        let entry = &mut self.entries[index];
        // A clock that counts instructions leaps where its CPU waits for the host, so that time would
        // decide what is in the table; there every batch meets it as freshly filled.
        if !exact && entry.warmed_ns != 0 && now - entry.warmed_ns < WARM_NS {
            return Ok(());
        }
        entry.warmed_ns = now;
        let base = low_word(scenario.source);
        let sequence = Sequence::new(scenario.source, scenario.mask, base, 1, 1);
        let sources: Vec<IpAddr> = (0..=scenario.mask)
            .map(|low| sequence.address((base & !scenario.mask) | low))
            .collect();
        let flows: Vec<_> = sources
            .iter()
            .map(|&one| model::flow(scenario, one))
            .collect();
        for cpu in self.cpus.clone() {
            let server = |&source: &IpAddr| route.in_table(scenario, source, cpu);
            let entries: Vec<_> = sources
                .iter()
                .map(|source| model::entry(scenario, server(source), now))
                .collect();
            self.instance(scenario.table)?
                .remember(cpu, &flows, &entries)?;
        }
        Ok(())
    }

    /// The first operations of a sequence, untimed, with every packet and every counter compared.
    fn replay(&mut self, entry: usize, scenario: &Scenario) -> Result<(), Fault> {
        let ops = lb::REPLAY_OPS as u64;
        let Traffic { sequences, works } = self.traffic(entry, scenario, 1);
        for (work, sequence) in works.iter().zip(&sequences) {
            let instance = self.instance(scenario.table)?;
            let before = instance.counters(work.cpu)?;
            let begun_ns = lb::now_ns();
            instance.set_flood(before_flood(begun_ns))?;
            let seen = instance.replay(scenario.reset(), work, ops as usize)?;
            let after = instance.counters(work.cpu)?;
            prove(batch::operations(ops, seen.len() as u64))?;
            for (number, (seen, word)) in seen.iter().zip(sequence.words(ops)).enumerate() {
                let what = format!("operation {number} of the replay");
                let expected = expected_packet(scenario, &work.packet, sequence.address(word));
                prove(check::action(&what, scenario.action as u32, seen.action))?;
                prove(packet_diff::problem(&what, &expected, &seen.packet))?;
            }
            let expected = model::expected(scenario, sequence, work.cpu, ops);
            prove(check::counters(&expected, &before, &after, ops))?;
            prove(flood_problem(instance, &expected, work.cpu, begun_ns)?)?;
        }
        self.forget(scenario, &sequences, ops)
    }
}

impl TimedCases for XdpLbEpoch {
    type Batch = XdpLbBatch;

    fn prepare(&mut self, case: &Case, _: &Request<'_>) -> Result<(), Fault> {
        let entry = self.entry(case)?;
        let CaseKind::Scenario(scenario) = self.entries[entry].target.clone() else {
            return Ok(());
        };
        self.keep_warm(entry, &scenario)?;
        self.replay(entry, &scenario)
    }

    fn batch(&mut self, case: &Case, request: &Request<'_>) -> Result<XdpLbBatch, Fault> {
        let entry = self.entry(case)?;
        let Request { ops, resets, .. } = *request;
        let scenario = match self.entries[entry].target.clone() {
            CaseKind::Scenario(scenario) => scenario,
            CaseKind::Floor(reset) => {
                let traffic = self.traffic(entry, &floor_packet(reset), resets);
                let instance = self.instance(LruState::Warm)?;
                return Ok(XdpLbBatch {
                    seen: instance.batch(TimedBody::Empty, reset, &traffic.works, ops, resets)?,
                    traffic,
                    counters: Vec::new(),
                    begun_ns: 0,
                });
            }
        };
        self.keep_warm(entry, &scenario)?;
        let traffic = self.traffic(entry, &scenario, resets);
        let expected =
            |(&cpu, sequence): (&u32, &Sequence)| model::expected(&scenario, sequence, cpu, ops);
        let expected = request.cpus.iter().zip(&traffic.sequences).map(expected);
        let expected: Vec<Expected> = expected.collect();
        let instance = self.instance(scenario.table)?;
        let before = counters(instance, request.cpus)?;
        let begun_ns = lb::now_ns();
        instance.set_flood(before_flood(begun_ns))?;
        let (body, reset) = (TimedBody::Datapath, scenario.reset());
        let seen = instance.batch(body, reset, &traffic.works, ops, resets)?;
        Ok(XdpLbBatch {
            seen,
            traffic,
            counters: before.into_iter().zip(expected).collect(),
            begun_ns,
        })
    }

    fn check(
        &mut self,
        case: &Case,
        request: &Request<'_>,
        batch: &XdpLbBatch,
    ) -> Result<(), Fault> {
        let entry = self.entry(case)?;
        match self.entries[entry].target.clone() {
            CaseKind::Floor(reset) => XdpLbEpoch::check_floor(reset, request.ops, batch),
            CaseKind::Scenario(scenario) => self.check_scenario(&scenario, request.ops, batch),
        }
    }

    fn has_reset(&self, case: &Case) -> bool {
        let entry = self.entries.iter().find(|entry| entry.name == case.name);
        entry.is_some_and(|entry| match &entry.target {
            CaseKind::Scenario(scenario) => scenario.reset() != Reset::None,
            CaseKind::Floor(_) => false,
        })
    }

    /// Adds the LRU misses, a mean over CPUs.
    fn complete(&mut self, _: &Case, batch: &XdpLbBatch, trial: &mut Trial) -> Result<(), Fault> {
        if !self.exact && !batch.counters.is_empty() {
            let misses = batch.counters.iter().map(|(_, expected)| expected.misses);
            let mean = misses.sum::<u64>() as f64 / batch.counters.len() as f64;
            trial.secondary.insert("lru_misses".into(), mean);
        }
        Ok(())
    }

    fn kernel_bytes(&self) -> Option<u64> {
        let instances = self.instances.iter();
        Some(instances.map(|(_, instance)| instance.kernel_bytes()).sum())
    }
}

/// A loaded datapath with everything but warm flows in it; shares rings and reals with `first`.
fn instance(
    table: LruState,
    cpus: &[u32],
    variant: LbVariant,
    first: Option<&LoadBalancer>,
) -> Result<LoadBalancer> {
    let shared = first.map(LoadBalancer::shared).transpose()?;
    let instance = LoadBalancer::load(cpus, variant, shared.as_ref())?;
    if shared.is_none() {
        instance.set_rings(model::rings())?;
        instance.set_reals(model::reals())?;
    }
    instance.set_control(&model::control())?;
    for (key, vip) in model::vips() {
        instance.add_vip(&key, &vip)?;
    }
    if table == LruState::Full {
        let (flows, entries) = model::foreign(LRU_ENTRIES);
        for &cpu in cpus {
            instance.remember(cpu, &flows, &entries)?;
        }
    }
    Ok(instance)
}

fn counters(instance: &LoadBalancer, cpus: &[u32]) -> Result<Vec<LbCounters>> {
    cpus.iter()
        .map(|&cpu| Ok(instance.counters(cpu)?))
        .collect()
}
