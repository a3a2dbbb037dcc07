//! Tracepoints of the kernel.

use std::{fs, io};

use libbpf_rs::PerfEventOpts;
use nix::unistd::getpgid;

use super::{
    Family, Mechanism, SiteLink,
    programs::{Counted, SitePrograms},
};
use crate::{
    attach::kernel::{perf_with, tracepoint_event},
    error::{Result, failed, unattachable},
    mount,
};

/// A tracepoint that this thread can hit at will.
const WITNESS: &str = "syscalls:sys_enter_getpgid";
/// The witness's cookie in `bpf/sites.bpf.c`.
const WITNESS_COOKIE: u64 = 1;

/// Hits of the witness to see that the program runs.
const CALLS: u64 = 16;

/// Groups of events that are no tracepoints: of ftrace itself, and of probes that people made.
const LEFT_OUT: [&str; 5] = ["ftrace", "kprobes", "uprobes", "synthetic", "bpfcost"];

/// A tracepoint, and the number by which perf knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    name: String,
    number: u64,
}

/// Tracepoints, the witness first.
pub(super) struct Tracepoints {
    events: Vec<Event>,
    counted: Counted,
}

impl Tracepoints {
    pub(super) fn find(count: usize) -> Result<Self> {
        let all = all()?;
        let witness = all.iter().position(|one| one.name == WITNESS);
        let witness = witness.ok_or_else(|| {
            let words = format!("this kernel has no tracepoint {WITNESS} (CONFIG_FTRACE_SYSCALLS)");
            unattachable(Mechanism::Tracepoint.name(), words)
        })?;
        Ok(Tracepoints {
            events: super::spread(all, witness, count),
            counted: Counted::here()?,
        })
    }
}

impl Family for Tracepoints {
    fn load(&self) -> Result<SitePrograms> {
        let mut programs = SitePrograms::load(Mechanism::Tracepoint, None)?;
        programs.count(self.counted)?;
        Ok(programs)
    }

    fn attach(&self, programs: &SitePrograms, links: &mut Vec<SiteLink>) -> Result<()> {
        let program = programs.program()?;
        for event in &self.events {
            let opened = tracepoint_event(event.number)
                .map_err(failed(&*event.name, "opening the tracepoint's event"))?;
            let options = PerfEventOpts {
                cookie: if event.name == WITNESS {
                    WITNESS_COOKIE
                } else {
                    0
                },
                ..Default::default()
            };
            let link = perf_with(&program, opened, options);
            links.push(SiteLink::Libbpf(
                link.map_err(failed(&*event.name, "attaching to the tracepoint"))?,
            ));
        }
        Ok(())
    }

    /// Counts the kernel's links to the programs.
    fn shown(&self, programs: &SitePrograms) -> Result<u64> {
        Ok(super::links(&programs.numbers()?))
    }

    fn fire(&self, _: &SitePrograms, _: bool) -> Result<u64> {
        for _ in 0..CALLS {
            getpgid(None).map_err(failed("getpgid", "calling it"))?;
        }
        Ok(CALLS)
    }
}

/// The tracepoints of this kernel, in the order of their names.
pub(super) fn all() -> Result<Vec<Event>> {
    let tracefs = mount::open("tracefs")?;
    let read = || -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        for group in fs::read_dir(tracefs.path("events"))? {
            let group = group?;
            let name = group.file_name().to_string_lossy().into_owned();
            if LEFT_OUT.contains(&name.as_str()) || !group.file_type()?.is_dir() {
                continue;
            }
            for event in fs::read_dir(group.path())? {
                let event = event?;
                // Files, such as `enable`, have no number.
                let Ok(number) = fs::read_to_string(event.path().join("id")) else {
                    continue;
                };
                let number = number.trim().parse().map_err(io::Error::other)?;
                let event = event.file_name();
                let name = format!("{name}:{}", event.to_string_lossy());
                events.push(Event { name, number });
            }
        }
        events.sort();
        Ok(events)
    };
    read().map_err(failed("tracefs", "listing the tracepoints"))
}
