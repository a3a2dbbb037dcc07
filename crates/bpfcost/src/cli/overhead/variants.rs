//! The probes of a command line as variants of a workload. `name=PROBE` gives a name; others get one.

use anyhow::Result;

use crate::cli::exit::usage;
use bpfcost_model::OFF;
use bpfcost_probe::Spec;
use bpfcost_workload::Variant;

/// The probes as variants; `off` comes first.
pub(super) fn variants(probes: &[String]) -> Result<Vec<Variant>> {
    let mut variants = vec![Variant::off()];
    for text in probes {
        let (label, text) = labelled(text);
        let refused = |error: &dyn std::fmt::Display| usage(format!("{text}: {error}"));
        let spec: Spec = text.parse().map_err(|error| refused(&error))?;
        let spec = spec.absolute().map_err(|error| refused(&error))?;
        bpfcost_probe::there(&spec).map_err(|error| refused(&format!("{error:#}")))?;
        let taken = |name: &str| variants.iter().any(|one: &Variant| one.name == name);
        let name = match label {
            Some(OFF) => {
                return Err(usage(
                    "off is the name of the runs without a probe\n  Give the probe another name",
                ));
            }
            Some(label) if taken(label) => {
                return Err(usage(format!(
                    "two probes are named {label}\n  Give them different names"
                )));
            }
            Some(label) => label.to_owned(),
            None => {
                let short = spec.short();
                let numbered = (2..).map(|number| format!("{short}-{number}"));
                let mut names = std::iter::once(short.clone()).chain(numbered);
                names.find(|name| !taken(name)).unwrap_or(short)
            }
        };
        variants.push(Variant {
            name,
            about: spec.to_string(),
            probe: Some(spec),
            ..Variant::off()
        });
    }
    Ok(variants)
}

/// Takes the label from `label=rest`. A label is a word of small letters, so that `VARIABLE=1 command` has none.
fn labelled(text: &str) -> (Option<&str>, &str) {
    let word = |label: &str| {
        let letter =
            |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || "_.-".contains(one);
        !label.is_empty() && label.chars().all(letter)
    };
    match text.split_once('=') {
        Some((label, rest)) if word(label) => (Some(label), rest),
        _ => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_words_before_the_first_equals_sign() {
        assert_eq!(labelled("fast=a.bpf.o"), (Some("fast"), "a.bpf.o"));
        assert_eq!(
            labelled("v2=bpftrace -e 'k { @ = 1; }'"),
            (Some("v2"), "bpftrace -e 'k { @ = 1; }'")
        );
        for text in [
            "LANG=C strace -p 1",
            "bpftrace -e 'k { @ = count(); }'",
            "=a",
            "a b=c",
            "x.bpf.o",
        ] {
            assert_eq!(labelled(text), (None, text));
        }
    }

    #[test]
    fn names_of_probes_are_told_apart() {
        let with = ["builtin:nothing", "builtin:nothing", "b=builtin:nothing"].map(str::to_owned);
        let names: Vec<String> = variants(&with)
            .expect("probes")
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, ["off", "nothing", "nothing-2", "b"]);
        for wrong in [
            vec!["off=builtin:nothing"],
            vec!["a=builtin:nothing", "a=builtin:nothing"],
            vec![""],
        ] {
            let with: Vec<String> = wrong.into_iter().map(str::to_owned).collect();
            assert!(variants(&with).is_err(), "{with:?}");
        }
    }
}
