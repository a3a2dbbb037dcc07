//! A person's object file, and which programs are in it. Opening it needs no privilege.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bpfcost_uprobe::object::{self, functions, open_object};
use libbpf_rs::{ErrorKind, OpenObject};

use super::{
    form::{self, LoopForm},
    kind::ProgramKind,
};
use crate::error::{Error, Result, failed};

/// An object file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// A program of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramEntry {
    /// The name of its function.
    pub name: String,
    /// Its section, such as `xdp.frags`.
    pub section: String,
    /// Its type, or why it can't be run in a loop and what measures it instead.
    pub kind: std::result::Result<ProgramKind, String>,
    /// How it is run in a loop.
    pub form: LoopForm,
}

impl ObjectFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path);
        let bytes = bytes.map_err(|error| wrong(path, format!("cannot read it: {error}")))?;
        Ok(ObjectFile::of(path, bytes))
    }

    /// One that was read before.
    pub fn of(path: &Path, bytes: Vec<u8>) -> Self {
        ObjectFile {
            path: path.to_owned(),
            bytes,
        }
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its programs, in their order in the file; none is an error.
    pub fn programs(&self) -> Result<Vec<ProgramEntry>> {
        let file = self.name();
        let object = self.opened()?;
        let functions = functions(&self.bytes).map_err(failed(&*file, "reading its functions"))?;
        let functions = form::instructions(&functions);
        let entry = |program: libbpf_rs::OpenProgram<'_>| {
            let name = program.name().to_string_lossy().into_owned();
            let kind = ProgramKind::of(program.prog_type(), &file, &name);
            let form = kind.as_ref().map_or(LoopForm::default(), |kind| {
                LoopForm::of(*kind, program.insns(), &functions)
            });
            ProgramEntry {
                kind,
                form,
                section: program.section().to_string_lossy().into_owned(),
                name,
            }
        };
        let programs: Vec<ProgramEntry> = object.progs().map(entry).collect();
        if programs.is_empty() {
            return Err(wrong(&self.path, "there is no program in it".to_owned()));
        }
        Ok(programs)
    }

    /// It is not loaded.
    pub(super) fn opened(&self) -> Result<OpenObject> {
        let object = open_object(&self.name(), &self.bytes, |_| Ok(()));
        object.map_err(|error| self.unusable(error))
    }

    /// The program of a name; that there is none is an error.
    pub fn program(&self, name: &str) -> Result<ProgramEntry> {
        let programs = self.programs()?;
        let names: Vec<&str> = programs.iter().map(|one| one.name.as_str()).collect();
        let words = format!(
            "there is no program {name} in it\n  Its programs: {}",
            names.join(", ")
        );
        let mut programs = programs.into_iter();
        programs
            .find(|one| one.name == name)
            .ok_or_else(|| wrong(&self.path, words))
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Why it can't be opened or loaded.
    pub(super) fn unusable(&self, error: object::Error) -> Error {
        let (words, is_input) = match error {
            object::Error::Open { messages, .. } => (
                format!(
                    "it is not a BPF object\n  Compile one with: clang -O2 -g -target bpf -c NAME.bpf.c{}",
                    lines(&messages)
                ),
                true,
            ),
            object::Error::Rejected { program, log, .. } => (
                format!("the kernel's verifier rejected {program}:{}", lines(&log)),
                false,
            ),
            object::Error::Load {
                source, messages, ..
            } if source.kind() == ErrorKind::OutOfMemory => (
                format!(
                    "the kernel has not enough memory for its maps; make them smaller{}",
                    lines(&messages)
                ),
                false,
            ),
            object::Error::Load {
                source, messages, ..
            } => (
                format!("the kernel rejected it: {source}{}", lines(&messages)),
                false,
            ),
            other => (other.to_string(), false),
        };
        Error::UserObject {
            path: self.path.clone(),
            words,
            is_input,
        }
    }

    /// The kernel does not take it, or can't run it in a loop.
    pub(super) fn refused(&self, words: impl Into<String>) -> Error {
        Error::UserObject {
            path: self.path.clone(),
            words: words.into(),
            is_input: false,
        }
    }
}

/// It is wrong on every kernel.
pub(super) fn wrong(path: &Path, words: String) -> Error {
    Error::UserObject {
        path: path.to_owned(),
        words,
        is_input: true,
    }
}

/// Text on lines of its own, indented.
pub(super) fn lines(text: &str) -> String {
    text.lines().map(|line| format!("\n  {line}")).collect()
}
