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
    CountCheck, Definition, LONGEST, LoadClient, Reading, Usage, Variant, allowed,
};

/// Minimum length of load, in milliseconds, in the middle of which a probe is switched: a slow detach still meets load.
const STIR_MS: u64 = 600;

/// Runs one window of a case. `rehearsal` is of probes that are not built in.
pub(super) fn run(
    definition: &Definition,
    variant: &Variant,
    instance: &ServerInstance,
    context: &RunContext,
    make: LoadMaker<'_>,
    rehearsal: Option<&Rehearsal>,
    mut probe: Option<&mut dyn Probe>,
) -> Result<Trial, Fault> {
    let log = definition.access_log.as_ref();
    if let Some(log) = log {
        log.forget(context)?;
    }
    let mut secondary = BTreeMap::new();
    let begun = Instant::now();
    if let Some(probe) = &mut probe {
        probe.attach(context)?;
        secondary.insert("attach_ms".to_owned(), begun.elapsed().as_secs_f64() * 1e3);
    }
    let mut begin = None;
    if let (Some(probe), Some(rehearsal)) = (&mut probe, rehearsal) {
        let proved = rehearsal.prove_begin(&**probe);
        begin = Some(or_detach(&mut **probe, proved)?);
    }
    let tool = probe.as_ref().map(|probe| probe.pids()).unwrap_or_default();
    let tool_ns = |probe: &Option<&mut dyn Probe>| probe.as_ref()?.cpu_ns();
    let accounts = instance.accounts();
    let counted = instance.network.counts()?;
    let before = accounts.spent(&context.pids, &tool, tool_ns(&probe))?;
    let accounted = Instant::now();
    let within = context.with_tool(tool.clone());
    let mut made = match &mut probe {
        Some(probe) => or_detach(&mut **probe, make(&within))?,
        None => make(&within)?,
    };
    if let Some(log) = log {
        log.settle(context)?;
    }
    let spent = accounts
        .spent(&context.pids, &tool, tool_ns(&probe))?
        .since(&before);
    let lasted = accounted.elapsed();
    for (name, count) in instance.network.counts()? {
        let before = counted.get(&name).copied().unwrap_or(0.0);
        made.reading.counts.insert(name, count - before);
    }
    let seen = match probe {
        Some(probe) => {
            if let (Some(begin), Some(rehearsal)) = (&begin, rehearsal) {
                let proved = rehearsal.prove_end(probe, begin);
                or_detach(probe, proved)?;
            }
            let begun = Instant::now();
            let seen = probe.detach()?;
            secondary.insert("detach_ms".to_owned(), begun.elapsed().as_secs_f64() * 1e3);
            seen
        }
        None => WindowCounts::default(),
    };
    if let Some(log) = log {
        log.amend(context, &mut made.reading)?;
    }
    let reading = &made.reading;
    let ops = match definition.operation.as_str() {
        // Seconds over which CPU time was read.
        SECOND => lasted.as_secs_f64(),
        _ => reading.ops(),
    };
    let mut put = |name: &str, value: f64| secondary.insert(name.to_owned(), value);
    put("ops", ops);
    put("server_ns", spent.server_ns / ops);
    if let Some(client_ns) = made.client_ns {
        put("client_ns", client_ns / ops);
    }
    put("tool_ns", spent.tool_ns / ops);
    put("machine_ns", spent.machine_ns / ops);
    put("idle", idle(spent, lasted));
    put("switches", spent.switches / ops);
    put("drops", spent.drops);
    if let Some(period_ms) = definition.period_ms {
        put("periods", 1e3 * lasted.as_secs_f64() / period_ms as f64);
    }
    put("ops_per_s", ops / made.took.as_secs_f64());
    for (percentile, latency) in &reading.latency_us {
        put(&format!("latency_{percentile}_us"), *latency);
    }
    for (name, count) in &reading.counts {
        // A compared number is one that the client prints, however often the client runs in a window.
        let compared = definition.compared.contains(name);
        put(
            name,
            if compared {
                reading.a_run(*count)
            } else {
                *count
            },
        );
    }
    for (name, count) in &seen.counts {
        put(name, *count as f64);
    }
    if seen.hits == Some(0) {
        return Err(silent());
    }
    if let Some(hits) = seen.hits {
        put("hits", hits as f64 / ops);
    }
    if let Some(hits_per_op) = rehearsal.and_then(Rehearsal::hits_per_op) {
        put("rehearsed_hits", hits_per_op);
    }
    // An outside tool does not report losses: whether it had any is unknown.
    if seen.hits.is_some() || seen.lost > 0 {
        put("lost", seen.lost as f64);
    }
    check(variant, context, &seen, reading)?;
    Ok(Trial {
        value: match definition.headline {
            Headline::Server => spent.server_ns,
            Headline::Machine => spent.machine_ns,
        } / ops,
        ops: reading.ops,
        elapsed_ns: made.took.as_secs_f64() * 1e9,
        secondary,
        ..Trial::default()
    })
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
