//! The table of a run, in Markdown.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    Judged,
    judge::Verdict::{
        self, Compiler, Preparation, SameCode, Stopped, Survived, Trial, Unjudged, Verifier,
    },
    known::Reason,
};

type Count<'a> = &'a dyn Fn(&Judged) -> bool;

/// A line for each source, and their sum.
pub(crate) fn markdown(
    sources: &[(&'static str, &'static [&'static str])],
    results: &[Judged],
    known: &BTreeMap<&'static str, Reason>,
) -> String {
    let is = |verdict: Verdict| move |judged: &Judged| judged.verdict == verdict;
    let listed = |judged: &Judged, reason: Reason| {
        is(Survived)(judged) && known.get(judged.mutant.name.as_str()) == Some(&reason)
    };
    let equivalent = |judged: &Judged| is(SameCode)(judged) || listed(judged, Reason::Equivalent);
    let unreached = |judged: &Judged| listed(judged, Reason::Unreached);
    let columns: [(&str, Count<'_>); 10] = [
        ("mutants", &|_| true),
        ("compiler", &is(Compiler)),
        ("verifier", &is(Verifier)),
        ("timed batch", &is(Trial)),
        ("preparation", &is(Preparation)),
        ("hung", &is(Stopped)),
        ("not judged", &is(Unjudged)),
        ("equivalent", &equivalent),
        ("not reached", &unreached),
        ("surviving", &|judged| {
            is(Survived)(judged) && !equivalent(judged) && !unreached(judged)
        }),
    ];
    let mut text = String::from("| source | judged by |");
    for (name, _) in columns {
        let _ = write!(text, " {name} |");
    }
    let _ = writeln!(text, "\n|---|---|{}", "--:|".repeat(columns.len()));
    let line = |text: &mut String, head: &str, of: Count<'_>| {
        let _ = write!(text, "| {head} |");
        for (_, count) in columns {
            let number = results.iter().filter(|one| of(one) && count(one)).count();
            let _ = write!(text, " {number} |");
        }
        text.push('\n');
    };
    let judged = |source: &str| results.iter().any(|one| one.mutant.source == source);
    for (source, judges) in sources.iter().filter(|(source, _)| judged(source)) {
        let head = format!("`{source}` | {}", judges.join("; "));
        line(&mut text, &head, &|judged| judged.mutant.source == *source);
    }
    line(&mut text, "all | ", &|_| true);
    text
}
