//! `run --with`: what a command line asks about probes, as the definition of a workload. From there on it goes the
//! way of every workload.

mod known;
mod variants;

use anyhow::{Context, Result};

use self::known::Known;
use self::variants::variants;
use super::Args;
use crate::{
    builtin::workload,
    cli::{exit::usage, select},
    did_you_mean::suggest,
    experiment::Experiment as _,
    probe,
    process::program::find,
    restore::{started, systemctl},
    workload::{Client, Definition, Headline, Ready, SECOND, ServerSpec, Variant, Watch},
};

/// Milliseconds of a window: several ticks of every clock that is read, and some hundred switches.
const WINDOW_MS: u64 = 1000;
/// The same with `--quick`.
const QUICK_WINDOW_MS: u64 = 300;
/// Seconds that one run of a command may take.
const LONGEST_S: f64 = 600.0;
/// What `--with` can be about.
const FORMS: &str = "\
Say what the probe is to run beside, one of:
  bpfcost run --with PROBE redis                              a workload that this program brings
  bpfcost run --with PROBE -- COMMAND…                        a command, as you type it
  bpfcost run --with PROBE --server CMD --client CMD          a server of its own, with {port}
  bpfcost run --with PROBE --watch SERVICE|PID                a service that runs already";

/// The workload that the command line describes; `None` where it is about experiments alone.
pub(super) fn definition(args: &Args) -> Result<Option<Definition>> {
    if args.with.is_empty() {
        let alone = [
            ("--server", args.server.is_some()),
            ("--client", args.client.is_some()),
            ("--watch", args.watch.is_some()),
            ("a command behind --", !args.command.is_empty()),
        ];
        return match alone.into_iter().find(|(_, given)| *given) {
            None => Ok(None),
            Some((what, _)) => Err(usage(format!(
                "{what} is what a probe is measured on, and no probe is named\n  Name one: --with PROBE; \
                 --with builtin:nothing shows what this machine can tell apart"
            ))),
        };
    }
    let variants = variants(&args.with)?;
    let forms = [
        !args.experiments.is_empty(),
        !args.command.is_empty() || args.client.is_some(),
        args.watch.is_some(),
    ];
    if forms.iter().filter(|given| **given).count() != 1 {
        let what = if forms.contains(&true) {
            "--with is about one thing at a time, and several are named"
        } else {
            "--with names a probe, and nothing that it is to run beside"
        };
        return Err(usage(format!("{what}\n  {}", FORMS.replace('\n', "\n  "))));
    }
    only_where(args)?;
    let definition = if let Some(watched) = &args.watch {
        watch(args, watched)?
    } else if let [name] = args.experiments.as_slice() {
        built_in(name)?
    } else if args.experiments.is_empty() {
        let definition = loaded(args)?;
        for program in definition.programs() {
            find(program)?;
        }
        definition
    } else {
        return Err(usage(
            "--with takes one workload at a time\n  Run it once for each of them",
        ));
    };
    let mut probes = variants.iter().filter_map(|one| one.probe.as_ref());
    if definition.server.is_none()
        && let Some(spec) = probes.find(|spec| probe::is_of_server(spec))
    {
        return Err(usage(format!(
            "{spec} looks at the processes of a server, and a command behind -- has none\n  Start one: --server CMD \
             --client CMD; or name one that runs: --watch SERVICE|PID",
        )));
    }
    let window_ms = if args.quick && args.experiments.is_empty() {
        QUICK_WINDOW_MS
    } else {
        definition.window_ms
    };
    let (window_ms, rounds) = suited(window_ms, definition.rounds, &variants);
    Ok(Some(Definition {
        // Part of the record's file name.
        name: definition.name.replace(
            |letter: char| !(letter.is_alphanumeric() || "._-".contains(letter)),
            "-",
        ),
        against_each_other: true,
        variants,
        window_ms,
        rounds,
        ..definition
    }))
}

/// How long a window is, in milliseconds, and how many of them a server has: what takes long to go on and off makes
/// windows long, and then as few have to do as there may be, of the same time in all.
fn suited(window_ms: u64, rounds: u32, variants: &[Variant]) -> (u64, u32) {
    let mut probes = variants.iter().filter_map(|one| one.probe.as_ref());
    if probes.any(|spec| spec.start_s() > 0.0) {
        (window_ms * u64::from(rounds) / 2, 2)
    } else {
        (window_ms, rounds)
    }
}

/// Refuses options that mean nothing in the form that is asked for.
fn only_where(args: &Args) -> Result<()> {
    let built_in = !args.experiments.is_empty();
    let watch = args.watch.is_some();
    /// An option a line: when it is wrong, and why.
    macro_rules! list {
        ($($option:literal: $given:expr => $why:literal;)+) => { [$(($option, $given, $why)),+] };
    }
    let wrong = list! {
        "--ops": args.ops.is_some() && !watch => "goes with --watch: others tell what they did";
        "--abort-above": args.abort_above.is_some() && !watch => "goes with --watch: nobody depends on a server that was started for this";
        "--metric": !args.metric.is_empty() && built_in => "picks a number of what your command prints; those of a workload are known";
        "--metric": !args.metric.is_empty() && watch && args.ops.is_none() => "picks a number of what --ops prints, which is not given";
        "--server": args.server.is_some() && (built_in || watch) => "goes with --client, or a command";
        "--client": args.client.is_some() && !args.command.is_empty() => "and a command behind -- are two loads";
        "--client": args.client.is_some() && args.server.is_none() => "goes with --server; without one, write the command behind --";
        "--on": watch && args.on.iter().any(|target| target != "host") => "names a guest, in which nothing runs that could be watched";
    };
    match wrong.into_iter().find(|(_, given, _)| *given) {
        None => Ok(()),
        Some((option, _, why)) => Err(usage(format!("{option} {why}\n  See: bpfcost run --help"))),
    }
}

/// A workload of this program or of the user's, with the first values of its factors.
fn built_in(name: &str) -> Result<Definition> {
    let experiment = select::experiment(name)?;
    let described = experiment.description();
    let Some(definition) = described.subject.workload() else {
        // No mistake in the name, but one in the question.
        let names: Vec<String> = workload::built_in()
            .map(|one| one.description().name)
            .collect();
        return Err(usage(format!(
            "{name} measures programs by themselves; a probe is measured beside a workload{}\n  Workloads: {}, \
             or a FILE.toml of yours\n  For a command of yours: bpfcost run --with PROBE -- {name} …",
            suggest(name, names.iter().map(String::as_str)),
            names.join(", ")
        )));
    };
    let mut definition = definition.clone();
    for factor in &mut definition.factors {
        factor.values = if factor.quick.is_empty() {
            factor.values.drain(..).take(1).collect()
        } else {
            std::mem::take(&mut factor.quick)
        };
    }
    definition.clients.truncate(1);
    for client in &mut definition.clients {
        client.repeat = !client.command.iter().any(|word| word.contains("{seconds}"));
    }
    Ok(definition)
}

/// A command, with a server of its own or without.
fn loaded(args: &Args) -> Result<Definition> {
    let words = match &args.client {
        Some(client) => split("--client", client)?,
        None => args.command.clone(),
    };
    let known = Known::of(&words)?;
    let server = args.server.as_deref().map(server).transpose()?;
    let named = words.iter().any(|word| word.contains("{port}"));
    match (server.is_some(), named) {
        (true, false) => {
            return Err(usage(
                "the load names no {port}, so it would not meet the server that is started for it\n  Write \
                 {port} where its port stands",
            ));
        }
        (false, true) => {
            return Err(usage(
                "{port} stands for the port of a server that is started for this, and none is named\n  Name \
                 one: --server 'redis-server --port {port}'",
            ));
        }
        _ => {}
    }
    let program = |words: &[String]| probe::program(&words.join(" ")).to_owned();
    let mut metrics = known.metrics;
    let mut compared = Vec::new();
    for (name, pattern) in metrics_asked(&args.metric)? {
        compared.push(name.clone());
        metrics.insert(name, pattern);
    }
    Ok(Definition {
        name: program(server.as_ref().map_or(&words, |server| &server.command)),
        about: format!("what do probes cost {}?", words.join(" ")),
        operation: known.operation.to_owned(),
        headline: match server {
            Some(_) => Headline::Server,
            None => Headline::Machine,
        },
        compared,
        server,
        clients: vec![Client {
            name: "closed".to_owned(),
            about: words.join(" "),
            command: words,
            metrics,
            ops: known.ops,
            repeat: true,
            within_s: Some(LONGEST_S),
            ..Client::default()
        }],
        ..empty()
    })
}

/// A definition of nothing.
fn empty() -> Definition {
    Definition {
        operation: "run".to_owned(),
        window_ms: WINDOW_MS,
        rounds: 2,
        network: "here".to_owned(),
        ..Definition::default()
    }
}

fn server(command: &str) -> Result<ServerSpec> {
    let words = split("--server", command)?;
    if !words.iter().any(|word| word.contains("{port}")) {
        return Err(usage(format!(
            "--server names no {{port}}: it is started afresh again and again, each time on a port that is free, \
             so that it meets nothing that runs here\n  Write {{port}} where its port stands: {command}"
        )));
    }
    Ok(ServerSpec {
        command: words,
        ready: Some(Ready {
            tcp: Some("{port}".to_owned()),
            output: None,
            within_s: 10.0,
        }),
        ..ServerSpec::default()
    })
}

/// The words of a command, as a shell would have them.
fn split(option: &str, command: &str) -> Result<Vec<String>> {
    match shlex::split(command) {
        Some(words) if !words.is_empty() => Ok(words),
        Some(_) => Err(usage(format!("{option} is empty: name a program"))),
        None => Err(usage(format!(
            "{option} has a quote that is not closed: {command}"
        ))),
    }
}

/// Numbers to be picked out of an output, by their names.
fn metrics_asked(asked: &[String]) -> Result<Vec<(String, String)>> {
    let mut metrics: Vec<(String, String)> = Vec::new();
    // Without labels: what stands before an = belongs to the pattern.
    for pattern in asked {
        let groups = regex::Regex::new(pattern).map(|regex| regex.captures_len() - 1);
        match groups {
            Ok(1) => {}
            Ok(groups) => {
                return Err(usage(format!(
                    "--metric {pattern} has {groups} groups, and one is what picks the number\n  Put the \
                     number in parentheses: --metric 'requests per second: ([0-9.]+)'"
                )));
            }
            Err(error) => {
                return Err(usage(format!(
                    "--metric is no regular expression: {error}\n  Put a \\ before each of . [ ] ( ) * + ? that is \
                     to stand for itself"
                )));
            }
        }
        let number = metrics.len() + 1;
        let name = match number {
            1 => "metric".to_owned(),
            _ => format!("metric-{number}"),
        };
        metrics.push((name, pattern.to_owned()));
    }
    Ok(metrics)
}

/// A service that runs already.
fn watch(args: &Args, watched: &str) -> Result<Definition> {
    let metric = match metrics_asked(&args.metric)?.as_slice() {
        [] => None,
        [(_, pattern)] => Some(pattern.clone()),
        _ => return Err(usage("--ops tells one number: give one --metric")),
    };
    let (name, pids, unit) = match watched.parse::<u32>() {
        Ok(pid) => {
            started(pid).ok_or_else(|| {
                usage(format!(
                    "there is no process {pid}\n  Its number: pidof NAME"
                ))
            })?;
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .context("its name can't be read")?;
            (name.trim().to_owned(), vec![pid], None)
        }
        Err(_) => {
            let unit = if watched.contains('.') {
                watched.to_owned()
            } else {
                format!("{watched}.service")
            };
            let advice = "Name a service that runs (systemctl list-units --type service), or a process by its \
                          number: --watch $(pidof -s NAME)";
            let state = systemctl(&["show", "--property", "ActiveState", "--value", &unit])
                .map_err(|error| usage(format!("--watch {watched}: {error:#}\n  {advice}")))?;
            if state.trim() != "active" {
                return Err(usage(format!("{unit} does not run\n  {advice}")));
            }
            (
                watched.trim_end_matches(".service").to_owned(),
                Vec::new(),
                Some(unit),
            )
        }
    };
    let ops = args.ops.as_ref();
    Ok(Definition {
        about: format!("what do probes cost {name}, which runs here?"),
        name,
        operation: if ops.is_some() { "operation" } else { SECOND }.to_owned(),
        headline: Headline::Server,
        server: Some(ServerSpec {
            watch: Some(Watch {
                pids,
                unit,
                ops: ops.map_or(Vec::new(), |ops| {
                    ["sh", "-c", ops].map(str::to_owned).to_vec()
                }),
                metric,
                abort_above: args.abort_above,
            }),
            ..ServerSpec::default()
        }),
        ..empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_to_switch_has_few_long_windows() {
        let variants = |probe: &str| {
            let line = format!("name = 'x'\nabout = ''\nprobe = '{probe}'");
            [toml::from_str::<Variant>(&line).expect("a variant")]
        };
        for (probe, expected) in [
            ("builtin:nothing", (200, 6)),
            ("bpftrace -e x", (600, 2)),
            ("builtin:nothing + x.bpf.o", (600, 2)),
        ] {
            assert_eq!(suited(200, 6, &variants(probe)), expected, "{probe}");
        }
    }

    #[test]
    fn a_metric_has_one_group() {
        let asked = |text: &str| metrics_asked(&[text.to_owned()]);
        assert_eq!(
            asked("p50=([0-9.]+) msec").expect("one group"),
            [("metric".to_owned(), "p50=([0-9.]+) msec".to_owned())]
        );
        for wrong in ["\\d+", "(a)(b)", "("] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}
