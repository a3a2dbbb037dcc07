//! Calls that processes see themselves: Go's crypto/tls, by probes in user space with the programs of the kernel's
//! uprobes.

use std::{
    collections::{HashMap, hash_map::Entry},
    thread::sleep,
    time::{Duration, Instant},
};

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Attached, Error, Place, Probes},
    process::{Function, Image},
};

use super::{
    GoFunction, L7Call, L7Counts, ServerFunctions, add_counts, call, kernel::FAREWELL, namespace,
};
use crate::{
    error::Result,
    object::{listen, object_bytes},
    plain,
    skel::l7::types,
};

const ENTER: &str = "l7_tls_enter";
const RETURN: &str = "l7_tls_return";
const EVENTS: &str = "l7_events";

/// Without an event for so long, the clients that have gone are served.
const SILENCE: Duration = Duration::from_millis(20);
/// Pause between two looks meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// Programs in processes. Dropping them detaches them.
pub(super) struct UserL7 {
    attached: Vec<Attached>,
    /// The functions of each process, with what their entry program gets as its cookie.
    functions: HashMap<u32, Vec<(Function, u64)>>,
    before: L7Counts,
    take: Box<dyn FnMut(&L7Call<'_>)>,
    probes: Probes,
}

impl UserL7 {
    /// Loads the programs; `take` is given every call, in [`Self::take`].
    pub(super) fn load(take: impl FnMut(&L7Call<'_>) + 'static) -> Result<Self> {
        listen();
        let (device, inode) = namespace().unwrap_or_default();
        let (device, inode) = (device.to_ne_bytes(), inode.to_ne_bytes());
        let choice = Choice {
            programs: &[ENTER, RETURN],
            constants: &[("namespace_device", &device), ("namespace_inode", &inode)],
        };
        let object = LoadedObject::from_bytes("l7", object_bytes("l7")?, &choice);
        Ok(UserL7 {
            attached: Vec::new(),
            functions: HashMap::new(),
            before: L7Counts::default(),
            take: Box::new(take),
            probes: Probes::new(object.map_err(Error::from)?)?,
        })
    }

    /// Attaches them to the functions of these processes' programs.
    pub(super) fn attach(&mut self, processes: &[(u32, ServerFunctions)]) -> Result<()> {
        self.release()?;
        let calls = self.probes.map("l7_tls_calls")?;
        for (key, _) in calls.entries()? {
            calls.delete(&key)?;
        }
        // What is left of the time before is no call of now.
        self.take()?;
        self.before = self.counted()?;
        for (process, functions) in processes {
            let attached = self.attach_one(*process, functions);
            if attached.is_err() {
                self.release()?;
            }
            attached?;
        }
        Ok(())
    }

    fn attach_one(&mut self, process: u32, functions: &ServerFunctions) -> Result<()> {
        let pid = process.cast_signed();
        let functions = match self.functions.entry(process) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(watched(pid, functions)?),
        };
        let mut places = Vec::new();
        for (function, cookie) in functions.iter() {
            let place = |program, at| Place {
                program,
                function,
                at,
                cookie: *cookie,
            };
            places.push(place(ENTER, At::Entry));
            if *cookie != types::l7_kind::L7_CLOSE.0.into() {
                places.push(place(RETURN, At::Return));
            }
        }
        self.attached.push(self.probes.attach(pid, &places)?);
        Ok(())
    }

    /// Reads the calls that are there. Returns how many.
    pub(super) fn take(&mut self) -> Result<u64> {
        let take = &mut self.take;
        let mut taken = 0;
        self.probes.consume(EVENTS, |_, bytes| {
            if let Some(event) = plain::read::<types::l7_event>(bytes) {
                take(&call(&event));
                taken += 1;
            }
        })?;
        Ok(taken)
    }

    /// Waits a while until no more calls come.
    pub(super) fn wait_for_silence(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut last = begun;
        while last.elapsed() < SILENCE && begun.elapsed() < FAREWELL {
            sleep(LOOK);
            if self.take()? > 0 {
                last = Instant::now();
            }
        }
        Ok(())
    }

    /// Detaches them, reads the remaining events, and returns the counts since they were attached.
    pub(super) fn detach(&mut self) -> Result<L7Counts> {
        let missed = self.release()?;
        self.take()?;
        let now = self.counted()?;
        Ok(L7Counts {
            lost: now.lost - self.before.lost + missed,
            switches: now.switches - self.before.switches,
        })
    }

    /// Returns how many calls had no program run.
    fn release(&mut self) -> Result<u64> {
        let mut missed = 0;
        for attached in self.attached.drain(..) {
            let hits = self.probes.detach(attached)?;
            missed += hits.entry.missed + hits.returns.missed;
        }
        Ok(missed)
    }

    fn counted(&self) -> Result<L7Counts> {
        let mut all = L7Counts::default();
        for count in self.probes.map("l7_counts")?.of_threads(0)? {
            add_counts(&mut all, &count);
        }
        Ok(all)
    }
}

impl Drop for UserL7 {
    fn drop(&mut self) {
        // A process that is gone has nothing to restore.
        let _ = self.release();
    }
}

/// The functions of a process, with what their entry program gets as its cookie.
fn watched(pid: i32, functions: &ServerFunctions) -> Result<Vec<(Function, u64)>> {
    let image = Image::of_program(pid).map_err(Error::from)?;
    let find = |(function, kind): (&GoFunction, types::l7_kind)| {
        let found = image.go_function(&function.name, function.offset, function.bytes);
        Ok((found.map_err(Error::from)?, kind.0.into()))
    };
    [
        (&functions.read, types::l7_kind::L7_READ),
        (&functions.write, types::l7_kind::L7_WRITE),
        (&functions.close, types::l7_kind::L7_CLOSE),
    ]
    .into_iter()
    .map(find)
    .collect()
}
