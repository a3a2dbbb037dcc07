//! The options about probes that `run` had before `bpfcost overhead` was a command: refused, with what to type now.

use anyhow::Result;

use crate::cli::{exit::usage, words};

/// They parse, so that the answer can show the whole command line as it is written now.
#[derive(Debug, clap::Args)]
pub(super) struct Moved {
    #[arg(long, hide = true)]
    with: Vec<String>,
    #[arg(long, hide = true)]
    server: Option<String>,
    #[arg(long, hide = true)]
    client: Option<String>,
    #[arg(long, hide = true)]
    watch: Option<String>,
    #[arg(long, hide = true)]
    ops: Option<String>,
    #[arg(long, hide = true)]
    metric: Vec<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    abort_above: Option<String>,
    #[arg(last = true, hide = true)]
    command: Vec<String>,
}

impl Moved {
    /// Refuses all of them.
    pub(super) fn refuse(&self, experiments: &[String]) -> Result<()> {
        let options = [
            &self.server,
            &self.client,
            &self.watch,
            &self.ops,
            &self.abort_above,
        ];
        let lists = [&self.with, &self.metric, &self.command];
        if options.iter().all(|one| one.is_none()) && lists.iter().all(|one| one.is_empty()) {
            return Ok(());
        }
        Err(usage(format!(
            "probes on a server or a command are measured by `bpfcost overhead`\n  Type: {}",
            rewritten(&words(), experiments)
        )))
    }
}

/// The words of `bpfcost run --with …` as those of `bpfcost overhead`.
fn rewritten(words: &[String], experiments: &[String]) -> String {
    let mut probes = Vec::new();
    let mut others = Vec::new();
    let mut rest = words.iter().skip_while(|word| *word != "run").skip(1);
    while let Some(word) = rest.next() {
        if word == "--" {
            others.push(word.clone());
            others.extend(rest.by_ref().cloned());
        } else if word == "--with" {
            probes.extend(rest.next().cloned());
        } else if let Some(probe) = word.strip_prefix("--with=") {
            probes.push(probe.to_owned());
        } else if experiments.contains(word) {
            others.extend(["--workload".to_owned(), word.clone()]);
        } else {
            others.push(word.clone());
        }
    }
    if probes.is_empty() {
        probes.push("PROBE".to_owned());
    }
    let words = ["bpfcost", "overhead"].map(str::to_owned);
    let words = words.into_iter().chain(probes).chain(others);
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// The word as a shell takes it. More letters need no quotes than shlex allows for, and the line is for people.
fn quoted(word: String) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=%,+{}@".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    shlex::try_quote(&word).map_or_else(|_| word.clone(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_can_be_pasted() {
        for (former, now) in [
            (
                "run --with 'bpftrace -e x' redis --quick",
                "bpfcost overhead 'bpftrace -e x' --workload redis --quick",
            ),
            (
                "run --quick --with=a.bpf.o --with b.bpf.o -- make -j2",
                "bpfcost overhead a.bpf.o b.bpf.o --quick -- make -j2",
            ),
            ("run --watch 12", "bpfcost overhead PROBE --watch 12"),
        ] {
            let words = shlex::split(former).expect("words");
            assert_eq!(rewritten(&words, &["redis".to_owned()]), now);
        }
    }
}
