//! What names a probe: `--with` of the command line, `probe` of a definition.
//!
//! `builtin:NAME:ARGUMENT…` is one of this program's own. `FILE.bpf.o` or `FILE.o`, with `:PROGRAM` behind it,
//! is a BPF object. `NAME.service` is a systemd unit. Anything else is a command, for a shell. `+` between
//! blanks joins several; of built-in ones, objects and units also without blanks.

use std::{fmt, path::PathBuf, str::FromStr};

use anyhow::{Error, bail};

/// What a probe is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// One of this program's own, with its arguments: `builtin:syscount:kernel`.
    BuiltIn {
        /// Its name.
        name: String,
        /// What it is told.
        arguments: Vec<String>,
    },
    /// A BPF object, and the one program of it that is to run; all where none is named.
    Object {
        /// The file.
        path: PathBuf,
        /// The program.
        program: Option<String>,
    },
    /// A systemd unit.
    Unit(String),
    /// A command, for a shell.
    Command(String),
    /// All of these at once.
    Joined(Vec<Spec>),
}

/// What begins a built-in probe.
const BUILT_IN: &str = "builtin:";

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        if let Some((first, rest)) = text.split_once(" + ") {
            let mut joined = vec![first.parse()?];
            match rest.parse()? {
                Spec::Joined(more) => joined.extend(more),
                one => joined.push(one),
            }
            return Ok(Spec::Joined(joined));
        }
        if let Some(built_in) = text.strip_prefix(BUILT_IN) {
            let mut words = built_in.split(':').map(str::to_owned);
            let name = words.next().unwrap_or_default();
            return Ok(Spec::BuiltIn {
                name,
                arguments: words.collect(),
            });
        }
        if text.is_empty() {
            bail!("the name of a probe is empty");
        }
        Ok(Spec::Command(text.to_owned()))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::BuiltIn { name, arguments } => {
                write!(f, "{BUILT_IN}{name}")?;
                arguments.iter().try_for_each(|one| write!(f, ":{one}"))
            }
            Spec::Object { path, program } => {
                write!(f, "{}", path.display())?;
                program.iter().try_for_each(|one| write!(f, ":{one}"))
            }
            Spec::Unit(name) => f.write_str(name),
            Spec::Command(command) => f.write_str(command),
            Spec::Joined(all) => {
                let words: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&words.join(" + "))
            }
        }
    }
}
