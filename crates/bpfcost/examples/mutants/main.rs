//! Makes every BPF source wrong in every small way (a statement left out, an initial value zero, an operand of a
//! condition negated, a bound moved, a constant off by one), and counts which of these mutants the experiments' own
//! checks catch: `make mutants`, or, of some sources or lines, `make mutants OF="map.bpf.c jhash.h:56"`.
//!
//! Mutants that are no less right than the source are listed in `known.txt`, each under its reason, and so are those
//! that no case of a judge reaches, and gaps: mutants that the checks do not catch. Any other that survives is an error, and so is one of the list that does not.

mod judge;
mod known;
mod mutant;
mod syntax;
mod table;
mod workshop;

use std::{collections::BTreeMap, env, path::PathBuf, process::ExitCode, sync::Mutex, thread};

use anyhow::{Context, Result, ensure};

use judge::{JUDGES, Judge, Verdict};
use known::Reason;
use mutant::Mutant;
use workshop::Workshop;

/// Each source that runs in an experiment, and its judges.
const JUDGED: &[(&str, &[&str])] = &[
    ("balance.bpf.h", &["xdp-lb"]),
    ("xdp_lb.bpf.c", &["xdp-lb"]),
    ("xdp_lb.h", &["xdp-lb"]),
    ("jhash.h", &["xdp-lb", "map"]),
    (
        "timing.bpf.h",
        &[
            "ladder",
            "ladder, exact",
            "xdp-lb, bpf_loop",
            "xdp-lb, 2 CPUs",
        ],
    ),
    ("ladder.bpf.c", &["ladder"]),
    ("map.bpf.c", &["map", "map, 2 CPUs"]),
    ("arena_hash.bpf.h", &["map"]),
    (
        "program.bpf.h",
        &[
            "program, xdp",
            "program, skb",
            "program, windows",
            "program, context",
        ],
    ),
    ("program_xdp.bpf.c", &["program, xdp"]),
    ("program_skb.bpf.c", &["program, skb"]),
    ("program_syscall.bpf.c", &["program, context"]),
    ("probe.bpf.c", &["attach"]),
    ("probe.h", &["attach"]),
    ("driver.bpf.c", &["attach, drivers"]),
    ("feeder.bpf.c", &["attach, veth"]),
    ("counter.bpf.c", &["redis", "busy"]),
    ("syscount.bpf.c", &["syscount"]),
    ("sslsniff.bpf.c", &["nginx-ssl"]),
    ("l7.bpf.c", &["l7-go"]),
    ("unwind.bpf.h", &["stack", "stack-places"]),
    ("unwind_rules.bpf.h", &["stack", "stack-places"]),
    ("unwind_maps.bpf.h", &["stack", "stack-places"]),
    ("stack.bpf.c", &["stack"]),
    ("unwind_truth.bpf.c", &["stack-places"]),
    ("stack_tracer.bpf.c", &["redis, stacks"]),
];

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [flag, judge, cpu] = &arguments[..]
        && flag == "--judge"
    {
        return judge::run(judge, cpu.parse()?);
    }
    // Experiments start this program as if it were bpfcost: reapers, agents, clients.
    if env::var_os(workshop::VARIABLE).is_some() {
        return Ok(bpfcost::cli::main());
    }
    let known = known::read();
    let mut mutants = Vec::new();
    for (source, judges) in JUDGED {
        let judges: Vec<&Judge> = judges.iter().filter_map(|name| judge_of(name)).collect();
        let mut all = mutant::all_of(source)?;
        all.retain(|mutant| {
            let line = format!("{source}:{}", mutant.line);
            arguments.is_empty() || arguments.iter().any(|one| one == source || *one == line)
        });
        mutants.extend(all.into_iter().map(|mutant| (mutant, judges.clone())));
    }
    ensure!(
        !mutants.is_empty(),
        "no such source: {}",
        arguments.join(" ")
    );
    let results = judge_all(&mutants)?;
    println!("\n{}", table::markdown(JUDGED, &results, &known));
    let surprises = surprises(&known, &results);
    for surprise in &surprises {
        println!("{surprise}");
    }
    Ok(ExitCode::from(u8::from(!surprises.is_empty())))
}

fn judge_of(name: &str) -> Option<&'static Judge> {
    JUDGES.iter().find(|judge| judge.name == name)
}

/// Points on which the list and the results do not agree.
fn surprises(known: &BTreeMap<&'static str, Reason>, results: &[Judged]) -> Vec<String> {
    let surprise = |judged: &Judged| {
        let name = &judged.mutant.name;
        let listed = known.contains_key(name.as_str());
        match judged.verdict {
            Verdict::SameCode | Verdict::Unjudged => None,
            Verdict::Survived => (!listed).then(|| format!("survived: {name}")),
            _ => listed.then(|| format!("listed, but caught: {name}")),
        }
    };
    results.iter().filter_map(surprise).collect()
}

/// A mutant, and what became of it.
struct Judged {
    mutant: Mutant,
    verdict: Verdict,
}

/// Judges all mutants, on as many CPUs as there are.
fn judge_all(mutants: &[(Mutant, Vec<&Judge>)]) -> Result<Vec<Judged>> {
    let folder = tempfile::tempdir()?;
    let cpus = bpfcost_bpf::allowed_cpus();
    let (next, done) = (Mutex::new(0), Mutex::new(Vec::new()));
    let work = |cpu: u32| -> Result<()> {
        let place: PathBuf = folder.path().join(cpu.to_string());
        let workshop = Workshop::new(place, cpu)?;
        for judge in JUDGES {
            let needed = |(_, judges): &(Mutant, Vec<&Judge>)| {
                judges.iter().any(|one| one.name == judge.name)
            };
            if mutants.iter().any(needed) {
                workshop.check(judge)?;
            }
        }
        loop {
            let at = {
                let mut next = next.lock().ok().context("another worker failed")?;
                *next += 1;
                *next - 1
            };
            let Some((mutant, judges)) = mutants.get(at) else {
                return Ok(());
            };
            let (verdict, said) = workshop.judge(mutant, judges)?;
            let said = said.lines().last().unwrap_or_default();
            let Mutant { line, name, .. } = mutant;
            println!("{at} {verdict:?}\t{line}\t{name}\t{said}");
            let judged = Judged {
                mutant: mutant.clone(),
                verdict,
            };
            done.lock()
                .ok()
                .context("another worker failed")?
                .push(judged);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || work(cpu)))
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    done.into_inner().ok().context("a worker failed")
}
