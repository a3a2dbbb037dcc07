//! Parses definitions and checks what types can't. Each error names file, line and key, and suggests a correction.

use bpfcost_model::{LOAD, OFF, SECOND};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use regex::Regex;
use thiserror::Error as ThisError;
use toml::de::{DeTable, DeValue};

use super::{
    Client, Definition, Error, Factor, OwnServer, RunningServer, Variant,
    definition::LONGEST_WINDOW_MS, network::FORWARDED, source,
};

use bpfcost_text::suggest;

/// Fewest windows of a case on one server: off is compared with off, and a median is odd.
const MIN_ROUNDS: u32 = 3;
/// A server is restarted after so many windows of a case, so that differences between server instances show.
const MAX_ROUNDS: u32 = 20;
/// Seconds that anything may be given: a day.
const MAX_SECONDS: f64 = 86_400.0;
/// Names in braces beside factors, in commands and files; [`RunContext`](bpfcost_process::RunContext) fills them in.
const FILLED: [&str; 8] = [
    "address", "bpfcost", "cpus", "dir", "load", "port", "seconds", "variant",
];

/// The page about these files.
const PAGE: &str = "docs/workload-files.md";

/// What is wrong with a definition, and where.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("line {line}: {what}")]
pub struct DefinitionProblem {
    /// The line, from 1.
    pub line: usize,
    /// What it is, and what may have been meant.
    pub what: String,
}

impl Definition {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let file_name = file.display();
        let text = fs::read_to_string(file)
            .map_err(|error| Error::Definition(format!("cannot read {file_name}: {error}\n  Check the path; built-in workloads: bpfcost list")))?;
        Definition::parse(&text).map_err(|DefinitionProblem { line, what }| {
            Error::Definition(format!("{file_name}:{line}: {what}"))
        })
    }

    /// Reads the text of one.
    pub fn parse(text: &str) -> Result<Self, DefinitionProblem> {
        let mut definition: Definition =
            toml::from_str(text).map_err(|error| malformed(text, &error))?;
        let sourced = definition.take_sources();
        let checked = sourced.and_then(|()| definition.check());
        checked.map_err(|problem| DefinitionProblem {
            line: line_of(text, &problem),
            what: problem.what,
        })?;
        definition.variants.insert(0, Variant::off());
        Ok(definition)
    }

    /// Puts the text of its sources among its files.
    fn take_sources(&mut self) -> Result<(), DocumentProblem> {
        for (index, path) in self.sources.iter().enumerate() {
            let Some((name, text)) = source::find(path) else {
                return Err(wrong(
                    [&"sources", &index],
                    format!(
                        "there is no source {path}{}: there are {}",
                        suggest(path, source::paths()),
                        source::paths().collect::<Vec<_>>().join(", ")
                    ),
                ));
            };
            self.files.insert(name.to_owned(), text.to_owned());
        }
        Ok(())
    }

    /// Checks what no type says.
    fn check(&self) -> Result<(), DocumentProblem> {
        if self.variants.is_empty() {
            return Err(wrong(
                [],
                "there is no [[variant]], so there is nothing to measure",
            ));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || !self.name.chars().all(plain) {
            return Err(wrong(
                [&"name"],
                format!(
                    "the name {} cannot name a file: use letters, digits and -",
                    self.name
                ),
            ));
        }
        self.check_windows()?;
        self.check_load()?;
        unique("variant", self.variants.iter().map(|one| one.name.as_str()))?;
        unique("client", self.clients.iter().map(|one| one.name.as_str()))?;
        unique("factor", self.factors.iter().map(|one| one.name.as_str()))?;
        let factors: Vec<&str> = self
            .factors
            .iter()
            .map(|factor| factor.name.as_str())
            .chain((self.clients.len() > 1).then_some(LOAD))
            .collect();
        for (index, variant) in self.variants.iter().enumerate() {
            self.check_variant(index, variant, &factors)?;
        }
        for (index, client) in self.clients.iter().enumerate() {
            check_client(index, client, &factors)?;
        }
        if let Some(over) = &self.over
            && !factors.contains(&over.as_str())
        {
            return Err(wrong(
                [&"over"],
                format!("`over` names {over}, which is not a factor"),
            ));
        }
        self.check_placeholders(&factors)
    }

    /// Checks the number and the length of windows.
    fn check_windows(&self) -> Result<(), DocumentProblem> {
        let rounds = u64::from(self.rounds);
        let ranges = [
            (
                "rounds",
                Some(rounds),
                MIN_ROUNDS.into(),
                (MAX_ROUNDS - 1).into(),
            ),
            ("window-ms", Some(self.window_ms), 1, LONGEST_WINDOW_MS),
            ("period-ms", self.period_ms, 1, LONGEST_WINDOW_MS),
        ];
        for (key, value, least, most) in ranges {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                let what = format!("{key} = {value} is not between {least} and {most}");
                return Err(wrong([&key], what));
            }
        }
        if rounds.is_multiple_of(2) {
            return Err(wrong(
                [&"rounds"],
                format!(
                    "rounds = {rounds} is even: a server's value is the median of its windows, and slow windows move the \
                     median of an even number. Write {} or {}",
                    rounds - 1,
                    rounds + 1
                ),
            ));
        }
        Ok(())
    }

    /// Checks that something makes load, and counts its operations.
    fn check_load(&self) -> Result<(), DocumentProblem> {
        let watched = self.server.as_ref().and_then(|one| one.watch.as_ref());
        if self.clients.is_empty() && watched.is_none() {
            return Err(wrong([], "there is no [[client]], so nothing makes load"));
        }
        if let Some(ready) = self.server.as_ref().and_then(|one| one.ready.as_ref()) {
            a_time([&"server", &"ready", &"within-s"], ready.within_s)?;
        }
        let counts = |watch: &RunningServer| !watch.ops.is_empty();
        if self.operation == SECOND && watched.is_none_or(counts) {
            return Err(wrong(
                [&"operation"],
                "operation = \"second\" is only for clients that report no operation count; this \
                 one does: name its operation",
            ));
        }
        Ok(())
    }

    /// Checks that all that is filled in has a value.
    fn check_placeholders(&self, factors: &[&str]) -> Result<(), DocumentProblem> {
        let known = || FILLED.into_iter().chain(factors.iter().copied());
        for (way, text) in self.texts() {
            if let Some(name) = braced(text).find(|name| known().all(|known| known != name)) {
                let near = suggest(&name, known());
                return Err(DocumentProblem {
                    way,
                    near: format!("{{{name}}}"),
                    what: format!(
                        "unknown placeholder {{{name}}}{near}: there are {{port}}, {{address}}, \
                         {{dir}}, {{cpus}}, {{seconds}} and the factors"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Checks a variant, and the factors that it and its checks name.
    fn check_variant(
        &self,
        index: usize,
        variant: &Variant,
        factors: &[&str],
    ) -> Result<(), DocumentProblem> {
        self.check_probe_and_server(index, variant)?;
        let whose = format!("variant {}", variant.name);
        known_factors(
            [&"variant", &index, &"only"],
            &whose,
            &variant.only,
            factors,
        )?;
        for (number, check) in variant.checks.iter().enumerate() {
            let way: [&dyn ToString; 5] = [&"variant", &index, &"check", &number, &"only"];
            known_factors(way, &whose, &check.only, factors)?;
        }
        Ok(())
    }

    fn check_probe_and_server(
        &self,
        index: usize,
        variant: &Variant,
    ) -> Result<(), DocumentProblem> {
        let refused = |key: &str, what: String| Err(wrong([&"variant", &index, &key], what));
        let name = &variant.name;
        if name == OFF {
            return refused(
                "name",
                format!("the variant {OFF} always exists; give this one another name"),
            );
        }
        if let Some(Err(error)) = variant.probe.as_ref().map(bpfcost_probe::check_built_in) {
            return refused("probe", format!("`probe` of variant {name}: {error:#}"));
        }
        let Some(own_server) = &variant.server else {
            return Ok(());
        };
        if self
            .server
            .as_ref()
            .is_none_or(|one| one.command.is_empty())
        {
            let what = "there is no server to start with other arguments: [server] has no command";
            return refused("server", format!("`server` of variant {name}: {what}"));
        }
        if *own_server == OwnServer::default() {
            let what = "it does not differ from that of off: give it arguments or env";
            return refused("server", format!("`server` of variant {name}: {what}"));
        }
        let forwarded = |factor: &Factor| {
            let values = variant.only.get(&factor.name).unwrap_or(&factor.values);
            self.network.contains(&format!("{{{}}}", factor.name))
                && values.iter().any(|value| value == FORWARDED)
        };
        if self.network == FORWARDED || self.factors.iter().any(forwarded) {
            let what = format!("the network {FORWARDED} reaches only one server, that of off");
            return refused("server", format!("`server` of variant {name}: {what}"));
        }
        Ok(())
    }

    /// All that is filled in, and the way to it.
    fn texts(&self) -> Vec<(Vec<String>, &String)> {
        let mut all = under(&[&"files"], &self.files);
        if let Some(server) = &self.server {
            all.extend(under(
                &[&"server", &"command"],
                server.command.iter().enumerate(),
            ));
            all.extend(under(&[&"server", &"env"], &server.env));
        }
        for (index, variant) in self.variants.iter().enumerate() {
            if let Some(own_server) = &variant.server {
                let way: [&dyn ToString; 3] = [&"variant", &index, &"server"];
                let arguments = own_server.arguments.iter().enumerate();
                all.extend(under(&[&way[..], &[&"arguments"]].concat(), arguments));
                all.extend(under(&[&way[..], &[&"env"]].concat(), &own_server.env));
            }
        }
        for (index, client) in self.clients.iter().enumerate() {
            for (key, words) in [("command", &client.command), ("warm-up", &client.warm_up)] {
                all.extend(under(&[&"client", &index, &key], words.iter().enumerate()));
            }
        }
        for (index, command) in self.prepare.iter().enumerate() {
            all.extend(under(&[&"prepare", &index], command.iter().enumerate()));
        }
        all
    }
}

/// Checks the factors, the time and the patterns of a client.
fn check_client(index: usize, client: &Client, factors: &[&str]) -> Result<(), DocumentProblem> {
    let whose = format!("client {}", client.name);
    known_factors([&"client", &index, &"only"], &whose, &client.only, factors)?;
    if let Some(seconds) = client.within_s {
        a_time([&"client", &index, &"within-s"], seconds)?;
    }
    for (name, pattern) in &client.metrics {
        if let Err(error) = Regex::new(pattern) {
            return Err(wrong(
                [&"client", &index, &"metrics", name],
                format!("the metric {name} is not a regular expression: {error}"),
            ));
        }
    }
    Ok(())
}

/// Texts, and the way to each: to what holds them, and their places or names in that.
fn under<'a, K: ToString>(
    way: &[&dyn ToString],
    texts: impl IntoIterator<Item = (K, &'a String)>,
) -> Vec<(Vec<String>, &'a String)> {
    let before = way.iter().map(|step| step.to_string());
    let way = |place: K| before.clone().chain([place.to_string()]).collect();
    texts
        .into_iter()
        .map(|(place, text)| (way(place), text))
        .collect()
}

/// Something wrong, the way to its key from the top of the document, and a text that stands behind that.
struct DocumentProblem {
    way: Vec<String>,
    near: String,
    what: String,
}

fn wrong<const N: usize>(way: [&dyn ToString; N], what: impl Into<String>) -> DocumentProblem {
    DocumentProblem {
        way: way.map(ToString::to_string).to_vec(),
        near: String::new(),
        what: what.into(),
    }
}

/// The line on which something stands: as much of the way to it as there is.
fn line_of(text: &str, problem: &DocumentProblem) -> usize {
    let Ok(document) = DeTable::parse(text) else {
        return 1;
    };
    let root = DeValue::Table(document.into_inner());
    let (mut at, mut here) = (0, &root);
    for step in &problem.way {
        let next = match here {
            DeValue::Table(table) => table
                .iter()
                .find(|(key, _)| key.get_ref() == step)
                .map(|(key, value)| (key.span().start, value)),
            DeValue::Array(array) => {
                let value = step.parse().ok().and_then(|index: usize| array.get(index));
                value.map(|value| (value.span().start, value))
            }
            _ => None,
        };
        let Some((start, value)) = next else {
            break;
        };
        (at, here) = (start, value.get_ref());
    }
    at += text[at..].find(&problem.near).unwrap_or(0);
    text[..at].matches('\n').count() + 1
}

/// Refuses a `within-s` that nothing can be given.
fn a_time<const N: usize>(way: [&dyn ToString; N], seconds: f64) -> Result<(), DocumentProblem> {
    if (0.0..=MAX_SECONDS).contains(&seconds) {
        return Ok(());
    }
    let what = format!("within-s = {seconds} is not between 0 and {MAX_SECONDS}");
    Err(wrong(way, what))
}

/// Refuses an `only` that names what is no factor.
fn known_factors<const N: usize>(
    way: [&dyn ToString; N],
    whose: &str,
    only: &BTreeMap<String, Vec<String>>,
    factors: &[&str],
) -> Result<(), DocumentProblem> {
    let Some(factor) = only.keys().find(|name| !factors.contains(&name.as_str())) else {
        return Ok(());
    };
    let near = suggest(factor, factors.iter().copied());
    let what = format!("`only` of {whose} names {factor}, which is not a factor{near}");
    let mut problem = wrong(way, what);
    problem.way.push(factor.clone());
    Err(problem)
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), DocumentProblem> {
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            return Err(wrong(
                [&what, &index, &"name"],
                format!("the {what} {name} is defined twice"),
            ));
        }
    }
    Ok(())
}

/// Names in braces, as they are filled in.
fn braced(text: &str) -> impl Iterator<Item = String> {
    let words = text.split('{').skip(1).filter_map(|rest| {
        let (name, _) = rest.split_once('}')?;
        let word = !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '-' || c == '_');
        word.then(|| name.to_owned())
    });
    words.collect::<Vec<_>>().into_iter()
}

/// What TOML or a type does not allow.
fn malformed(text: &str, error: &toml::de::Error) -> DefinitionProblem {
    let at = error.span().map(|span| span.start.min(text.len()));
    // A missing key is reported at its table's header, which then is part of what stands before.
    let is_header = at.is_some_and(|at| text[at..].starts_with('['));
    let before = at.map(|at| {
        let length = text[at..].find('\n').filter(|_| is_header);
        &text[..at + length.unwrap_or_default()]
    });
    let line = before.map(|before| before.matches('\n').count() + 1);
    // The header of the table that it stands in.
    let part = before.and_then(|before| {
        // An array over several lines has lines that begin with a bracket too.
        let bare = |c: char| c.is_ascii_alphanumeric() || "-_.\"".contains(c);
        let header = |line: &&str| {
            let name = line.trim_start_matches('[').trim_end_matches(']');
            line.starts_with('[') && line.ends_with(']') && name.chars().all(bare)
        };
        before.lines().map(str::trim).rev().find(header)
    });
    let part = part.map_or(String::new(), |part| format!(" in {part}"));
    let message = error.message();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let what = match (message.split(' ').next(), quoted.next()) {
        (Some("unknown"), Some(key)) if message.starts_with("unknown field") => {
            let near = suggest(key, quoted.clone());
            let keys: Vec<&str> = quoted.collect();
            format!(
                "unknown key `{key}`{part}{near}\n  There are: {}; {PAGE} describes them",
                keys.join(", ")
            )
        }
        (Some("missing"), Some(key)) => {
            format!("the key `{key}` is missing{part}\n  {PAGE} describes it")
        }
        _ => format!("{message}{part}"),
    };
    DefinitionProblem {
        line: line.unwrap_or(1),
        what,
    }
}

#[cfg(test)]
mod tests;
