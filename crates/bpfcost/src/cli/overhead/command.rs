//! A probe on a command, or on a server that is started for the measurement.

use anyhow::Result;

use super::{Args, empty, load_generator::LoadGenerator};
use crate::cli::{command::split, exit::usage};

use bpfcost_model::Headline;
use bpfcost_workload::{Client, Definition, Ready, ServerSpec};

/// Seconds that one run of a command may take.
const LONGEST_S: f64 = 600.0;

/// The command, with its server if there is one.
pub(super) fn definition(args: &Args) -> Result<Definition> {
    let words = match &args.client {
        Some(client) => split("--client", client)?,
        None => args.command.clone(),
    };
    let generator = LoadGenerator::parse(&words)?;
    let server = args.server.as_deref().map(server).transpose()?;
    let named = words.iter().any(|word| word.contains("{port}"));
    match (server.is_some(), named) {
        (true, false) => {
            return Err(usage(
                "the load has no {port}, so it would not reach the server that bpfcost starts\n  \
                 Write {port} in place of the port number",
            ));
        }
        (false, true) => {
            return Err(usage(
                "{port} is the port of a server that bpfcost starts, and there is no --server\n  \
                 Add one: --server 'redis-server --port {port} --bind 127.0.0.1'",
            ));
        }
        _ => {}
    }
    let program = |words: &[String]| bpfcost_probe::program(&words.join(" ")).to_owned();
    let mut patterns = generator.metrics;
    let mut compared = Vec::new();
    for (name, pattern) in metrics(&args.metric)? {
        compared.push(name.clone());
        patterns.insert(name, pattern);
    }
    Ok(Definition {
        name: program(server.as_ref().map_or(&words, |server| &server.command)),
        about: format!("what do probes cost {}?", words.join(" ")),
        operation: generator.operation.to_owned(),
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
            metrics: patterns,
            ops: generator.ops,
            repeat: true,
            within_s: Some(LONGEST_S),
            ..Client::default()
        }],
        ..empty()
    })
}

/// The command with `{port}` in place of its last number; `None` if it has no number.
fn with_port(command: &str) -> Option<String> {
    let port = regex::Regex::new(r"\b\d{2,5}\b").expect("a pattern");
    let number = port.find_iter(command).last()?;
    let (before, after) = (&command[..number.start()], &command[number.end()..]);
    Some(format!("{before}{{port}}{after}"))
}

fn server(command: &str) -> Result<ServerSpec> {
    let words = split("--server", command)?;
    if !words.iter().any(|word| word.contains("{port}")) {
        let advice = match with_port(command) {
            Some(command) => {
                format!("Write {{port}} in place of the port number: --server '{command}'")
            }
            None => "Write {port} where the command takes the port: --server 'redis-server --port {port} --bind \
                     127.0.0.1'. If the port is in a file, describe the workload (--workload my.toml, with the file \
                     under [files]), or start the server yourself and name it: --watch PID"
                .to_owned(),
        };
        return Err(usage(format!(
            "--server has no {{port}}: bpfcost starts the server many times, each time on a free port\n  {advice}"
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

/// The numbers to read from an output, by name.
pub(super) fn metrics(patterns: &[String]) -> Result<Vec<(String, String)>> {
    let mut metrics: Vec<(String, String)> = Vec::new();
    // Patterns have no labels: an = belongs to the pattern.
    for pattern in patterns {
        let groups = regex::Regex::new(pattern).map(|regex| regex.captures_len() - 1);
        match groups {
            Ok(1) => {}
            Ok(groups) => {
                return Err(usage(format!(
                    "--metric {pattern} has {groups} capture groups; it needs exactly one\n  \
                     Put the number in parentheses: --metric 'requests per second: ([0-9.]+)'"
                )));
            }
            Err(error) => {
                return Err(usage(format!(
                    "--metric is not a regular expression: {error}\n  \
                     Put a \\ before each literal . [ ] ( ) * + ?"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_the_port() {
        assert_eq!(
            with_port("python3 -m http.server 8000").as_deref(),
            Some("python3 -m http.server {port}")
        );
    }

    #[test]
    fn a_port_in_a_file_is_no_word_of_the_command() {
        let error = server("nginx -c my.conf")
            .expect_err("it has no port")
            .to_string();
        for words in ["--watch PID", "[files]", "--workload my.toml"] {
            assert!(error.contains(words), "{error}");
        }
        assert!(!error.contains("my.conf {port}"), "{error}");
    }

    #[test]
    fn a_metric_has_one_group() {
        let one = |text: &str| metrics(&[text.to_owned()]);
        assert_eq!(
            one("p50=([0-9.]+) msec").expect("one group"),
            [("metric".to_owned(), "p50=([0-9.]+) msec".to_owned())]
        );
        for wrong in ["\\d+", "(a)(b)", "("] {
            assert!(one(wrong).is_err(), "{wrong}");
        }
    }
}
