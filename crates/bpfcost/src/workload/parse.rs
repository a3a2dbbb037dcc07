//! Definitions from text: what is wrong with one names file, line and key, and what may have been meant.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use regex::Regex;
use thiserror::Error as ThisError;

use super::{Definition, Error, LOAD, OFF, SECOND, Variant, Watch, source};
use crate::nearest::suggest;

/// A server is started afresh after so many windows of a case, or else nothing would tell servers apart.
const MOST_ROUNDS: u32 = 20;
/// What commands and files may name in braces beside factors; [`Scene`](super::Scene) fills it in.
const FILLED: [&str; 8] = [
    "address", "bpfcost", "cpus", "dir", "load", "port", "seconds", "variant",
];

/// What is wrong with a definition, and where.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("line {line}: {what}")]
pub struct Wrong {
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
            .map_err(|error| Error::Definition(format!("can't read {file_name}: {error}")))?;
        Definition::parse(&text).map_err(|Wrong { line, what }| {
            Error::Definition(format!("{file_name}:{line}: {what}"))
        })
    }

    /// Reads the text of one.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let mut definition: Definition =
            toml::from_str(text).map_err(|error| malformed(text, &error))?;
        let sourced = definition.take_sources();
        let checked = sourced.and_then(|()| definition.check());
        checked.map_err(|Found { near, what }| {
            let line = text.lines().position(|line| line.contains(&near));
            Wrong {
                line: line.unwrap_or(0) + 1,
                what,
            }
        })?;
        definition.variants.insert(0, Variant::off());
        Ok(definition)
    }

    /// Puts the text of its sources among its files.
    fn take_sources(&mut self) -> Result<(), Found> {
        for path in &self.sources {
            let Some((name, text)) = source::find(path) else {
                return Err(wrong(
                    path.as_str(),
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

    /// Factor values to which something is restricted: what it is, its name, and the values.
    fn restrictions(
        &self,
    ) -> impl Iterator<Item = (&'static str, &str, &BTreeMap<String, Vec<String>>)> {
        let variants = self.variants.iter().flat_map(|variant| {
            let checks = variant.checks.iter().map(|check| &check.only);
            let all = checks.chain([&variant.only]);
            all.map(|only| ("variant", variant.name.as_str(), only))
        });
        let clients = self.clients.iter();
        variants.chain(clients.map(|client| ("client", client.name.as_str(), &client.only)))
    }

    /// What no type says.
    fn check(&self) -> Result<(), Found> {
        if self.variants.is_empty() {
            return Err(wrong(
                "[[variant]]",
                "there is no [[variant]], so there is nothing to measure",
            ));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || !self.name.chars().all(plain) {
            return Err(wrong(
                format!("\"{}\"", self.name),
                format!(
                    "the name {} would make no file: letters, digits and - alone do",
                    self.name
                ),
            ));
        }
        if !(2..=MOST_ROUNDS).contains(&self.rounds) {
            return Err(wrong(
                "rounds",
                format!(
                    "rounds = {} is not between 2, so that off can be compared with off, and {MOST_ROUNDS}",
                    self.rounds
                ),
            ));
        }
        if self.clients.is_empty() && self.server.as_ref().is_none_or(|one| one.watch.is_none()) {
            return Err(wrong(
                "[[client]]",
                "there is no [[client]], so nothing makes load",
            ));
        }
        let counts = |watch: &Watch| !watch.ops.is_empty();
        let watched = self.server.as_ref().and_then(|one| one.watch.as_ref());
        if self.operation == SECOND && watched.is_none_or(counts) {
            return Err(wrong(
                format!("\"{SECOND}\""),
                "operation = \"second\" is what stands for operations that nobody counts: name what the client counts",
            ));
        }
        unique("variant", self.variants.iter().map(|one| one.name.as_str()))?;
        unique("client", self.clients.iter().map(|one| one.name.as_str()))?;
        unique("factor", self.factors.iter().map(|one| one.name.as_str()))?;
        let factors: Vec<&str> = self
            .factors
            .iter()
            .map(|factor| factor.name.as_str())
            .chain((self.clients.len() > 1).then_some(LOAD))
            .collect();
        for variant in &self.variants {
            if variant.name == OFF {
                return Err(wrong(
                    format!("\"{OFF}\""),
                    format!(
                        "the variant {OFF} is always there, so that no other may have its name"
                    ),
                ));
            }
        }
        for (whose, name, only) in self.restrictions() {
            if let Some(factor) = only.keys().find(|name| !factors.contains(&name.as_str())) {
                let near = suggest(factor, factors.iter().copied());
                return Err(wrong(
                    format!("{factor} ="),
                    format!("`only` of {whose} {name} names {factor}, which is no factor{near}"),
                ));
            }
        }
        if let Some(over) = &self.over
            && !factors.contains(&over.as_str())
        {
            return Err(wrong(
                "over",
                format!("`over` names {over}, which is no factor"),
            ));
        }
        let client = self.clients.iter().flat_map(|client| &client.metrics);
        for (name, pattern) in client {
            if let Err(error) = Regex::new(pattern) {
                return Err(wrong(
                    format!("{name} ="),
                    format!("the metric {name} is no regular expression: {error}"),
                ));
            }
        }
        let texts = self.texts();
        for text in texts {
            if let Some(name) = braced(text)
                .find(|name| !FILLED.contains(&name.as_str()) && !factors.contains(&name.as_str()))
            {
                let near = suggest(&name, FILLED.into_iter().chain(factors.iter().copied()));
                return Err(wrong(
                    format!("{{{name}}}"),
                    format!(
                        "nothing is known of {{{name}}}{near}: there are {{port}}, {{address}}, {{dir}}, \
                             {{cpus}}, {{seconds}} and the factors"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// All that is filled in.
    fn texts(&self) -> impl Iterator<Item = &String> {
        let server = self.server.iter();
        let server = server.flat_map(|server| server.command.iter().chain(server.env.values()));
        let clients = self.clients.iter();
        let clients = clients.flat_map(|one| one.command.iter().chain(&one.warm_up));
        let prepare = self.prepare.iter().flatten();
        server
            .chain(clients)
            .chain(prepare)
            .chain(self.files.values())
    }
}

/// Something wrong, and a text that stands on its line.
struct Found {
    near: String,
    what: String,
}

fn wrong(near: impl Into<String>, what: impl Into<String>) -> Found {
    Found {
        near: near.into(),
        what: what.into(),
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Found> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(wrong(
                format!("\"{name}\""),
                format!("the {what} {name} is there twice"),
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
fn malformed(text: &str, error: &toml::de::Error) -> Wrong {
    let at = error.span().map(|span| span.start.min(text.len()));
    let before = at.map(|at| &text[..at]);
    let line = before.map(|before| before.matches('\n').count() + 1);
    // The header of the table that it stands in.
    let part = before.and_then(|before| {
        let header = |line: &&str| line.trim_start().starts_with('[');
        before.lines().rev().find(header).map(str::trim)
    });
    let part = part.map_or(String::new(), |part| format!(" in {part}"));
    let message = error.message();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let what = match (message.split(' ').next(), quoted.next()) {
        (Some("unknown"), Some(key)) if message.starts_with("unknown field") => {
            let near = suggest(key, quoted.clone());
            let known: Vec<&str> = quoted.collect();
            format!(
                "unknown key `{key}`{part}{near}\n  There are: {}",
                known.join(", ")
            )
        }
        (Some("missing"), Some(key)) => format!("the key `{key}` is missing{part}"),
        _ => format!("{message}{part}"),
    };
    Wrong {
        line: line.unwrap_or(1),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"name = "mine"
about = "a question"
operation = "request"

[server]
command = ["server", "{port}"]

[[factor]]
name = "size"
about = "bytes"
values = ["1"]

[[client]]
command = ["client", "{size}"]
output = "text"
metrics = { ops = "(\\d+)" }

[[variant]]
name = "probe"
about = "a probe"
probe = "builtin:nothing"
only = { size = ["1"] }
"#;

    /// What is said of the text where `from` became `to`.
    #[track_caller]
    fn refused(from: &str, to: &str) -> String {
        assert!(WHOLE.contains(from), "{from}");
        let text = WHOLE.replacen(from, to, 1);
        Definition::parse(&text)
            .expect_err("it is wrong")
            .to_string()
    }

    #[test]
    fn what_is_right_is_read() {
        let definition = Definition::parse(WHOLE).expect("it is right");
        let names: Vec<&str> = definition
            .variants
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(names, [OFF, "probe"]);
    }

    #[test]
    fn a_mistyped_key_is_named_with_its_line() {
        let said = refused("command = [\"server\"", "comand = [\"server\"");
        assert!(
            said.starts_with("line 6: unknown key `comand` in [server] (did you mean command?)"),
            "{said}"
        );
        let said = refused("output = \"text\"", "output = \"texts\"");
        assert!(said.starts_with("line 15: "), "{said}");
        assert!(said.contains("texts"), "{said}");
        let said = refused("operation = \"request\"\n", "");
        assert!(said.contains("the key `operation` is missing"), "{said}");
        let said = refused("[server]", "[server");
        assert!(said.starts_with("line 5: "), "{said}");
    }

    #[test]
    fn what_no_type_says_is_checked() {
        for (from, to, line, what) in [
            (
                "operation = \"request\"",
                "operation = \"second\"",
                3,
                "operation = \"second\" is what stands for operations that nobody counts",
            ),
            (
                "operation = \"request\"\n",
                "operation = \"request\"\nrounds = 1\n",
                4,
                "rounds = 1 is not between 2, so that off can be compared with off, and 20",
            ),
            (
                "only = { size",
                "only = { sise",
                22,
                "`only` of variant probe names sise, which is no factor (did you mean size?)",
            ),
            (
                "output = \"text\"\n",
                "output = \"text\"\nonly = { sise = [] }\n",
                16,
                "`only` of client closed names sise, which is no factor (did you mean size?)",
            ),
            (
                "{size}",
                "{sise}",
                14,
                "nothing is known of {sise} (did you mean size?)",
            ),
            (
                "name = \"probe\"",
                "name = \"off\"",
                19,
                "the variant off is always there",
            ),
            (
                "(\\\\d+)",
                "(",
                16,
                "the metric ops is no regular expression",
            ),
        ] {
            let said = refused(from, to);
            assert!(said.starts_with(&format!("line {line}: {what}")), "{said}");
        }
        let variant = &WHOLE[WHOLE.find("[[variant]]").expect("it is there")..];
        let said = refused(variant, &format!("{variant}{variant}"));
        assert!(said.contains("the variant probe is there twice"), "{said}");
        let said = refused(variant, "");
        assert!(said.contains("the key `variant` is missing"), "{said}");
        let said = refused("name = \"mine\"", "name = \"my/own\"");
        assert!(said.starts_with("line 1: the name my/own"), "{said}");
    }
}
