//! A user's BPF object in the processes that it probes: its programs are loaded unchanged, judged by the kernel's
//! verifier, and run where their sections say, without the kernel's trap.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    path::{Path, PathBuf},
};

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Attached, Place, Probes},
    process::{self, Function, Image, Mapping},
};

use super::BufferCounts;
use crate::{
    error::{Error, Result},
    object::listen,
};

/// What sections of programs at functions begin with, and whether they run at returns.
const KINDS: [(&str, bool); 4] = [
    ("uprobe", false),
    ("uretprobe", true),
    ("uprobe.multi", false),
    ("uretprobe.multi", true),
];
const USDT: &str = "usdt";

/// What an object's programs did while they were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// Runs of programs.
    pub hits: u64,
    /// Calls without a run: in too many probes already, or no memory left for the thread.
    pub missed: u64,
}

/// A user's BPF object, loaded for processes. Dropping it detaches it.
#[derive(Debug)]
pub struct ProcessObject {
    path: PathBuf,
    sections: Vec<Section>,
    /// The ring buffers, by name.
    rings: Vec<String>,
    attached: Vec<Attached>,
    /// The places in each process, with cookies, by its section's number: no file is read twice.
    places: BTreeMap<(i32, usize), Vec<Found>>,
    taken: u64,
    probes: Probes,
}

/// Where a program is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    program: String,
    file: String,
    target: Target,
}

/// What in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Entry(String),
    Return(String),
    Inside(String, u64),
    Usdt { provider: String, name: String },
}

impl ProcessObject {
    /// Loads an object, or one program of it alone.
    pub fn load(path: &Path, only: Option<&str>) -> Result<Self> {
        let bytes =
            fs::read(path).map_err(|error| wrong(path, format!("cannot read it: {error}")))?;
        listen();
        let named: Vec<&str> = only.into_iter().collect();
        let choice = Choice {
            programs: &named,
            ..Choice::default()
        };
        let object = LoadedObject::from_bytes(&path.display().to_string(), &bytes, &choice);
        let object = object.map_err(bpfcost_uprobe::probes::Error::from)?;
        if object.programs().is_empty() {
            let words = match only {
                Some(only) => format!("there is no program {only} in it"),
                None => "there is no program in it".to_owned(),
            };
            return Err(wrong(path, words));
        }
        let sections = object
            .programs()
            .iter()
            .map(|program| Section::of(&program.name, &program.section))
            .collect::<std::result::Result<Vec<_>, String>>()
            .map_err(|words| wrong(path, words))?;
        let rings = object.maps().iter().filter(|map| map.is_ring());
        Ok(ProcessObject {
            path: path.to_owned(),
            sections,
            rings: rings.map(|map| map.name.clone()).collect(),
            attached: Vec::new(),
            places: BTreeMap::new(),
            taken: 0,
            probes: Probes::new(object)?,
        })
    }

    /// Attaches all that was loaded to these processes: to each that executes a section's file, and to one at least.
    pub fn attach(&mut self, processes: &[u32]) -> Result<()> {
        for process in processes {
            let attached = self.attach_one(process.cast_signed());
            if attached.is_err() {
                self.detach()?;
            }
            attached?;
        }
        if self.attached.is_empty() {
            let files: Vec<&str> = self.sections.iter().map(|one| one.file.as_str()).collect();
            let words = format!(
                "none of the processes executes {}\n  Probes in user space need the processes to be there: give a \
                 server or --watch; compare the sections' files with /proc/PID/maps",
                files.join(", ")
            );
            return Err(wrong(&self.path, words));
        }
        Ok(())
    }

    fn attach_one(&mut self, pid: i32) -> Result<()> {
        let all = process::mappings(pid).map_err(bpfcost_uprobe::probes::Error::from)?;
        for (number, section) in self.sections.iter().enumerate() {
            let Some(mapping) = all.iter().find(|mapping| section.is_of(mapping)) else {
                continue;
            };
            if let Entry::Vacant(place) = self.places.entry((pid, number)) {
                let range = format!("{:x}-{:x}", mapping.start, mapping.end);
                let image = Image::of_file(pid, format!("/proc/{pid}/map_files/{range}").as_ref());
                let image = image.map_err(bpfcost_uprobe::probes::Error::from)?;
                place.insert(section.places(&image, &mut self.probes)?);
            }
        }
        let places: Vec<Place<'_>> = self
            .places
            .range((pid, 0)..=(pid, usize::MAX))
            .flat_map(|((_, number), places)| {
                places.iter().map(|found| Place {
                    program: &self.sections[*number].program,
                    function: &found.function,
                    at: found.at,
                    cookie: found.cookie,
                })
            })
            .collect();
        if places.is_empty() {
            return Ok(());
        }
        self.attached.push(self.probes.attach(pid, &places)?);
        Ok(())
    }

    /// Detaches it from everything.
    pub fn detach(&mut self) -> Result<ProcessCounts> {
        let mut all = ProcessCounts::default();
        for attached in self.attached.drain(..) {
            let hits = self.probes.detach(attached)?;
            for counts in [hits.entry, hits.returns, hits.inside] {
                all.hits += counts.hits;
                all.missed += counts.missed;
            }
        }
        Ok(all)
    }

    /// Whether it has ring buffers, which have to be read.
    pub fn has_buffers(&self) -> bool {
        !self.rings.is_empty()
    }

    /// Takes what is in its ring buffers; all that was taken, and lost, since it was loaded.
    pub fn take(&mut self) -> Result<BufferCounts> {
        let mut lost = 0;
        for ring in &self.rings {
            let taken = &mut self.taken;
            self.probes.consume(ring, |_, _| *taken += 1)?;
            lost += self.probes.map(ring)?.dropped()?;
        }
        Ok(BufferCounts {
            records: self.taken,
            lost,
        })
    }
}

impl Drop for ProcessObject {
    fn drop(&mut self) {
        // A process that is gone has nothing to restore.
        let _ = self.detach();
    }
}

/// A place that a section means in a process.
#[derive(Debug)]
struct Found {
    function: Function,
    at: At,
    cookie: u64,
}

impl Section {
    /// `uprobe/FILE:FUNCTION`, and the like.
    fn of(program: &str, section: &str) -> std::result::Result<Self, String> {
        let (kind, place) = section.split_once('/').unwrap_or((section, ""));
        let kind = kind.strip_suffix(".s").unwrap_or(kind);
        let known = KINDS.iter().find(|(name, _)| *name == kind);
        if known.is_none() && kind != USDT {
            return Err(format!(
                "{program} is of the section {section}, which has no form in user space\n  Name the programs that \
                 have one (uprobe/…, uretprobe/…, usdt/…): user:FILE.bpf.o:PROGRAM"
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
            file: file.to_owned(),
            target,
        })
    }

    /// The places that it means.
    fn places(
        &self,
        image: &Image,
        probes: &mut Probes,
    ) -> bpfcost_uprobe::probes::Result<Vec<Found>> {
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
                let place = |site: &process::UsdtSite| {
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

    /// Whether a process executes its file there. A name without a folder is that of any file of the name.
    fn is_of(&self, mapping: &Mapping) -> bool {
        let mapped = Path::new(&mapping.name);
        let is_same = if self.file.contains('/') {
            let real = fs::canonicalize(&self.file);
            mapped == Path::new(&self.file) || real.is_ok_and(|real| mapped == real)
        } else {
            mapped
                .file_name()
                .is_some_and(|name| name == self.file.as_str())
        };
        is_same && mapping.is_executable()
    }
}

/// A number as C writes it.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// It is wrong on every machine.
fn wrong(path: &Path, words: String) -> Error {
    Error::UserObject {
        path: path.to_owned(),
        words,
        is_input: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_say_where_a_program_runs() {
        let section = |text| Section::of("p", text).expect("a place");
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
            let error = Section::of("p", section).expect_err(section);
            assert!(error.contains(says), "{error}");
        }
    }
}
