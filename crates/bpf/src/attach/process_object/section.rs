//! Places where an object's programs run: the text of a section, and its meaning in a process.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bpfcost_uprobe::{
    probes::{At, Probes, Result},
    process::{Function, Image, Mapping, UsdtSite},
};

/// Beginnings of the sections of programs at functions, with true for those that run at returns.
const KINDS: [(&str, bool); 4] = [
    ("uprobe", false),
    ("uretprobe", true),
    ("uprobe.multi", false),
    ("uretprobe.multi", true),
];
const USDT: &str = "usdt";

/// The place where a program is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) program: String,
    /// The section's name.
    pub(super) text: String,
    pub(super) file: String,
    /// The path that `file` leads to, if it is one.
    real: PathBuf,
    target: Target,
}

/// The place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Entry(String),
    Return(String),
    Inside(String, u64),
    Usdt { provider: String, name: String },
}

/// A place that a section means in a process.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) function: Function,
    pub(super) at: At,
    pub(super) cookie: u64,
}

impl Found {
    /// The same place where its file is mapped so much higher.
    pub(super) fn shifted(&self, by: u64) -> Self {
        let at = match self.at {
            At::Inside { offset, semaphore } => At::Inside {
                offset,
                semaphore: semaphore.map(|address| address.wrapping_add(by)),
            },
            other => other,
        };
        Found {
            function: self.function.shifted(by),
            at,
            cookie: self.cookie,
        }
    }
}

impl Section {
    /// `uprobe/FILE:FUNCTION`, and the like.
    pub(super) fn parse(program: &str, section: &str) -> std::result::Result<Self, String> {
        let (kind, place) = section.split_once('/').unwrap_or((section, ""));
        let kind = kind.strip_suffix(".s").unwrap_or(kind);
        let known = KINDS.iter().find(|(name, _)| *name == kind);
        if known.is_none() && kind != USDT {
            return Err(format!(
                "{program} is of the section {section}, which has no form in user space\n  Name the program that \
                 has one (uprobe/…, uretprobe/…, usdt/…): FILE.bpf.o:PROGRAM"
            ));
        }
        let parts = place.split_once(':');
        let parts = parts.filter(|(file, rest)| !file.is_empty() && !rest.is_empty());
        let target = parts.and_then(|(_, rest)| match known {
            None => {
                let (provider, name) = rest.split_once(':')?;
                Some(Target::Usdt {
                    provider: provider.to_owned(),
                    name: name.to_owned(),
                })
            }
            Some((_, true)) => Some(Target::Return(rest.to_owned())),
            Some((_, false)) => Some(match rest.rsplit_once('+') {
                Some((function, offset)) => Target::Inside(function.to_owned(), number(offset)?),
                None => Target::Entry(rest.to_owned()),
            }),
        });
        let Some(((file, _), target)) = parts.zip(target) else {
            let form = match known {
                None => "FILE:PROVIDER:NAME",
                Some(_) => "FILE:FUNCTION",
            };
            return Err(format!(
                "the section of {program}, {section}, does not say where to attach\n  Write SEC(\"{kind}/{form}\")"
            ));
        };
        Ok(Section {
            program: program.to_owned(),
            text: section.to_owned(),
            file: file.to_owned(),
            real: fs::canonicalize(file).unwrap_or_else(|_| file.into()),
            target,
        })
    }

    /// The places that it means.
    pub(super) fn places(&self, image: &Image, probes: &mut Probes) -> Result<Vec<Found>> {
        let one = |name: &str, at| {
            Ok(vec![Found {
                function: image.function(name)?,
                at,
                cookie: 0,
            }])
        };
        match &self.target {
            Target::Entry(name) => one(name, At::Entry),
            Target::Return(name) => one(name, At::Return),
            Target::Inside(name, offset) => one(
                name,
                At::Inside {
                    offset: *offset,
                    semaphore: None,
                },
            ),
            Target::Usdt { provider, name } => {
                let sites = image.usdt(provider, name)?;
                let place = |site: &UsdtSite| {
                    let function = image.function_around(site.address)?;
                    let at = At::Inside {
                        offset: site.address - function.address,
                        semaphore: site.semaphore,
                    };
                    let cookie = probes.usdt_cookie(&self.program, site, 0)?;
                    Ok(Found {
                        function,
                        at,
                        cookie,
                    })
                };
                sites.iter().map(place).collect()
            }
        }
    }

    /// The path of its file, where the section has one.
    pub(super) fn path(&self) -> Option<&Path> {
        self.file.contains('/').then(|| self.file.as_ref())
    }

    /// Returns true if a process executes the section's file there. A name without a folder stands for any such file.
    pub(super) fn is_of(&self, mapping: &Mapping) -> bool {
        let mapped = Path::new(&mapping.name);
        mapping.is_executable()
            && match self.path() {
                Some(path) => mapped == path || mapped == self.real,
                None => mapped.file_name().is_some_and(|name| *name == *self.file),
            }
    }
}

/// A number as C writes it.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_say_where_a_program_runs() {
        let section = |text| Section::parse("p", text).expect("a place");
        let returns = section("uretprobe.s//usr/bin/app:serve");
        assert_eq!(returns.file, "/usr/bin/app");
        assert_eq!(returns.target, Target::Return("serve".to_owned()));
        let inside = section("uprobe/app:serve+0x1f");
        assert_eq!(inside.target, Target::Inside("serve".to_owned(), 31));
        let usdt = Target::Usdt {
            provider: "libc".to_owned(),
            name: "setjmp".to_owned(),
        };
        assert_eq!(section("usdt/libc.so.6:libc:setjmp").target, usdt);
        let section = section("uprobe/libssl.so.3:SSL_read");
        assert_eq!(section.target, Target::Entry("SSL_read".to_owned()));
        let mapping = |name: &str, permissions: &str| Mapping {
            start: 0,
            end: 4096,
            permissions: permissions.to_owned(),
            offset: 0,
            device: "00:00".to_owned(),
            inode: 1,
            name: name.to_owned(),
        };
        assert!(section.is_of(&mapping("/usr/lib/libssl.so.3", "r-xp")));
        assert!(!section.is_of(&mapping("/usr/lib/libssl.so.3", "r--p")));
        assert!(!section.is_of(&mapping("/usr/lib/libssl.so.30", "r-xp")));
        for (section, says) in [
            ("uprobe", "does not say where"),
            ("uprobe/app", "does not say where"),
            ("uprobe/app:serve+x", "does not say where"),
            ("usdt/app:serve", "SEC(\"usdt/FILE:PROVIDER:NAME\")"),
            ("kprobe/tcp_sendmsg", "has no form in user space"),
            ("xdp", "has no form in user space"),
        ] {
            let error = Section::parse("p", section).expect_err(section);
            assert!(error.contains(says), "{error}");
        }
    }
}
