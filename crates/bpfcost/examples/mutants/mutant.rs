//! Mutants: a source with one mutation, and a name for it.

use std::{collections::BTreeMap, fs, io, path::Path};

use crate::syntax::{self, Mutation};

/// Folder of the sources.
pub(crate) const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/bpf");

/// A mutation of a source.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    pub source: &'static str,
    pub line: usize,
    /// `SOURCE: WHAT`, which no other mutant has, and which stays if lines are added above it.
    pub name: String,
    pub mutation: Mutation,
}

/// Every mutant of a source.
pub(crate) fn all_of(source: &'static str) -> io::Result<Vec<Mutant>> {
    let text = fs::read_to_string(Path::new(SOURCES).join(source))?;
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    let mutant = |mutation: Mutation| {
        let line = text[..mutation.at.start].matches('\n').count();
        let what = what(&text, line, &mutation);
        let count = names.entry(what.clone()).or_default();
        *count += 1;
        let number = if *count > 1 {
            format!(" #{count}")
        } else {
            String::new()
        };
        Mutant {
            source,
            line: line + 1,
            name: format!("{source}: {what}{number}"),
            mutation,
        }
    };
    Ok(syntax::mutations(&text).into_iter().map(mutant).collect())
}

fn what(text: &str, line: usize, mutation: &Mutation) -> String {
    let words = |text: &str| {
        let words = text.split_whitespace().filter(|word| *word != "\\");
        words.collect::<Vec<_>>().join(" ")
    };
    let (old, new) = (words(&text[mutation.at.clone()]), words(&mutation.new));
    match new.as_str() {
        "" | ";" => format!("without {old}"),
        _ => {
            let line = words(text.lines().nth(line).unwrap_or_default());
            format!("{line}: {old} => {new}")
        }
    }
}
