//! `program`: what does a person's own program cost per run, and what else does it cost?
//!
//! Cases come from the command line: each program on each packet, of one version of its object or of two that are
//! compared. The head of `program.bpf.h` states what the number includes and what it excludes. [`bpfcost_bpf::program`]
//! describes how a program is put into a loop, and what undoes each run.

mod epoch;
mod expected;
mod hot;
mod loaded;
pub(super) mod loader;
mod maps;
mod proof;
mod work;

use super::needs::needs;
use bpfcost_model::Need;
use serde::Deserialize as _;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use anyhow::{Context, Result};
use bpfcost_bpf::{
    Error, current_cpu,
    program::{Body, Change, LoopForm, NativeProgram, ObjectFile, ProgramKind, Restore, Spliced},
};

pub(super) use self::epoch::secondary;
use self::{
    epoch::ProgramEpoch,
    work::{Part, Work},
};
use crate::builtin::timed::{self, TimedEpoch};
use bpfcost_model::{Case, Description, Experiment, LoadedEpoch, Overhead, Pair, Setup, Subject};
use bpfcost_pages::program::OLD;
use bpfcost_program::{InstructionTracer, OwnPrograms};

/// The experiment.
#[derive(Debug)]
pub struct Programs {
    subject: OwnPrograms,
    /// The type and the section of each program.
    kinds: BTreeMap<String, (ProgramKind, String)>,
    /// The programs that run in windows, as one of the objects needs it.
    in_windows: BTreeSet<String>,
    /// Reasons why programs cannot run here, by object and program name; each is determined once.
    refusals: RefCell<BTreeMap<(usize, String), Option<String>>>,
    /// Tracer of the programs' instructions, if tracing is wanted and possible.
    tracer: Option<Rc<dyn InstructionTracer>>,
}

impl Programs {
    /// The programs that a plan is for.
    pub fn data_of(subject: &Subject) -> Result<Option<OwnPrograms>> {
        match subject {
            Subject::OwnPrograms(programs) => Ok(Some(OwnPrograms::deserialize(programs)?)),
            _ => Ok(None),
        }
    }

    /// Opens the objects, which needs no privilege. A program that they lack, or that can't be run in a loop, is an
    /// error.
    pub fn new(subject: OwnPrograms) -> Result<Self, Error> {
        let mut kinds = BTreeMap::new();
        let mut in_windows = BTreeSet::new();
        for object in &subject.objects {
            for name in &subject.programs {
                let entry = object.program(name)?;
                if entry.form == LoopForm::Windows {
                    in_windows.insert(name.clone());
                }
                let wrong = |words| Error::UserObject {
                    path: object.path().to_owned(),
                    words,
                    is_input: true,
                };
                if let Some(effects) = entry.forbidden(&subject.settings) {
                    return Err(wrong(effects));
                }
                let kind = entry.kind.map_err(wrong)?;
                kinds.entry(name.clone()).or_insert((kind, entry.section));
            }
        }
        Ok(Programs {
            subject,
            kinds,
            in_windows,
            refusals: RefCell::default(),
            tracer: None,
        })
    }

    /// The same, with what traces instructions.
    pub fn with_tracer(self, tracer: Rc<dyn InstructionTracer>) -> Self {
        Programs {
            tracer: Some(tracer),
            ..self
        }
    }

    /// Loads the program of a work, and has its maps filled.
    fn native(&self, work: &Work) -> Result<NativeProgram> {
        let object = &self.subject.objects[work.object];
        let native = NativeProgram::load(object, &work.program, &self.subject.settings)?;
        if let Some(setup) = &self.subject.setup {
            loader::run(setup, &native.pin_maps()?)?;
        }
        Ok(native)
    }

    /// Any program of the type of a work that can be run here, or the reason of one that can't: the loop alone has its type,
    /// and nothing else of it.
    fn of_type(&self, work: &Work) -> Result<Result<NativeProgram, String>> {
        let kind = self.kinds[&work.program].0;
        let is_alike = |(program, (other, _)): &(&String, &(ProgramKind, String))| {
            *other == kind && self.form(program) == LoopForm::Spliced
        };
        let alike = self.kinds.iter().filter(is_alike);
        let mut why = String::new();
        for (program, _) in alike {
            let other = Work {
                program: program.clone(),
                part: Part::Program,
                ..work.clone()
            };
            match self.refusal(&other) {
                Ok(None) => return Ok(Ok(self.native(&other)?)),
                Ok(Some(reason)) => why = reason,
                Err(error) => why = error.to_string(),
            }
        }
        Ok(Err(why))
    }

    /// Returns why this kernel rejects a program, alone or in a loop, or cannot run it; `None` if it can.
    fn refusal(&self, work: &Work) -> Result<Option<String>> {
        let form = self.form(&work.program);
        if work.part == Part::Empty && form == LoopForm::Spliced {
            return Ok(self.of_type(work)?.err());
        }
        let key = (work.object, work.program.clone());
        if let Some(known) = self.refusals.borrow().get(&key) {
            return Ok(known.clone());
        }
        // The largest of what a run may need.
        let largest = Change {
            restore: Restore::All { tail: false },
            window: u32::from(form == LoopForm::Windows),
            ..Change::NOTHING
        };
        let packet = &self.subject.inputs[work.inputs[0]].bytes;
        let tried = || -> Result<()> {
            let native = self.native(work)?;
            let oracle = native.oracle(current_cpu(), packet)?;
            if form == LoopForm::Windows {
                // So many tail calls may be too many.
                native.change(form, current_cpu(), packet, &oracle)?;
            }
            Spliced::load(&native, Body::Program, &largest)?;
            Ok(())
        };
        let refusal = match tried().map_err(anyhow::Error::downcast) {
            Ok(()) => None,
            Err(Ok(error @ Error::UserObject { is_input: true, .. })) => return Err(error.into()),
            Err(Ok(error)) => Some(error.to_string()),
            // Errors of other origin, the loader for example, are not the kernel's decision.
            Err(Err(error)) => return Err(error),
        };
        self.refusals.borrow_mut().insert(key, refusal.clone());
        Ok(refusal)
    }
}

impl Experiment for Programs {
    fn description(&self) -> Description {
        let factors = [
            ("program", "the program, by the name of its function"),
            ("packet", "the packet or context that it is run on"),
            ("version", "the object: new, or old where two are compared"),
            ("given", "a digest of the packet, of --set and of --map"),
        ];
        Description {
            subject: Subject::own_programs(&self.subject),
            most_cpus: Some(1),
            // The program that fills the maps.
            host_files: self.subject.setup.is_some(),
            traces: self.subject.hot_spots,
            overhead: Overhead {
                // Each program is verified three times.
                load_s: 0.1 * self.kinds.len() as f64 + 0.01 * self.works().len() as f64,
                trial_s: 0.002,
                // The warm-up, the batch, and the one in which each run is undone twice.
                batches: 2.2,
            },
            ..Description::new("program", "a program of your own", &factors)
        }
    }

    fn cases(&self) -> Vec<Case> {
        self.works().into_iter().map(|work| work.case).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        if self.subject.objects.len() < 2 {
            return Vec::new();
        }
        let of_program = |work: &Work| work.part == Part::Program && work.object == 0;
        let works = self.works().into_iter().filter(of_program);
        works
            .map(|work| Pair {
                baseline: format!("{}/{OLD}", work.case.name),
                about: format!("{}: new against old", work.case.name),
                case: work.case.name,
            })
            .collect()
    }

    fn set(&mut self, variable: &str, value: &str) -> Result<()> {
        let setting = setting(&self.subject.objects, variable, value)?;
        self.subject.settings.variables.push(setting);
        Ok(())
    }

    fn needs(&self, _: &Case) -> Vec<Need> {
        needs(timed::NEEDS)
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        match self.missing(&self.needs(case))? {
            Some(lacking) => Ok(Some(lacking)),
            None => self.refusal(&self.named(case)?),
        }
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        TimedEpoch::load(setup, || ProgramEpoch::load(self, setup))
    }
}

/// A variable of all these objects, and the value that it gets.
pub(super) fn setting(
    objects: &[ObjectFile],
    variable: &str,
    value: &str,
) -> Result<(String, u64)> {
    let value = number(value).with_context(|| {
        format!("{value} is not a whole number\n  Write it as C does: 300, -1, 0x12c")
    })?;
    for object in objects {
        object.check_variable(variable, value)?;
    }
    Ok((variable.to_owned(), value))
}

/// A number as C writes it, or a truth value; a negative one in two's complement.
fn number(text: &str) -> Option<u64> {
    match (text, text.strip_prefix("0x")) {
        ("true", _) => Some(1),
        ("false", _) => Some(0),
        (_, Some(digits)) => u64::from_str_radix(digits, 16).ok(),
        _ => text
            .parse()
            .ok()
            .or_else(|| text.parse().ok().map(i64::cast_unsigned)),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;
    use bpfcost_model::MIX;
    use bpfcost_model::Role;
    use bpfcost_program::Input;

    fn programs(objects: usize) -> Programs {
        let input = |name: &str| Input {
            name: name.to_owned(),
            bytes: vec![0; 64],
            ..Input::default()
        };
        let kind = |name: &str, kind| (name.to_owned(), (kind, "section".to_owned()));
        Programs {
            subject: OwnPrograms {
                objects: vec![ObjectFile::new(Path::new("x.bpf.o"), Vec::new()); objects],
                programs: vec!["a".to_owned(), "b".to_owned(), "c".to_owned()],
                inputs: vec![input("udp"), input("tcp")],
                ..OwnPrograms::default()
            },
            kinds: BTreeMap::from([
                kind("a", ProgramKind::Xdp),
                kind("b", ProgramKind::Tc),
                kind("c", ProgramKind::Xdp),
            ]),
            in_windows: BTreeSet::new(),
            refusals: RefCell::default(),
            tracer: None,
        }
    }

    #[test]
    fn each_case_has_its_floor_and_each_type_its_loop() {
        let experiment = programs(1);
        let cases = experiment.cases();
        let names: BTreeSet<&str> = cases.iter().map(|case| &*case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert_eq!(cases.len(), 6 + 6 + 2);
        for case in &cases {
            let floor = case.floor.as_deref();
            assert!(floor.is_none_or(|floor| names.contains(floor)), "{case:?}");
        }
        let floor = |name: &str| {
            let case = cases.iter().find(|case| case.name == name);
            case.expect(name).floor.clone().expect("a floor")
        };
        assert_eq!(floor("b/tcp"), "floor/b/tcp");
        assert_eq!(floor("floor/b/tcp"), "floor/none/tc");
        assert_eq!(floor("floor/c/udp"), "floor/none/xdp");
        assert!(experiment.pairs().is_empty());
    }

    /// The first of a type need not be one that the loop alone can be made of.
    #[test]
    fn programs_in_windows_have_windows_of_their_own() {
        let mut experiment = programs(1);
        experiment.in_windows.insert("a".to_owned());
        let cases = experiment.cases();
        assert_eq!(cases.len(), 6 + 6 + 2 + 2);
        let case = |name: &str| cases.iter().find(|case| case.name == name).expect(name);
        let floor = |name: &str| case(name).floor.clone().expect("a floor");
        assert_eq!(floor("floor/a/tcp"), "floor/none/a/tcp");
        assert_eq!(case("floor/none/a/tcp").floor, None);
        assert_eq!(floor("floor/c/tcp"), "floor/none/xdp");
        let spliced = programs(1).cases();
        let before = spliced.iter().find(|case| case.name == "a/tcp");
        let given = |case: &Case| case.factors["given"].clone();
        assert_ne!(before.map(given), Some(given(case("a/tcp"))));
        assert!(
            experiment
                .mixed("a")
                .is_err_and(|why| why.contains("windows"))
        );
    }

    #[test]
    fn packets_take_turns_in_a_case_of_their_own() {
        let mut experiment = programs(2);
        experiment.subject.mix = true;
        let cases = experiment.cases();
        let mixed = |case: &&Case| case.factors["packet"] == MIX && case.role == Role::Case;
        let mixed: Vec<&Case> = cases.iter().filter(mixed).collect();
        assert_eq!(mixed.len(), 6);
        assert_eq!(mixed[1].name, "a/mix/old");
        assert_eq!(mixed[1].floor.as_deref(), Some("floor/a/mix/old"));
        assert!(cases.iter().any(|case| case.name == "floor/a/mix/old"));
        assert_ne!(mixed[0].factors["given"], cases[0].factors["given"]);
        assert_eq!(experiment.unmixed(), None);
        // The second packet has another protocol: no skb can have both.
        experiment.subject.inputs[1].bytes[12] = 8;
        assert_eq!(experiment.mixed("a"), Ok(vec![0, 1]));
        assert!(experiment.mixed("b").is_err());
        experiment.subject.inputs.pop();
        assert!(
            experiment
                .unmixed()
                .is_some_and(|why| why.contains("--input"))
        );
    }

    #[test]
    fn values_are_numbers_of_c() {
        assert_eq!(number("300"), Some(300));
        assert_eq!(number("0x12c"), Some(300));
        assert_eq!(number("-1"), Some(u64::MAX));
        assert_eq!(number("true"), Some(1));
        assert_eq!(number("ten"), None);
    }

    #[test]
    fn two_versions_are_pairs() {
        let experiment = programs(2);
        let pairs = experiment.pairs();
        assert_eq!(pairs.len(), 6);
        let names: BTreeSet<String> = experiment.cases().into_iter().map(|one| one.name).collect();
        for pair in &pairs {
            assert_eq!(pair.baseline, format!("{}/old", pair.case));
            assert!(names.contains(&pair.case) && names.contains(&pair.baseline));
        }
    }
}
