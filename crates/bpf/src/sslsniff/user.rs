//! The sniffer by probes in user space: the same programs, in the process itself.

use std::{collections::BTreeMap, path::Path};

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Attached, Place, Probes},
    process::{self, Function, Image},
};

use super::{Capture, READ, READ_EX, SslCounts, SslPayload, WRITE, WRITE_EX, add_counts, record};
use crate::{
    error::Result,
    object::{listen, object_bytes},
};

/// The programs, and where each runs.
const PLACES: &[(&str, At, &[&str])] = &[
    ("sslsniff_enter", At::Entry, &[READ, WRITE]),
    ("sslsniff_enter_ex", At::Entry, &[READ_EX, WRITE_EX]),
    ("sslsniff_read", At::Return, &[READ, READ_EX]),
    ("sslsniff_written", At::Return, &[WRITE, WRITE_EX]),
];

/// Programs in processes. Dropping them detaches them.
pub(super) struct UserSniffer {
    attached: Vec<Attached>,
    /// The functions of each file of each process: no file is read twice.
    functions: BTreeMap<(u32, std::path::PathBuf), Vec<Function>>,
    missed: u64,
    take: Box<dyn FnMut(SslPayload<'_>)>,
    probes: Probes,
}

impl UserSniffer {
    /// Loads the programs; `take` is given every record, in [`Self::take`].
    pub(super) fn load(
        capture: Capture,
        take: impl FnMut(SslPayload<'_>) + 'static,
    ) -> Result<Self> {
        listen();
        let counts_only = u32::from(capture == Capture::Nothing).to_ne_bytes();
        let choice = Choice {
            constants: &[("counts_only", &counts_only)],
            ..Choice::default()
        };
        let object = LoadedObject::from_bytes("sslsniff", object_bytes("sslsniff")?, &choice);
        Ok(UserSniffer {
            attached: Vec::new(),
            functions: BTreeMap::new(),
            missed: 0,
            take: Box::new(take),
            probes: Probes::new(object.map_err(bpfcost_uprobe::probes::Error::from)?)?,
        })
    }

    /// Attaches them to the functions of a file that a process executes. `false`: it has no `SSL_read` or no
    /// `SSL_write` that can be found.
    pub(super) fn attach(&mut self, process: u32, file: &Path) -> Result<bool> {
        let key = (process, file.to_owned());
        if !self.functions.contains_key(&key) {
            let found = functions(process, file).map_err(bpfcost_uprobe::probes::Error::from)?;
            self.functions.insert(key.clone(), found);
        }
        let functions = &self.functions[&key];
        let find = |name: &str| functions.iter().find(|function| function.name == name);
        if find(READ).is_none() || find(WRITE).is_none() {
            return Ok(false);
        }
        let places = PLACES.iter().flat_map(|&(program, at, names)| {
            names.iter().filter_map(move |name| {
                Some(Place {
                    program,
                    function: find(name)?,
                    at,
                    cookie: 0,
                })
            })
        });
        let places: Vec<Place<'_>> = places.collect();
        let attached = self.probes.attach(process.cast_signed(), &places)?;
        self.attached.push(attached);
        Ok(true)
    }

    pub(super) fn detach(&mut self) -> Result<()> {
        for attached in self.attached.drain(..) {
            let hits = self.probes.detach(attached)?;
            self.missed += hits.entry.missed + hits.returns.missed;
        }
        Ok(())
    }

    pub(super) fn take(&mut self) -> Result<()> {
        let take = &mut self.take;
        Ok(self.probes.consume("records", |_, bytes| {
            if let Some(record) = record(bytes) {
                take(record);
            }
        })?)
    }

    /// Calls that began and have not returned.
    pub(super) fn under_way(&self) -> Result<usize> {
        Ok(self.probes.map("calls")?.entries()?.len())
    }

    pub(super) fn counts(&self) -> Result<SslCounts> {
        let mut all = SslCounts {
            missed: self.missed,
            ..SslCounts::default()
        };
        for attached in &self.attached {
            let hits = self.probes.hits(attached);
            all.missed += hits.entry.missed + hits.returns.missed;
        }
        for one in self.probes.map("counts")?.of_threads(0)? {
            add_counts(&mut all, &one);
        }
        Ok(all)
    }
}

impl Drop for UserSniffer {
    fn drop(&mut self) {
        // A process that is gone has nothing to restore.
        let _ = self.detach();
    }
}

/// Those of OpenSSL's functions that a file has.
fn functions(process: u32, file: &Path) -> process::Result<Vec<Function>> {
    let image = Image::of_file(process.cast_signed(), file)?;
    let found = [READ, WRITE, READ_EX, WRITE_EX].map(|name| match image.function(name) {
        Ok(function) => Ok(Some(function)),
        Err(process::Error::NoSymbol { .. }) => Ok(None),
        Err(error) => Err(error),
    });
    let found: process::Result<Vec<Option<Function>>> = found.into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}
