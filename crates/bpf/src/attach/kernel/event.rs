//! Kprobe events of tracefs: the only way to set how many instances a kretprobe has (`maxactive`); perf's own
//! kprobes have no such setting (Documentation/trace/kprobetrace.rst).

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::Path,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use super::link;
use crate::{
    error::Result,
    mount::{self, MountedFs},
};

/// The group of this tool's events.
const GROUP: &str = "bpfcost";

/// Most attempts to make an event, where sweeps of other processes take it for left over.
const TRIES: u32 = 8;

/// An event of a function's entry or return. The kernel removes none while perf has it open, so that what
/// can be removed is left of a process that was killed, and [`sweep`] does so.
pub(in crate::attach) struct Event {
    tracefs: MountedFs,
    name: String,
}

impl Event {
    /// Makes one, with perf's descriptor of it, and removes those that are left of processes that were
    /// killed. With `maxactive`, it is of returns, and holds so many instances ready.
    pub(in crate::attach) fn open(
        function: &str,
        maxactive: Option<u32>,
    ) -> Result<io::Result<(Self, OwnedFd)>> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        sweep(&mount::open("tracefs")?.path(""));
        let kind = maxactive.map_or("p".to_owned(), |most| format!("r{most}"));
        let mut refused = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..TRIES {
            let count = MADE.fetch_add(1, Ordering::Relaxed);
            // kprobe_profile lists it by its name alone, without its group.
            let name = format!("{GROUP}_{}_{count}", process::id());
            let tracefs = mount::open("tracefs")?;
            let line = format!("{kind}:{GROUP}/{name} {function}");
            if let Err(error) = tell(&tracefs.path(""), &line) {
                return Ok(Err(error));
            }
            // From here on, it is removed whatever comes.
            let event = Event { tracefs, name };
            match event.number().and_then(link::tracepoint_event) {
                Ok(opened) => return Ok(Ok((event, opened))),
                Err(error) if event.is_gone() => refused = error,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Err(refused))
    }

    /// Returns true if another process removed the event.
    fn is_gone(&self) -> bool {
        self.number()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// The number by which perf knows it.
    fn number(&self) -> io::Result<u64> {
        let path = format!("events/{GROUP}/{}/id", self.name);
        let text = fs::read_to_string(self.tracefs.path(&path))?;
        text.trim().parse().map_err(io::Error::other)
    }

    /// Calls that it missed since it was made: no free instance, or another kprobe was being handled on that CPU.
    pub(in crate::attach) fn missed(&self) -> io::Result<u64> {
        let profile = fs::read_to_string(self.tracefs.path("kprobe_profile"))?;
        missed(&profile, &self.name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // Where it stays after all, the next run removes it.
        let _ = remove(&self.tracefs.path(""), &self.name);
    }
}

/// Removes the events of processes that are gone.
fn sweep(tracefs: &Path) {
    let list = fs::read_to_string(tracefs.join("kprobe_events")).unwrap_or_default();
    for name in ours(&list) {
        // Refused where it is in use.
        let _ = remove(tracefs, name);
    }
}

fn remove(tracefs: &Path, name: &str) -> io::Result<()> {
    tell(tracefs, &format!("-:{GROUP}/{name}"))
}

/// Appends, for who writes there from the start removes everyone's events.
fn tell(tracefs: &Path, line: &str) -> io::Result<()> {
    let mut events = File::options()
        .append(true)
        .open(tracefs.join("kprobe_events"))?;
    events.write_all(format!("{line}\n").as_bytes())
}

/// The names in lines such as `r16:bpfcost/bpfcost_7_0 __x64_sys_flock`.
fn ours(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter_map(|line| {
        let (_, named) = line.split_whitespace().next()?.split_once(':')?;
        named.strip_prefix(GROUP)?.strip_prefix('/')
    })
}

/// The last word of a line such as `  bpfcost_7_0    120    8`: name, hits, misses.
fn missed(profile: &str, name: &str) -> Option<u64> {
    let line = profile
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_tracefs_are_read() {
        let list = "p:kprobes/mine do_sys_open\nr16:bpfcost/bpfcost_7_0 __x64_sys_flock\n\
                    p:bpfcost/bpfcost_7_1 eventfd_read\nr:bpfcosts/other f\n";
        assert_eq!(
            ours(list).collect::<Vec<_>>(),
            ["bpfcost_7_0", "bpfcost_7_1"]
        );
        let profile = "  bpfcost_7_01      5      6\n  bpfcost_7_0    120      8\n";
        assert_eq!(missed(profile, "bpfcost_7_0"), Some(8));
        assert_eq!(missed(profile, "bpfcost_7"), None);
    }
}
