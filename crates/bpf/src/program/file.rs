//! A person's object file, and which programs are in it. Opening it needs no privilege.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bpfcost_uprobe::object::{
    self, Defect, ReachedCode, is_big_endian, open_object, programs_in_slots, reached_code,
    with_global_programs, with_known_pins,
};
use libbpf_rs::{ErrorKind, OpenObject, OpenProgram, ProgramType};

use super::{
    effects,
    form::{self, LoopForm},
    kind::{ProgramKind, program_type},
    settings::Settings,
};
use crate::error::{Error, Result, failed};

/// An object file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFile {
    path: PathBuf,
    bytes: Vec<u8>,
    /// The type of programs whose section names none.
    unnamed: Option<ProgramKind>,
}

/// A program of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramEntry {
    /// The name of its function.
    pub name: String,
    /// ELF section, such as `xdp.frags`.
    pub section: String,
    /// True if libbpf tells the type by the section.
    pub is_named: bool,
    /// Program type, or why it can't be run in a loop and what measures it instead.
    pub kind: std::result::Result<ProgramKind, String>,
    /// Form of the loop.
    pub form: LoopForm,
    /// Effects outside of maps and packets, each in a few words.
    pub effects: Vec<&'static str>,
}

impl ProgramEntry {
    /// The reason not to run it, where these settings allow no effects.
    pub fn forbidden(&self, settings: &Settings) -> Option<String> {
        effects::forbidden(&self.name, &self.effects, settings)
    }
}

impl ObjectFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path);
        let bytes = bytes.map_err(|error| wrong(path, format!("cannot read it: {error}")))?;
        Ok(ObjectFile::new(path, bytes))
    }

    /// One that was read before.
    pub fn new(path: &Path, bytes: Vec<u8>) -> Self {
        ObjectFile {
            path: path.to_owned(),
            bytes: with_known_pins(with_global_programs(bytes)),
            unnamed: None,
        }
    }

    /// The same, with a type for programs whose section names none.
    pub fn with_type(self, unnamed: Option<ProgramKind>) -> Self {
        ObjectFile { unnamed, ..self }
    }

    /// The type of programs whose section names none.
    pub fn type_of_unnamed(&self) -> Option<ProgramKind> {
        self.unnamed
    }

    /// Path that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Contents of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The programs, in their order in the file; none is an error.
    pub fn programs(&self) -> Result<Vec<ProgramEntry>> {
        let object = self.opened()?;
        let slots = programs_in_slots(&self.bytes)
            .map_err(failed(self.name(), "reading its arrays of programs"))?;
        let programs: Vec<ProgramEntry> = object
            .progs()
            .map(|program| self.entry(&object, &program, &slots))
            .collect();
        if programs.is_empty() {
            return Err(wrong(&self.path, "there is no program in it".to_owned()));
        }
        Ok(programs)
    }

    /// A program; `slots` are those that the object's source puts into arrays of programs.
    fn entry(
        &self,
        object: &OpenObject,
        program: &OpenProgram<'_>,
        slots: &[String],
    ) -> ProgramEntry {
        let name = program.name().to_string_lossy().into_owned();
        let section = program.section().to_string_lossy().into_owned();
        let kind = self.kind(program);
        let ReachedCode { functions, externs } = reached_code(&self.bytes, &name);
        let functions = form::instructions(&functions);
        let form = kind.as_ref().map_or(LoopForm::default(), |kind| {
            LoopForm::new(*kind, program.insns(), &functions)
        });
        let mut instructions = program.insns().to_vec();
        instructions.extend(functions);
        let own = effects::unspliceable(&instructions, &externs);
        let mut called = object.progs().filter(|other| {
            let name = other.name();
            form == LoopForm::Windows && slots.iter().any(|slot| name == slot.as_str())
        });
        let of_called = || {
            called.find_map(|other| {
                let ReachedCode { functions, externs } =
                    reached_code(&self.bytes, &other.name().to_string_lossy());
                let mut instructions = other.insns().to_vec();
                instructions.extend(form::instructions(&functions));
                effects::unspliceable(&instructions, &externs)
            })
        };
        let kind = match own.or_else(of_called) {
            Some(why) => kind.and(Err(format!("{name} can't be run in a loop: {why}"))),
            None => kind,
        };
        ProgramEntry {
            effects: effects::effects(&instructions),
            is_named: program_type(program.prog_type(), &section) != ProgramType::Unspec,
            name,
            section,
            kind,
            form,
        }
    }

    /// The type of a program, or why it can't be run in a loop.
    pub(crate) fn kind(
        &self,
        program: &OpenProgram<'_>,
    ) -> std::result::Result<ProgramKind, String> {
        ProgramKind::from_section(
            program.prog_type(),
            &self.name(),
            &program.name().to_string_lossy(),
            &program.section().to_string_lossy(),
            self.unnamed,
        )
    }

    /// Opens it without loading.
    pub(crate) fn opened(&self) -> Result<OpenObject> {
        if is_big_endian(&self.bytes) {
            return Err(wrong(&self.path, Defect::BigEndian.to_string()));
        }
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

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The error where it can't be opened or loaded.
    pub(crate) fn unusable(&self, error: object::Error) -> Error {
        let (words, is_input) = match error {
            object::Error::Open { messages, .. } => (
                format!(
                    "{}{}",
                    Defect::find(&self.bytes, &messages),
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
    pub(crate) fn refused(&self, words: impl Into<String>) -> Error {
        Error::UserObject {
            path: self.path.clone(),
            words: words.into(),
            is_input: false,
        }
    }
}

/// The error of what is wrong on every kernel.
pub(crate) fn wrong(path: &Path, words: String) -> Error {
    Error::UserObject {
        path: path.to_owned(),
        words,
        is_input: true,
    }
}

/// Text on lines of its own, indented.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(|line| format!("\n  {line}")).collect()
}
