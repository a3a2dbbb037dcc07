//! Makes mutants: changes one source at a time, compiles it, and has judges run it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Error, Result, bail, ensure};
use bpfcost_bpf::LIBBPF_HEADERS;
use bpfcost_compile::compile;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use procfs::process::Process;

use crate::{
    judge::{Judge, Verdict},
    mutant::{Mutant, SOURCES},
};

/// `NAME=FILE`: the object of `bpf/` that a judge replaces, and by what.
pub(crate) const VARIABLE: &str = "BPFCOST_MUTANT";

/// CPU time that a judge may take: a mutant may never end. On a busy machine that says more than the clock, which
/// decides where it only waits.
const CPU_TIME: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(300);

/// Disturbed tries of a judge before the run ends.
const ATTEMPTS: u32 = 60;

/// Held by a judge that must be alone.
static ALONE: Mutex<()> = Mutex::new(());

/// A folder with all sources, in which one at a time is changed.
pub(crate) struct Workshop {
    folder: PathBuf,
    cpu: u32,
}

impl Workshop {
    pub(crate) fn new(folder: PathBuf, cpu: u32) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        for file in fs::read_dir(SOURCES)? {
            let file = file?;
            fs::copy(file.path(), folder.join(file.file_name()))?;
        }
        Ok(Workshop { folder, cpu })
    }

    /// Judges a mutant; returns also what was said of it.
    pub(crate) fn judge(&self, mutant: &Mutant, judges: &[&Judge]) -> Result<(Verdict, String)> {
        let place = self.folder.join(mutant.source);
        let text = fs::read_to_string(&place)?;
        let mut wrong = text.clone();
        wrong.replace_range(mutant.mutation.at.clone(), &mutant.mutation.new);
        fs::write(&place, wrong)?;
        let verdict = self.of_changed(judges, mutant.mutation.of_map);
        fs::write(&place, text)?;
        verdict
    }

    fn of_changed(&self, judges: &[&Judge], of_map: bool) -> Result<(Verdict, String)> {
        let mut verdict = (Verdict::SameCode, String::new());
        for judge in judges {
            let built = self.folder.join(format!("{}.built", judge.object));
            let object = self.folder.join(format!("{}.o", judge.object));
            if let Err(error) = self.compile(judge.object, &object) {
                return Ok((Verdict::Compiler, error.to_string()));
            }
            if !of_map && same_code(&built, &object)? {
                continue;
            }
            if judge.object_is_typed() && layout(&built)? != layout(&object)? {
                return Ok((Verdict::Unjudged, "its variables have other places".into()));
            }
            verdict = self.before(judge, &object)?;
            if verdict.0 != Verdict::Survived {
                break;
            }
        }
        Ok(verdict)
    }

    /// Compiles the sources as they are, and has judges agree that they are right.
    pub(crate) fn check(&self, judge: &Judge) -> Result<()> {
        let built = self.folder.join(format!("{}.built", judge.object));
        self.compile(judge.object, &built)?;
        let (verdict, said) = self.before(judge, &built)?;
        let valid = verdict == Verdict::Survived;
        ensure!(
            valid,
            "{} finds the right program wrong: {said}",
            judge.name
        );
        println!("{}: {}", judge.name, said.trim());
        Ok(())
    }

    /// As the build does (`crates/bpf/build.rs`), with no warning an error.
    fn compile(&self, name: &str, object: &Path) -> Result<()> {
        let source = self.folder.join(format!("{name}.bpf.c"));
        compile(
            &source,
            object,
            Path::new(LIBBPF_HEADERS),
            &["-mcpu=v3", "-w"],
        )
        .map_err(Error::msg)
    }

    /// Has a judge run an object, until no other program disturbs it.
    fn before(&self, judge: &Judge, object: &Path) -> Result<(Verdict, String)> {
        let _alone = judge.alone.then(|| ALONE.lock());
        for _ in 0..ATTEMPTS {
            let (verdict, said) = self.once(judge, object)?;
            if let Some(verdict) = verdict {
                return Ok((verdict, said));
            }
            sleep(Duration::from_secs(1));
        }
        bail!(
            "{}: another program uses BPF at the same events, or keeps bpf_stats on",
            judge.name
        )
    }

    fn once(&self, judge: &Judge, object: &Path) -> Result<(Option<Verdict>, String)> {
        let mutant = format!("{}={}", judge.object, object.display());
        let mut child = Command::new(env::current_exe()?)
            .args(["--judge", judge.name, &self.cpu.to_string()])
            .env(VARIABLE, mutant)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        if !ends(&mut child)? {
            child.kill()?;
            child.wait()?;
            return Ok((Some(Verdict::Stopped), "it did not end".into()));
        }
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((Verdict::from_code(output.status.code()), said))
    }
}

/// Returns true if a process ends in time. What judges print fits into a pipe.
fn ends(child: &mut Child) -> Result<bool> {
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if cpu_time(child) > CPU_TIME || begun.elapsed() > TIMEOUT {
            return Ok(child.try_wait()?.is_some());
        }
        sleep(Duration::from_millis(5));
    }
    Ok(true)
}

/// CPU time of a process so far, its calls of the kernel included; none of one that has ended.
fn cpu_time(child: &Child) -> Duration {
    let id = i32::try_from(child.id()).unwrap_or_default();
    let stat = Process::new(id).and_then(|process| process.stat());
    stat.map_or(Duration::ZERO, |stat| {
        Duration::from_secs((stat.utime + stat.stime) / procfs::ticks_per_second())
    })
}

/// Returns true if two objects differ in nothing but what debuggers read.
fn same_code(one: &Path, other: &Path) -> Result<bool> {
    Ok(code(one)? == code(other)?)
}

fn code(path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let bytes = fs::read(path)?;
    let object = object::File::parse(&*bytes)?;
    let sections = object.sections().filter_map(|section| {
        let name = section.name().ok()?.to_owned();
        let described = [".BTF", ".debug", ".rel.BTF", ".rel.debug", ".strtab"];
        let code = !described.iter().any(|start| name.starts_with(start));
        code.then(|| (name, section.data().unwrap_or_default().to_vec()))
    });
    Ok(sections.collect())
}

/// Address of each variable. The compiler places them in the order of their first use.
fn layout(path: &Path) -> Result<Vec<(String, u64)>> {
    let bytes = fs::read(path)?;
    let object = object::File::parse(&*bytes)?;
    let variables = object.symbols().filter(|symbol| {
        let section = symbol.section_index();
        let section = section.and_then(|index| object.section_by_index(index).ok());
        section.is_some_and(|section| matches!(section.name(), Ok(".bss" | ".data" | ".rodata")))
    });
    let mut places: Vec<(String, u64)> = variables
        .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())))
        .filter(|(name, _)| !name.is_empty())
        .collect();
    places.sort();
    Ok(places)
}
