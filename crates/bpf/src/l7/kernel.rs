//! Calls that the kernel sees: system calls at their tracepoints, functions by its uprobes.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use libbpf_rs::{
    Link, MapCore, MapFlags, ProgramMut, RingBuffer, UprobeMultiOpts,
    skel::{OpenSkel as _, Skel as _, SkelBuilder as _},
};

use super::{L7Call, L7Counts, L7Watch, ServerFunctions, add_counts, call, namespace};
use crate::{
    Space,
    attach::tracepoint,
    error::{Result, failed, map_failed},
    links, maps,
    object::{OwnedSkeleton, choose},
    plain,
    skel::l7::{L7Skel, L7SkelBuilder, types},
    stats::RunStats,
};

/// Connections that were open before are numbered from here on; those accepted since, from 0.
const OPEN_BEFORE: u64 = 1 << 62;

/// Longest time that a server may take to close the connections of clients that have gone.
pub(super) const FAREWELL: Duration = Duration::from_millis(200);
/// Pause between two looks meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// The programs. Dropping them detaches them.
pub(super) struct KernelL7 {
    /// Dropped before what they feed.
    links: Vec<Link>,
    watch: L7Watch,
    ring: RingBuffer<'static>,
    before: L7Counts,
    skeleton: OwnedSkeleton<L7Skel<'static>>,
}

impl KernelL7 {
    /// Loads them; `take` is given every call, in [`Self::take`].
    pub(super) fn load(
        watch: L7Watch,
        mut take: impl FnMut(&L7Call<'_>) + 'static,
    ) -> Result<Self> {
        let skeleton = OwnedSkeleton::new("l7", |storage| {
            let mut open = L7SkelBuilder::default().open(storage)?;
            choose(open.open_object_mut(), |name| wanted(name, watch));
            if let (Some(space), Some(chosen)) = (namespace(), open.maps.rodata_data.as_deref_mut())
            {
                (chosen.namespace_device, chosen.namespace_inode) = space;
            }
            open.load()
        })?;
        let ring = maps::ring(&skeleton.maps.l7_events, "l7_events", move |bytes| {
            if let Some(event) = plain::read::<types::l7_event>(bytes) {
                take(&call(&event));
            }
        })?;
        Ok(KernelL7 {
            links: Vec::new(),
            watch,
            ring,
            before: L7Counts::default(),
            skeleton,
        })
    }

    /// Attaches them for these processes; each with the functions of its program, where more than sockets
    /// are watched.
    pub(super) fn attach(&mut self, processes: &[(u32, ServerFunctions)]) -> Result<()> {
        links::close(&mut self.links);
        let maps = &self.skeleton.maps;
        maps::empty(&maps.l7_processes, "l7_processes")?;
        maps::empty(&maps.l7_connections, "l7_connections")?;
        maps::empty(&maps.l7_calls, "l7_calls")?;
        maps::empty(&maps.l7_tls_calls, "l7_tls_calls")?;
        maps::empty(&maps.l7_goroutines, "l7_goroutines")?;
        // What is left of the time before is no call of now.
        self.take()?;
        self.before = self.counted()?;
        for (process, _) in processes {
            maps::put(&maps.l7_processes, "l7_processes", process, &1u8)?;
            for descriptor in sockets(*process) {
                let number = OPEN_BEFORE + u64::from(descriptor);
                let key = u64::from(*process) << 32 | u64::from(descriptor);
                maps::put(&maps.l7_connections, "l7_connections", &key, &number)?;
            }
        }
        if let Err(error) = self.link(processes) {
            links::close(&mut self.links);
            return Err(error);
        }
        Ok(())
    }

    fn link(&mut self, processes: &[(u32, ServerFunctions)]) -> Result<()> {
        let programs = &self.skeleton.progs;
        // Exits before entries, so that no call is begun that is not ended.
        for (program, call) in [
            (&programs.l7_exit_call, "exit_read"),
            (&programs.l7_exit_call, "exit_write"),
            (&programs.l7_enter_close, "enter_close"),
            (&programs.l7_exit_accept, "exit_accept4"),
            (&programs.l7_enter_write, "enter_write"),
            (&programs.l7_enter_read, "enter_read"),
        ] {
            let link = tracepoint(program, &format!("syscalls:sys_{call}"))?;
            self.links.push(link);
        }
        for (process, places) in processes {
            if self.watch.goroutines {
                let status = [(places.status.offset, 0)];
                let link = uprobes(&programs.l7_goroutine, *process, &status)?;
                self.links.push(link);
            }
            if self.watch.tls == Some(Space::Kernel) {
                let (read, write) = (&places.read, &places.write);
                let returns = read.returns.iter().chain(&write.returns);
                let returns: Vec<_> = returns.map(|offset| (*offset, 0)).collect();
                let entries = [
                    (read.offset, types::l7_kind::L7_READ),
                    (write.offset, types::l7_kind::L7_WRITE),
                    (places.close.offset, types::l7_kind::L7_CLOSE),
                ]
                .map(|(offset, kind)| (offset, kind.0.into()));
                let link = uprobes(&programs.l7_tls_return, *process, &returns)?;
                self.links.push(link);
                let link = uprobes(&programs.l7_tls_enter, *process, &entries)?;
                self.links.push(link);
            }
        }
        Ok(())
    }

    /// Reads the calls that are there.
    pub(super) fn take(&self) -> Result<()> {
        self.ring
            .consume()
            .map_err(map_failed("l7_events", "reading the ring buffer"))
    }

    /// Waits a while for connections accepted meanwhile to close.
    pub(super) fn wait_for_closes(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL && self.serves() {
            sleep(LOOK);
            self.take()?;
        }
        Ok(())
    }

    /// Detaches them, reads the remaining events, and returns the counts since they were attached.
    pub(super) fn detach(&mut self) -> Result<L7Counts> {
        links::close(&mut self.links);
        self.take()?;
        let now = self.counted()?;
        Ok(L7Counts {
            lost: now.lost - self.before.lost,
            switches: now.switches - self.before.switches,
        })
    }

    /// Returns true if a connection is open that was accepted since they were attached.
    fn serves(&self) -> bool {
        let connections = &self.skeleton.maps.l7_connections;
        connections.keys().any(|key| {
            let number = connections.lookup(&key, MapFlags::ANY).ok().flatten();
            let number = number.and_then(|number| plain::read::<u64>(&number));
            number.is_some_and(|number| number < OPEN_BEFORE)
        })
    }

    fn counted(&self) -> Result<L7Counts> {
        let mut all = L7Counts::default();
        for count in maps::of_cpus(&self.skeleton.maps.l7_counts, "l7_counts")? {
            add_counts(&mut all, &count);
        }
        let programs = self.skeleton.object().progs_mut();
        for program in programs.filter(|program| program.autoload()) {
            all.lost += RunStats::read(&program)?.recursion_misses;
        }
        Ok(all)
    }
}

/// Returns true if a program is needed for what is watched.
fn wanted(program: &str, watch: L7Watch) -> bool {
    match program {
        "l7_tls_enter" | "l7_tls_return" => watch.tls == Some(Space::Kernel),
        "l7_goroutine" => watch.goroutines,
        _ => true,
    }
}

/// Attaches a program to places in the program of a process, each with a cookie.
fn uprobes(program: &ProgramMut<'_>, process: u32, places: &[(usize, u64)]) -> Result<Link> {
    let file = format!("/proc/{process}/exe");
    let options = UprobeMultiOpts {
        offsets: places.iter().map(|(offset, _)| *offset).collect(),
        cookies: places.iter().map(|(_, cookie)| *cookie).collect(),
        ..Default::default()
    };
    let link = program.attach_uprobe_multi_with_opts(process.cast_signed(), file, "", options);
    link.map_err(failed(
        format!("process {process}"),
        "attaching uprobes to its program",
    ))
}

/// The descriptors of a process that are sockets.
fn sockets(process: u32) -> Vec<u32> {
    let folder = fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"));
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let is_one = target.as_os_str().as_bytes().starts_with(b"socket:");
        is_one.then(|| entry.file_name().to_str()?.parse().ok())?
    };
    folder
        .into_iter()
        .flatten()
        .filter_map(|entry| socket(entry.ok()?))
        .collect()
}
