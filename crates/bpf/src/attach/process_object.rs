//! A user's BPF object in the processes that it probes: its programs are loaded unchanged, judged by the kernel's
//! verifier, and run where their sections say, without the kernel's trap.

use std::{
    collections::BTreeMap,
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
const KINDS: [(&str, At); 4] = [
    ("uprobe", At::Entry),
    ("uretprobe", At::Return),
    ("uprobe.multi", At::Entry),
    ("uretprobe.multi", At::Return),
];

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
    /// Functions by process, file and symbol: no file is read twice.
    functions: BTreeMap<(i32, PathBuf, String), Function>,
    taken: u64,
    probes: Probes,
}

/// Where a program is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    program: String,
    at: At,
    file: String,
    function: String,
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
            functions: BTreeMap::new(),
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
        let mut found = Vec::new();
        for section in &self.sections {
            let Some(mapping) = all.iter().find(|mapping| section.is_of(mapping)) else {
                continue;
            };
            let range = format!(
                "/proc/{pid}/map_files/{:x}-{:x}",
                mapping.start, mapping.end
            );
            let key = (pid, PathBuf::from(&mapping.name), section.function.clone());
            if !self.functions.contains_key(&key) {
                let image = Image::of_file(pid, range.as_ref());
                let function = image.and_then(|image| image.function(&section.function));
                let function = function.map_err(bpfcost_uprobe::probes::Error::from)?;
                self.functions.insert(key.clone(), function);
            }
            found.push((section, key));
        }
        if found.is_empty() {
            return Ok(());
        }
        let places: Vec<Place<'_>> = found
            .iter()
            .map(|(section, key)| Place {
                program: &section.program,
                function: &self.functions[key],
                at: section.at,
                cookie: 0,
            })
            .collect();
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

impl Section {
    /// `uprobe/FILE:FUNCTION`, and the like.
    fn of(program: &str, section: &str) -> std::result::Result<Self, String> {
        let (kind, place) = section.split_once('/').unwrap_or((section, ""));
        let kind = kind.strip_suffix(".s").unwrap_or(kind);
        let Some((_, at)) = KINDS.iter().find(|(name, _)| *name == kind) else {
            return Err(format!(
                "{program} is of the section {section}, which has no form in user space\n  Name the programs that \
                 have one (uprobe/…, uretprobe/…): user:FILE.bpf.o:PROGRAM"
            ));
        };
        let split = place
            .split_once(':')
            .filter(|(file, function)| !file.is_empty() && !function.is_empty());
        let Some((file, function)) = split else {
            return Err(format!(
                "the section of {program}, {section}, does not say where to attach\n  Write \
                 SEC(\"{kind}/FILE:FUNCTION\")"
            ));
        };
        Ok(Section {
            program: program.to_owned(),
            at: *at,
            file: file.to_owned(),
            function: function.to_owned(),
        })
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
        let section = Section::of("p", "uretprobe.s//usr/bin/app:serve").expect("a place");
        assert_eq!(
            (section.file.as_str(), section.function.as_str()),
            ("/usr/bin/app", "serve")
        );
        let section = Section::of("p", "uprobe/libssl.so.3:SSL_read").expect("a place");
        assert_eq!(section.at, At::Entry);
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
            ("kprobe/tcp_sendmsg", "has no form in user space"),
            ("xdp", "has no form in user space"),
        ] {
            let error = Section::of("p", section).expect_err(section);
            assert!(error.contains(says), "{error}");
        }
    }
}
