//! A user's BPF object: its programs are loaded unchanged, and attached where their sections say.
//!
//! libbpf attaches by section names. Tracepoints are attached here, because libbpf finds them only if tracefs is
//! mounted.

use std::{
    fs,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    time::Duration,
};

use bpfcost_uprobe::object::{Defect, is_big_endian, keep_private};
use libbpf_rs::{Link, Object, ObjectBuilder, Program, ProgramMut};

use super::{
    Attach,
    buffers::{BufferCounts, Buffers},
    kernel,
};
use crate::{
    error::{Error, Result, failed},
    links,
    object::{last_log, listen},
};

/// Beginnings of the sections of tracepoints.
const TRACEPOINTS: [&str; 2] = ["tracepoint/", "tp/"];

/// A user's BPF object, loaded. Dropping it detaches and unloads it.
#[derive(Debug)]
pub struct UserObject {
    path: PathBuf,
    /// Before the object, whose programs they hold.
    links: Vec<Link>,
    buffers: Option<Buffers>,
    object: Object,
}

impl UserObject {
    /// Loads an object, or one program of it alone.
    pub fn load(path: &Path, only: Option<&str>) -> Result<Self> {
        let refused = |words: String| refused(path, words);
        let wrong = |words: String| wrong(path, words);
        let bytes = fs::read(path).map_err(|error| wrong(format!("cannot read it: {error}")))?;
        if is_big_endian(&bytes) {
            return Err(wrong(Defect::BigEndian.to_string()));
        }
        listen();
        let mut object = ObjectBuilder::default().open_file(path).map_err(|_| {
            let log = last_log();
            wrong(format!("{}\n{log}", Defect::find(&bytes, &log)))
        })?;
        let names: Vec<String> = object.progs().map(|program| name(program.name())).collect();
        match only {
            None if names.is_empty() => {
                return Err(wrong("there is no program in it".to_owned()));
            }
            Some(only) if !names.iter().any(|name| name == only) => {
                return Err(wrong(format!(
                    "there is no program {only} in it\n  Its programs: {}",
                    names.join(", ")
                )));
            }
            _ => {}
        }
        if let Some(only) = only {
            for mut program in object.progs_mut() {
                let wanted = name(program.name()) == only;
                program.set_autoload(wanted);
            }
        }
        keep_private(&mut object);
        let object = object.load().map_err(|source| {
            refused(format!("the kernel rejected it: {source}\n{}", last_log()))
        })?;
        let buffers = Buffers::open(&object)
            .map_err(|source| refused(format!("cannot read its buffers: {source}")))?;
        Ok(UserObject {
            path: path.to_owned(),
            links: Vec::new(),
            buffers,
            object,
        })
    }

    /// Returns true if the object has buffers that have to be read.
    pub fn has_buffers(&self) -> bool {
        self.buffers.is_some()
    }

    /// Takes what is in its buffers, and waits for more, for about so long.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        match &self.buffers {
            Some(buffers) => buffers.wait(timeout).map_err(|error| self.unread(&error)),
            None => Ok(()),
        }
    }

    /// Takes what is in its buffers; all that was taken since it was loaded.
    pub fn take(&self) -> Result<BufferCounts> {
        match &self.buffers {
            Some(buffers) => buffers.take().map_err(|error| self.unread(&error)),
            None => Ok(BufferCounts::default()),
        }
    }

    fn unread(&self, source: &libbpf_rs::Error) -> Error {
        refused(&self.path, format!("cannot read its buffers: {source}"))
    }

    /// Attaches all that was loaded. As in libbpf's skeletons, programs that are not attached by their
    /// section (those that others call) are left alone, unless all are such.
    pub fn attach(&mut self) -> Result<()> {
        listen();
        let mut left = Vec::new();
        let mut links = Vec::new();
        for program in self.object.progs_mut().filter(|program| program.autoload()) {
            let section = name(program.section());
            match attached(&program, &section) {
                Ok(Some(link)) => links.push(link),
                Ok(None) => left.push(section),
                Err(words) => {
                    let program = name(program.name());
                    let words =
                        format!("{program} cannot be attached by its section {section}: {words}");
                    return Err(refused(&self.path, words));
                }
            }
        }
        if links.is_empty() {
            let words = format!(
                "none of its sections says where to attach ({})\n  Use sections such as \
                 tracepoint/…, kprobe/…, uprobe/FILE:FUNCTION, fentry/…, or give a command that \
                 loads and attaches it",
                left.join(", ")
            );
            return Err(wrong(&self.path, words));
        }
        self.links = links;
        Ok(())
    }

    /// Detaches all that was attached.
    pub fn detach(&mut self) {
        links::close(&mut self.links);
    }

    /// The kernel's numbers of its programs.
    pub fn ids(&self) -> Result<Vec<u32>> {
        let loaded = self.object.progs().filter(|program| program.autoload());
        loaded
            .map(|program| {
                Program::id_from_fd(program.as_fd()).map_err(failed(
                    self.path.display().to_string(),
                    "asking for the number of a program",
                ))
            })
            .collect()
    }
}

/// The kernel does not take it, or has no place for it.
fn refused(path: &Path, words: String) -> Error {
    Error::UserObject {
        path: path.to_owned(),
        words,
        is_input: false,
    }
}

/// Makes the error of an object that is wrong on every kernel.
fn wrong(path: &Path, words: String) -> Error {
    Error::UserObject {
        path: path.to_owned(),
        words,
        is_input: true,
    }
}

/// Attaches one program where its section says; `None` where that says nothing of it, and the reason where it
/// can't be.
fn attached(program: &ProgramMut<'_>, section: &str) -> std::result::Result<Option<Link>, String> {
    let mut prefixes = TRACEPOINTS.iter();
    let Some(event) = prefixes.find_map(|prefix| section.strip_prefix(prefix)) else {
        return match program.attach() {
            Ok(link) => Ok(Some(link)),
            Err(error) if unattachable(&error) => Ok(None),
            Err(error) => Err(format!("{error:#}\n{}", last_log())),
        };
    };
    let event = kernel::open_tracepoint(Attach::Tracepoint, &event.replacen('/', ":", 1));
    let event = event.map_err(|error| error.to_string())?;
    kernel::perf(program, event)
        .map(Some)
        .map_err(|error| format!("{error:#}"))
}

/// Returns true if libbpf has no automatic way to attach it. libbpf-rs reports the cause only as text.
fn unattachable(error: &libbpf_rs::Error) -> bool {
    let cause = format!("(os error {})", libc::EOPNOTSUPP);
    format!("{error:#}").contains(&cause)
}

fn name(text: &std::ffi::OsStr) -> String {
    text.to_string_lossy().into_owned()
}
