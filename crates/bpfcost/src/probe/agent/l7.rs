//! `builtin:l7:MODE[:FILE]`: an agent that reconstructs the requests of a server, after the Go agent of study
//! 004: method, path, status and latency of each. FILE gets a line of JSON an endpoint, each time that the
//! agent is switched off.

mod exchange;
mod flow;
mod golang;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    rc::Rc,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bpfcost_bpf::{
    Feature,
    l7::{L7, Places, Watch},
    real_time,
};
use serde::Serialize;

use self::exchange::{Endpoint, Exchanges, Latency};
use super::{Agent, EVERY};
use crate::{
    probe::{BuiltIn, Seen},
    process::Scene,
};

/// Its entry.
pub(super) const AGENT: BuiltIn = BuiltIn::agent("l7:MODE", needs, open);

/// What an agent can be told to watch.
const MODES: [(&str, Watch); 3] = [
    ("kernel", Watch::Sockets),
    ("uprobe", Watch::Tls),
    ("goroutine", Watch::Goroutines),
];

/// The agent.
struct Sight {
    programs: L7,
    watch: Watch,
    exchanges: Rc<RefCell<Exchanges>>,
    /// Where the functions of a server are, by its process.
    places: HashMap<u32, Places>,
    file: Option<PathBuf>,
}

/// What it is told: what to watch, and the file for what it sees, if any.
fn told(arguments: &[String]) -> Result<(Watch, Option<PathBuf>)> {
    let (mode, file) = match arguments {
        [mode] => (mode, None),
        [mode, file] => (mode, Some(PathBuf::from(file))),
        _ => bail!("it is builtin:l7:MODE or builtin:l7:MODE:FILE"),
    };
    let Some((_, watch)) = MODES.iter().find(|(name, _)| name == mode) else {
        let names = MODES.map(|(name, _)| name).join(", ");
        bail!("builtin:l7 has no mode {mode}: there are {names}");
    };
    Ok((*watch, file))
}

/// What the kernel must have.
fn needs(arguments: &[String]) -> Result<Vec<Feature>> {
    let mut needs = vec![Feature::Tracefs, Feature::Tracepoint, Feature::RingBuffer];
    if told(arguments)?.0 > Watch::Sockets {
        needs.push(Feature::UprobeMulti);
    }
    Ok(needs)
}

/// Opens the agent.
fn open(arguments: &[String]) -> Result<Box<dyn Agent>> {
    let (watch, file) = told(arguments)?;
    let exchanges = Rc::new(RefCell::new(Exchanges::default()));
    let taken = Rc::clone(&exchanges);
    real_time();
    Ok(Box::new(Sight {
        programs: L7::load(watch, move |call| taken.borrow_mut().take(call))?,
        watch,
        exchanges,
        places: HashMap::new(),
        file,
    }))
}

impl Agent for Sight {
    fn attach(&mut self, scene: &Scene) -> Result<()> {
        if scene.pids.is_empty() {
            bail!("builtin:l7 looks into a server, and there is none");
        }
        let mut processes = Vec::new();
        for process in &scene.pids {
            processes.push((*process, self.places(*process)?));
        }
        self.exchanges.borrow_mut().tell();
        self.programs.attach(&processes)?;
        Ok(())
    }

    fn consume(&mut self, patience: Duration) -> Result<()> {
        self.programs.take()?;
        sleep(patience.min(EVERY));
        Ok(())
    }

    fn detach(&mut self) -> Result<Seen> {
        let counts = self.programs.detach()?;
        let (counted, endpoints) = self.exchanges.borrow_mut().tell();
        if let Some(file) = &self.file {
            write(file, &endpoints).with_context(|| format!("can't write {}", file.display()))?;
        }
        let mut counts_by_name = BTreeMap::from([
            ("opaque".to_owned(), counted.opaque),
            ("truncated".to_owned(), counted.truncated),
            ("requests".to_owned(), counted.requests),
            ("answered".to_owned(), counted.answered),
        ]);
        for (class, count) in counted.statuses.iter().enumerate().skip(1) {
            counts_by_name.insert(format!("status_{class}xx"), *count);
        }
        if self.watch >= Watch::Goroutines {
            counts_by_name.insert("by_one_goroutine".to_owned(), counted.by_one_goroutine);
            counts_by_name.insert("goroutine_switches".to_owned(), counts.switches);
        }
        Ok(Seen {
            hits: Some(counted.calls),
            lost: counts.lost,
            counts: counts_by_name,
        })
    }
}

impl Sight {
    /// Where the functions of a process's program are; nowhere, where none are watched.
    fn places(&mut self, process: u32) -> Result<Places> {
        if self.watch == Watch::Sockets {
            return Ok(Places::default());
        }
        if let Some(places) = self.places.get(&process) {
            return Ok(places.clone());
        }
        let places = golang::places(Path::new(&format!("/proc/{process}/exe")))?;
        self.places.insert(process, places.clone());
        Ok(places)
    }
}

/// An endpoint as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    endpoint: &'a Endpoint,
    #[serde(flatten)]
    latency: &'a Latency,
}

fn write(file: &Path, endpoints: &BTreeMap<Endpoint, Latency>) -> Result<()> {
    let mut lines = Vec::new();
    for (endpoint, latency) in endpoints {
        serde_json::to_writer(&mut lines, &Line { endpoint, latency })?;
        lines.push(b'\n');
    }
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(&lines)?;
    Ok(())
}
