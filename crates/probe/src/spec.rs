//! The text that names a probe: an argument of `bpfcost overhead`, or `probe` in a definition.
//!
//! `builtin:NAME:ARGUMENT…` is one of this program's own. `FILE.bpf.o` or `FILE.o`, with `:PROGRAM` behind it,
//! is a BPF object, and with `user:` before it one that runs in the probed processes. `NAME.service` is a systemd unit. Anything else is a command, for a shell, that loads BPF
//! programs; `user-tool:COMMAND` is one whose uprobe programs run in the probed processes, and `process:COMMAND` one that loads none. `+` between blanks joins several; of built-in ones, objects
//! and units also without blanks.

use std::{fmt, path::PathBuf, str::FromStr};

use anyhow::{Error, anyhow, bail};
use bpfcost_bpf::Space;

/// A probe's specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// One of this program's own, with its arguments: `builtin:syscount:kernel`.
    BuiltIn {
        /// Name, without `builtin:`.
        name: String,
        /// Arguments after the name.
        arguments: Vec<String>,
    },
    /// A BPF object, and the one program of it that is to run; all where none is named.
    Object {
        /// The file.
        path: PathBuf,
        /// The program.
        program: Option<String>,
        /// Kernel or user space, in which its programs run.
        space: Space,
    },
    /// A systemd unit.
    Unit(String),
    /// A command, for a shell, that loads BPF programs.
    Command(String),
    /// One whose uprobe programs run in user space.
    UserTool(String),
    /// A command, for a shell, that loads none.
    Process(String),
    /// All of these at once.
    Joined(Vec<Spec>),
}

/// Prefix of a built-in probe.
const BUILT_IN: &str = "builtin:";
/// Prefix of an object that runs in the probed processes.
const USER: &str = "user:";
/// Prefix of a command whose uprobe programs run in user space.
const USER_TOOL: &str = "user-tool:";
/// Prefix of a command without BPF programs.
const PROCESS: &str = "process:";

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = joined(text);
        if parts.len() > 1 {
            let all: Result<Vec<Spec>, Error> = parts.into_iter().map(one).collect();
            return all.map(Spec::Joined);
        }
        let close = text.split('+').map(one).collect::<Result<Vec<_>, _>>();
        match close {
            Ok(all) if all.len() > 1 && !all.iter().any(Spec::is_command) => Ok(Spec::Joined(all)),
            _ => one(text),
        }
    }
}

impl Spec {
    /// The probes that are joined in it; itself where nothing is.
    pub(super) fn parts(&self) -> &[Spec] {
        match self {
            Spec::Joined(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    /// Returns true where all parts are built in.
    pub fn is_built_in(&self) -> bool {
        let mut parts = self.parts().iter();
        parts.all(|part| matches!(part, Spec::BuiltIn { .. }))
    }

    /// Seconds that it typically takes to switch it on and off: for a run's expected time alone.
    pub fn start_s(&self) -> f64 {
        let seconds = self.parts().iter().map(|part| match part {
            Spec::BuiltIn { .. } => 0.0,
            Spec::Object { .. } => 0.1,
            _ => 2.0,
        });
        seconds.sum()
    }

    fn is_command(&self) -> bool {
        matches!(
            self,
            Spec::Command(_) | Spec::UserTool(_) | Spec::Process(_)
        )
    }

    /// A short name for tables.
    pub fn short(&self) -> String {
        match self {
            Spec::BuiltIn { name, arguments } => {
                let words: Vec<&str> = [name]
                    .into_iter()
                    .chain(arguments)
                    .map(|word| &**word)
                    .collect();
                words.join(":")
            }
            Spec::Object {
                path,
                program,
                space,
            } => {
                let file = path
                    .file_name()
                    .map_or("".into(), |name| name.to_string_lossy());
                let stem = file.strip_suffix(".o").unwrap_or(&file);
                let stem = stem.strip_suffix(".bpf").unwrap_or(stem);
                let stem = format!("{}{stem}", prefix(*space));
                match program {
                    Some(program) => format!("{stem}:{program}"),
                    None => stem,
                }
            }
            Spec::Unit(name) => name.clone(),
            Spec::Command(command) | Spec::Process(command) => super::program(command).to_owned(),
            Spec::UserTool(command) => format!("{USER}{}", super::program(command)),
            Spec::Joined(all) => {
                let names: Vec<String> = all.iter().map(Spec::short).collect();
                names.join("+")
            }
        }
    }

    /// The same with full paths, so that it means the same from every folder.
    pub fn absolute(self) -> std::io::Result<Self> {
        Ok(match self {
            Spec::Object {
                path,
                program,
                space,
            } => Spec::Object {
                path: std::path::absolute(path)?,
                program,
                space,
            },
            Spec::Joined(all) => {
                let all = all.into_iter().map(Spec::absolute);
                Spec::Joined(all.collect::<Result<_, _>>()?)
            }
            other => other,
        })
    }
}

/// The parts between ` + `; what stands in quotes is a command's own.
fn joined(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut from, mut quote) = (0, None);
    for (at, letter) in text.char_indices() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            ('+', None) if text[..at].ends_with(' ') && text[at + 1..].starts_with(' ') => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

fn one(text: &str) -> Result<Spec, Error> {
    let text = text.trim();
    if text.is_empty() {
        bail!("the name of a probe is empty");
    }
    if let Some(built_in) = text.strip_prefix(BUILT_IN) {
        let mut words = built_in.split(':').map(str::to_owned);
        let name = words.next().unwrap_or_default();
        return Ok(Spec::BuiltIn {
            name,
            arguments: words.collect(),
        });
    }
    let command = |prefix: &str| -> Result<Option<String>, Error> {
        let command = text.strip_prefix(prefix).map(str::trim);
        if command == Some("") {
            bail!("there is no command after {prefix}");
        }
        Ok(command.map(str::to_owned))
    };
    if let Some(command) = command(PROCESS)? {
        return Ok(Spec::Process(command));
    }
    if let Some(command) = command(USER_TOOL)? {
        return Ok(Spec::UserTool(command));
    }
    if let Some(object) = text.strip_prefix(USER) {
        return object_of(object, Space::User).ok_or_else(|| {
            anyhow!("after {USER} comes a BPF object: {USER}FILE.bpf.o or {USER}FILE.bpf.o:PROGRAM; got {object}")
        });
    }
    if let Some(object) = object_of(text, Space::Kernel) {
        return Ok(object);
    }
    let word = !text.contains(char::is_whitespace);
    if word && text.len() > ".service".len() && text.ends_with(".service") {
        return Ok(Spec::Unit(text.to_owned()));
    }
    Ok(Spec::Command(text.to_owned()))
}

/// A BPF object, where the text is one: it ends as those do, or is a file that ends as objects do.
fn object_of(text: &str, space: Space) -> Option<Spec> {
    let is_object = |path: &str| {
        let word = !path.contains(char::is_whitespace);
        (word && path.ends_with(".bpf.o"))
            || (path.ends_with(".o") && PathBuf::from(path).is_file())
    };
    if is_object(text) {
        return Some(Spec::Object {
            path: text.into(),
            program: None,
            space,
        });
    }
    let (path, program) = text.rsplit_once(':')?;
    let name = !program.is_empty()
        && program
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    (name && is_object(path)).then(|| Spec::Object {
        path: path.into(),
        program: Some(program.to_owned()),
        space,
    })
}

/// Prefix of an object.
fn prefix(space: Space) -> &'static str {
    match space {
        Space::Kernel => "",
        Space::User => USER,
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::BuiltIn { name, arguments } => {
                write!(f, "{BUILT_IN}{name}")?;
                arguments.iter().try_for_each(|one| write!(f, ":{one}"))
            }
            Spec::Object {
                path,
                program,
                space,
            } => {
                write!(f, "{}{}", prefix(*space), path.display())?;
                program.iter().try_for_each(|one| write!(f, ":{one}"))
            }
            Spec::Unit(name) => f.write_str(name),
            Spec::Command(command) => f.write_str(command),
            Spec::UserTool(command) => write!(f, "{USER_TOOL}{command}"),
            Spec::Process(command) => write!(f, "{PROCESS}{command}"),
            Spec::Joined(all) => {
                let words: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&words.join(" + "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Spec {
        text.parse().expect("a probe")
    }

    fn file(path: &str, program: Option<&str>) -> Spec {
        Spec::Object {
            path: path.into(),
            program: program.map(Into::into),
            space: Space::Kernel,
        }
    }

    #[test]
    fn kinds_are_told_by_their_form() {
        let built_in = Spec::BuiltIn {
            name: "syscount".to_owned(),
            arguments: vec!["kernel".to_owned()],
        };
        assert_eq!(spec("builtin:syscount:kernel"), built_in);
        assert_eq!(spec("count.bpf.o"), file("count.bpf.o", None));
        assert_eq!(
            spec("./a/count.bpf.o:on_recv"),
            file("./a/count.bpf.o", Some("on_recv"))
        );
        assert_eq!(
            spec("agent.service"),
            Spec::Unit("agent.service".to_owned())
        );
        assert_eq!(
            spec("process:strace -p 1"),
            Spec::Process("strace -p 1".to_owned())
        );
        for command in [
            "opensnoop-bpfcc",
            "systemctl status agent.service",
            "objdump -d count.bpf.o",
            "there_is_no_such_file.o",
            "bpftrace -e 'kprobe:f { @ = count(); }'",
            ".service",
        ] {
            assert_eq!(spec(command), Spec::Command(command.to_owned()));
        }
        let in_user_space = Spec::Object {
            path: "count.bpf.o".into(),
            program: Some("on_recv".to_owned()),
            space: Space::User,
        };
        assert_eq!(spec("user:count.bpf.o:on_recv"), in_user_space);
        for wrong in [
            "",
            "  ",
            "a + ",
            " + a",
            "process:",
            "process: ",
            "user-tool:",
            "user:",
            "user:ls",
        ] {
            assert!(wrong.parse::<Spec>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_ends_as_objects_do_is_one() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("count.o");
        std::fs::write(&path, "").expect("a file");
        let path = path.to_str().expect("UTF-8");
        assert_eq!(spec(path), file(path, None));
        assert_eq!(spec(&format!("{path}:f")), file(path, Some("f")));
    }

    #[test]
    fn plus_joins_but_not_inside_of_quotes() {
        let joined = |text: &str| match spec(text) {
            Spec::Joined(all) => all.len(),
            _ => 1,
        };
        assert_eq!(joined("a.bpf.o + agent.service + bpftrace -e 'x'"), 3);
        assert_eq!(joined("a.bpf.o+builtin:nothing"), 2);
        assert_eq!(joined("bpftrace -e 'kprobe:f { @ = sum(arg0 + 1); }'"), 1);
        assert_eq!(joined("sh -c \"it's 1 + 1\" + a.bpf.o"), 2);
        assert_eq!(joined("g++ x"), 1);
    }

    #[test]
    fn what_was_read_is_written_the_same() {
        for text in [
            "builtin:busy:1000",
            "/x/count.bpf.o:f",
            "user:/x/count.bpf.o:f",
            "process:perf top",
            "user-tool:memleak -p {pid}",
            "a.bpf.o + agent.service",
        ] {
            assert_eq!(spec(text).to_string(), text);
        }
    }

    #[test]
    fn short_names_are_for_tables() {
        for (text, short) in [
            ("builtin:syscount:kernel", "syscount:kernel"),
            ("/x/count.bpf.o", "count"),
            ("user:/x/count.bpf.o", "user:count"),
            ("/x/count.bpf.o:f", "count:f"),
            ("sudo /usr/bin/bpftrace -e 'BEGIN { }'", "bpftrace"),
            ("user-tool:/opt/memleak -p {pid}", "user:memleak"),
            ("a.bpf.o + agent.service", "a+agent.service"),
        ] {
            assert_eq!(spec(text).short(), short);
        }
    }
}
