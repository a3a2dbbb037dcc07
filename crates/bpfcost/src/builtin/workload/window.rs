//! A window: attaches the probe, runs the client, detaches the probe; then its cost, and the checks of the probe: its counts,
//! or its parts in the kernel.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    rehearsal::{LoadMaker, Rehearsal, or_detach, silent},
    server_instance::ServerInstance,
};
use bpfcost_model::{Fault, Headline, Problem, SECOND, Trial};
use bpfcost_probe::{Probe, WindowCounts};
use bpfcost_process::RunContext;
use bpfcost_workload::{
    CountCheck, Definition, LONGEST, LoadClient, LoadResult, Reading, Usage, Variant, allowed,
};

/// Minimum length of load, in milliseconds, in the middle of which a probe is switched: a slow detach still meets load.
const STIR_MS: u64 = 600;

/// One window of a case.
pub(super) struct Window<'a> {
    pub(super) definition: &'a Definition,
    pub(super) variant: &'a Variant,
    pub(super) instance: &'a ServerInstance,
    pub(super) context: &'a RunContext,
    /// Rehearsal of the probe, if it is not built in.
    pub(super) rehearsal: Option<&'a Rehearsal>,
}

/// The load of a window, and the resources that were spent on it.
struct LoadUsage {
    load: LoadResult,
    spent: Usage,
    /// Time between the two readings of the accounts.
    lasted: Duration,
}

impl Window<'_> {
    /// Runs it, with the probe of its variant.
    pub(super) fn run(
        &self,
        make: LoadMaker<'_>,
        probe: Option<&mut dyn Probe>,
    ) -> Result<Trial, Fault> {
        let log = self.definition.access_log.as_ref();
        if let Some(log) = log {
            log.forget(self.context)?;
        }
        let mut secondary = BTreeMap::new();
        let (mut usage, seen) = match probe {
            Some(probe) => self.probed(probe, make, &mut secondary)?,
            None => (self.loaded(make, None)?, WindowCounts::default()),
        };
        if let Some(log) = log {
            log.amend(self.context, &mut usage.load.reading)?;
        }
        if seen.hits == Some(0) {
            return Err(silent());
        }
        let ops = self.operations(&usage);
        let LoadUsage { load, spent, .. } = &usage;
        secondary.extend(self.costs(&usage));
        secondary.extend(self.client_numbers(&load.reading));
        secondary.extend(self.probe_counts(&seen, ops));
        check(self.variant, self.context, &seen, &load.reading)?;
        Ok(Trial {
            value: match self.definition.headline {
                Headline::Server => spent.server_ns,
                Headline::Machine => spent.machine_ns,
            } / ops,
            ops: load.reading.ops,
            elapsed_ns: load.took.as_secs_f64() * 1e9,
            secondary,
            ..Trial::default()
        })
    }

    /// Attaches a probe, makes the load, and detaches the probe.
    fn probed(
        &self,
        probe: &mut dyn Probe,
        make: LoadMaker<'_>,
        secondary: &mut BTreeMap<String, f64>,
    ) -> Result<(LoadUsage, WindowCounts), Fault> {
        let begun = Instant::now();
        probe.attach(self.context)?;
        secondary.insert("attach_ms".to_owned(), begun.elapsed().as_secs_f64() * 1e3);
        let usage = self.proved(&*probe, make);
        let usage = or_detach(probe, usage)?;
        let begun = Instant::now();
        let seen = probe.detach()?;
        secondary.insert("detach_ms".to_owned(), begun.elapsed().as_secs_f64() * 1e3);
        Ok((usage, seen))
    }

    /// Makes the load, and proves that the probe has all that it had in the rehearsal before and after it.
    fn proved(&self, probe: &dyn Probe, make: LoadMaker<'_>) -> Result<LoadUsage, Fault> {
        let Some(rehearsal) = self.rehearsal else {
            return self.loaded(make, Some(probe));
        };
        let begin = rehearsal.prove_begin(probe)?;
        let usage = self.loaded(make, Some(probe))?;
        rehearsal.prove_end(probe, &begin)?;
        Ok(usage)
    }

    /// Makes the load, and reads what was spent on it.
    fn loaded(&self, make: LoadMaker<'_>, probe: Option<&dyn Probe>) -> Result<LoadUsage, Fault> {
        let tool = probe.map(|probe| probe.pids()).unwrap_or_default();
        let spent = || {
            let tool_ns = probe.and_then(|probe| probe.cpu_ns());
            (self.instance.accounts()).spent(&self.context.pids, &tool, tool_ns)
        };
        let counted = self.instance.network.counts()?;
        let before = spent()?;
        let begun = Instant::now();
        let mut load = make(&self.context.with_tool(tool.clone()))?;
        if let Some(log) = &self.definition.access_log {
            log.settle(self.context)?;
        }
        let spent = spent()?.since(&before);
        let lasted = begun.elapsed();
        for (name, count) in self.instance.network.counts()? {
            let before = counted.get(&name).copied().unwrap_or(0.0);
            load.reading.counts.insert(name, count - before);
        }
        Ok(LoadUsage {
            load,
            spent,
            lasted,
        })
    }

    /// Operations of the window, or the seconds over which CPU time was read.
    fn operations(&self, usage: &LoadUsage) -> f64 {
        match self.definition.operation.as_str() {
            SECOND => usage.lasted.as_secs_f64(),
            _ => usage.load.reading.ops(),
        }
    }

    /// What an operation cost, and what else the accounts say.
    fn costs(&self, usage: &LoadUsage) -> BTreeMap<String, f64> {
        let LoadUsage {
            load,
            spent,
            lasted,
        } = usage;
        let ops = self.operations(usage);
        let client_ns = load.client_ns.map(|client_ns| client_ns / ops);
        let periods = (self.definition.period_ms)
            .map(|period_ms| 1e3 * lasted.as_secs_f64() / period_ms as f64);
        let all = [
            ("ops", Some(ops)),
            ("server_ns", Some(spent.server_ns / ops)),
            ("client_ns", client_ns),
            ("tool_ns", Some(spent.tool_ns / ops)),
            ("machine_ns", Some(spent.machine_ns / ops)),
            ("idle", Some(idle(*spent, *lasted))),
            ("switches", Some(spent.switches / ops)),
            ("drops", Some(spent.drops)),
            ("periods", periods),
            ("ops_per_s", Some(ops / load.took.as_secs_f64())),
        ];
        let known = all.into_iter();
        known
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }

    /// Latencies and counts of the client.
    fn client_numbers(&self, reading: &Reading) -> BTreeMap<String, f64> {
        let latencies = reading.latency_us.iter();
        let latencies = latencies.map(|(name, latency)| (format!("latency_{name}_us"), *latency));
        let counts = reading.counts.iter().map(|(name, count)| {
            // A compared number is one that the client prints, however often the client runs in a window.
            let value = match self.definition.compared.contains(name) {
                true => reading.a_run(*count),
                false => *count,
            };
            (name.clone(), value)
        });
        latencies.chain(counts).collect()
    }

    /// Counts of the probe, and its runs per operation.
    fn probe_counts(&self, seen: &WindowCounts, ops: f64) -> BTreeMap<String, f64> {
        let counts = seen.counts.iter();
        let mut all: BTreeMap<String, f64> = counts
            .map(|(name, count)| (name.clone(), *count as f64))
            .collect();
        let rehearsed = self.rehearsal.and_then(Rehearsal::hits_per_op);
        let hits = seen.hits.map(|hits| hits as f64 / ops);
        // An outside tool does not report losses: whether it had any is unknown.
        let lost = (seen.hits.is_some() || seen.lost > 0).then_some(seen.lost as f64);
        for (name, value) in [
            ("hits", hits),
            ("rehearsed_hits", rehearsed),
            ("lost", lost),
        ] {
            all.extend(value.map(|value| (name.to_owned(), value)));
        }
        all
    }
}

/// The machine's idle share of CPU time: where it is large, throughput says nothing of a cost.
fn idle(spent: Usage, lasted: Duration) -> f64 {
    let all_ns = spent.cpus * lasted.as_secs_f64() * 1e9;
    (1.0 - spent.machine_ns / all_ns).clamp(0.0, 1.0)
}

/// Measures how much longer the slowest operation takes while the probe is attached and detached in the middle of the
/// load, than under as much load without the probe, in milliseconds; `None` if the client does not report it. The load
/// goes on until the probe is detached, however often its client has to be started for that.
pub(super) fn stir(
    instance: &mut ServerInstance,
    context: &RunContext,
    load: &LoadClient<'_>,
    probe: &mut dyn Probe,
) -> Result<Option<f64>, Fault> {
    let context = &RunContext {
        window_ms: context.window_ms.max(STIR_MS),
        ..context.clone()
    };
    let third = Duration::from_millis(context.window_ms / 3);
    let (mut server, network) = instance.parts();
    // The longest latency that the client reports, in milliseconds.
    let mut longest = || -> Result<Option<f64>> {
        server.as_mut().map_or(Ok(()), |server| server.ready())?;
        let made = network.at_client(|| load.run(context))??;
        Ok(made.reading.latency_us.get(LONGEST).map(|us| us / 1e3))
    };
    let Some(mut usual) = longest()? else {
        return Ok(None);
    };
    let off = AtomicBool::new(false);
    let (stirred, switched) = thread::scope(|scope| {
        let clients = scope.spawn(|| {
            let mut stirred = vec![longest()?];
            while !off.load(Ordering::Acquire) {
                stirred.push(longest()?);
            }
            anyhow::Ok(stirred)
        });
        let mut switch = || {
            sleep(third);
            probe.attach(context)?;
            sleep(third);
            probe.detach()
        };
        let switched = switch();
        off.store(true, Ordering::Release);
        (clients.join(), switched)
    });
    switched?;
    let stirred = stirred.unwrap_or_else(|panic| resume_unwind(panic))?;
    // The longest of as many.
    for _ in 1..stirred.len() {
        usual = usual.max(longest()?.unwrap_or(usual));
    }
    let stirred = stirred.into_iter().flatten().reduce(f64::max);
    Ok(stirred.map(|stirred| stirred - usual))
}

/// Applies the variant's checks to the counts of this window; fails on the first count that is not as required.
fn check(
    variant: &Variant,
    context: &RunContext,
    seen: &WindowCounts,
    reading: &Reading,
) -> Result<(), Fault> {
    let due = variant
        .checks
        .iter()
        .filter(|check| allowed(&check.only, &context.factors));
    for check in due {
        let got = match check.probe.as_str() {
            "hits" => seen.hits,
            name => seen.counts.get(name).copied(),
        };
        let count = |name: &str| match name {
            "ops" => Some(reading.ops),
            name => reading.counts.get(name).map(|count| *count as u64),
        };
        let (expected, right, of) = match check {
            CountCheck { at_least, .. } if !at_least.is_empty() => {
                let least = count(at_least);
                (least, got >= least, format!("at least {at_least}"))
            }
            CountCheck { equals, beyond, .. } => {
                let expected = count(equals);
                let right = expected
                    .zip(got)
                    .is_some_and(|(expected, got)| (expected..=expected + beyond).contains(&got));
                let bound = match beyond {
                    0 => equals.clone(),
                    more => format!("{equals}, or up to {more} more"),
                };
                (expected, right, bound)
            }
        };
        if got.is_none() || expected.is_none() || !right {
            let text = |count: Option<u64>| count.map_or("nothing".to_owned(), |n| n.to_string());
            return Err(Fault::Invalid(Problem {
                check: format!("{} of the probe", check.probe),
                expected: format!("{} ({of})", text(expected)),
                got: text(got),
                detail: match seen.lost {
                    0 => "the probe did not count what the workload did".to_owned(),
                    lost => format!(
                        "the probe lost {lost} events: its buffer was full, or a read failed"
                    ),
                },
            }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies a check of `hits` to a window in which the workload did 100 operations and counted 40 bytes.
    fn checked(check: &str, hits: Option<u64>) -> Result<(), Fault> {
        let variant =
            format!("name = 'probe'\nabout = ''\ncheck = [{{ probe = 'hits', {check} }}]");
        let variant: Variant = toml::from_str(&variant).expect("a variant");
        let seen = WindowCounts {
            hits,
            ..WindowCounts::default()
        };
        let reading = Reading {
            ops: 100,
            counts: [("bytes".to_owned(), 40.0)].into(),
            ..Reading::default()
        };
        let context = RunContext {
            factors: [("size".to_owned(), "1".to_owned())].into(),
            ..RunContext::default()
        };
        super::check(&variant, &context, &seen, &reading)
    }

    #[test]
    fn what_a_probe_saw_is_what_the_workload_did_or_the_window_is_invalid() {
        for (check, right, wrong) in [
            ("equals = 'ops'", vec![100], vec![0, 99, 101]),
            ("equals = 'bytes'", vec![40], vec![39, 41, 100]),
            ("equals = 'ops', beyond = 1", vec![100, 101], vec![99, 102]),
            ("at-least = 'ops'", vec![100, 1000], vec![0, 99]),
            // A count that is missing cannot be equal.
            ("equals = 'pages'", vec![], vec![0, 40]),
            ("at-least = 'pages'", vec![], vec![0, 40]),
        ] {
            for hits in right {
                assert!(checked(check, Some(hits)).is_ok(), "{check}: {hits}");
            }
            for hits in wrong.into_iter().map(Some).chain([None]) {
                let problem = match checked(check, hits) {
                    Err(Fault::Invalid(problem)) => problem,
                    other => panic!("{check}: {hits:?}: {other:?}"),
                };
                assert_eq!(problem.check, "hits of the probe");
            }
        }
    }

    #[test]
    fn idle_is_the_share_of_all_cpus_that_busy_time_is_of() {
        let spent = Usage {
            machine_ns: 3e9,
            cpus: 64.0,
            ..Usage::default()
        };
        assert_eq!(idle(spent, Duration::from_secs(1)), 61.0 / 64.0);
        assert_eq!(
            idle(Usage { cpus: 2.0, ..spent }, Duration::from_secs(1)),
            0.0
        );
    }

    #[test]
    fn a_check_of_other_factors_is_not_due() {
        assert!(checked("equals = 'ops', only = { size = ['2'] }", Some(0)).is_ok());
        assert!(checked("equals = 'ops', only = { size = ['1'] }", Some(0)).is_err());
    }
}
