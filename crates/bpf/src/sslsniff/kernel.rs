//! The sniffer by the kernel's uprobes.

use std::path::Path;

use libbpf_rs::{
    ErrorKind, Link, MapCore as _, ProgramAttachType, ProgramMut, RingBuffer, UprobeMultiOpts,
    UprobeOpts,
    skel::{OpenSkel as _, SkelBuilder as _},
};

use super::{Capture, READ, READ_EX, SslCounts, SslPayload, WRITE, WRITE_EX, add_counts, record};
use crate::{
    Feature,
    error::{Result, failed, map_failed},
    links, maps,
    object::OwnedSkeleton,
    skel::sslsniff::{SslsniffSkel, SslsniffSkelBuilder},
};

/// Loaded programs. Dropping them detaches them.
pub(super) struct KernelSniffer {
    /// Dropped first, and what they feed after them.
    links: Vec<Link>,
    /// True where they are attached by `uprobe.multi`.
    multi: bool,
    ring: RingBuffer<'static>,
    skeleton: OwnedSkeleton<SslsniffSkel<'static>>,
}

impl KernelSniffer {
    /// Loads the programs; `take` is given every record, in [`Self::take`].
    pub(super) fn load(
        capture: Capture,
        mut take: impl FnMut(SslPayload<'_>) + 'static,
    ) -> Result<Self> {
        let multi = Feature::UprobeMulti.missing()?.is_none();
        let skeleton = OwnedSkeleton::new("sslsniff", |storage| {
            let mut open = SslsniffSkelBuilder::default().open(storage)?;
            if let Some(chosen) = open.maps.rodata_data.as_deref_mut() {
                chosen.counts_only = u32::from(capture == Capture::Nothing);
            }
            if multi {
                for mut program in open.open_object_mut().progs_mut() {
                    program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
                }
            }
            open.load()
        })?;
        let ring = maps::ring(&skeleton.maps.records, "records", move |bytes| {
            if let Some(record) = record(bytes) {
                take(record);
            }
        })?;
        Ok(KernelSniffer {
            links: Vec::new(),
            multi,
            ring,
            skeleton,
        })
    }

    /// Attaches them to a library, or a program that contains it, for one process. `false`: it has no
    /// `SSL_read` or no `SSL_write` that can be found.
    pub(super) fn attach(&mut self, process: u32, library: &Path) -> Result<bool> {
        let programs = &self.skeleton.progs;
        let at = |program: &ProgramMut<'_>, returns: bool, functions: &[&str]| {
            let link =
                |function: &&str| link(program, self.multi, returns, process, library, function);
            let links: libbpf_rs::Result<Vec<Link>> = functions.iter().map(link).collect();
            match links {
                Ok(links) => Ok(Some(links)),
                // So it says of a file that is not there, too.
                Err(error) if error.kind() == ErrorKind::NotFound && library.exists() => Ok(None),
                Err(source) => {
                    let what = format!("{} of {}", functions.join(", "), library.display());
                    Err(failed(what, "attaching a uprobe")(source))
                }
            }
        };
        let Some(mut links) = at(&programs.sslsniff_enter, false, &[READ, WRITE])? else {
            return Ok(false);
        };
        let (mut reads, mut writes) = (vec![READ], vec![WRITE]);
        if let Some(newer) = at(&programs.sslsniff_enter_ex, false, &[READ_EX, WRITE_EX])? {
            links.extend(newer);
            reads.push(READ_EX);
            writes.push(WRITE_EX);
        }
        links.extend(
            at(&programs.sslsniff_read, true, &reads)?
                .into_iter()
                .flatten(),
        );
        links.extend(
            at(&programs.sslsniff_written, true, &writes)?
                .into_iter()
                .flatten(),
        );
        self.links.append(&mut links);
        Ok(true)
    }

    /// Detaches them from everything.
    pub(super) fn detach(&mut self) {
        links::close(&mut self.links);
    }

    /// Takes the records that are there. They come without waking anybody.
    pub(super) fn take(&self) -> Result<()> {
        self.ring
            .consume()
            .map_err(map_failed("records", "reading the ring buffer"))
    }

    /// Calls that began and have not returned.
    pub(super) fn under_way(&self) -> usize {
        self.skeleton.maps.calls.keys().count()
    }

    /// Returns the counts since they were loaded.
    pub(super) fn counts(&self) -> Result<SslCounts> {
        let mut all = SslCounts::default();
        for one in maps::of_cpus(&self.skeleton.maps.counts, "counts")? {
            add_counts(&mut all, &one);
        }
        Ok(all)
    }
}

/// One link. Those of `uprobe.multi` are let go side by side; others wait for each other.
fn link(
    program: &ProgramMut<'_>,
    multi: bool,
    returns: bool,
    process: u32,
    library: &Path,
    function: &str,
) -> libbpf_rs::Result<Link> {
    let process = process.cast_signed();
    if multi {
        let options = UprobeMultiOpts {
            retprobe: returns,
            ..Default::default()
        };
        // By a pattern, which its name is too: by names, libbpf 1.7 finds none in a stripped library.
        return program.attach_uprobe_multi_with_opts(process, library, function, options);
    }
    let options = UprobeOpts {
        retprobe: returns,
        func_name: Some(function.to_owned()),
        ..Default::default()
    };
    program.attach_uprobe_with_opts(process, library, 0, options)
}
