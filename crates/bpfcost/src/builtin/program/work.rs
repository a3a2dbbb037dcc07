//! The cases of a command line: each program on each packet, and the floors around them.

use anyhow::{Context as _, Result};
use bpfcost_bpf::program::{LoopForm, ProgramKind};

use super::Programs;
use bpfcost_model::MIX;
use bpfcost_model::{Case, Role};
use bpfcost_pages::program::OLD;
use bpfcost_program::Input;

/// The floor of the loop alone, before the name of a type.
const EMPTY: &str = "floor/none";

/// Object, program, packets and part that a case runs.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) case: Case,
    /// The place of its object.
    pub(super) object: usize,
    pub(super) program: String,
    /// The places of its packets: those of several take turns.
    pub(super) inputs: Vec<usize>,
    pub(super) part: Part,
}

/// Which part of a measurement a case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The program.
    Program,
    /// Undoing of the program's changes, around a program that does nothing.
    Floor,
    /// The loop alone.
    Empty,
}

impl Programs {
    pub(super) fn works(&self) -> Vec<Work> {
        let mut works = Vec::new();
        for part in [Part::Program, Part::Floor] {
            for program in &self.subject.programs {
                for object in 0..self.subject.objects.len() {
                    for input in self.inputs(program) {
                        works.push(self.work(part, object, program, &[input]));
                    }
                    if let Ok(inputs) = self.mixed(program)
                        && self.subject.mix
                    {
                        works.push(self.work(part, object, program, &inputs));
                    }
                }
            }
        }
        let mut kinds = Vec::new();
        for (program, (kind, _)) in &self.kinds {
            if self.in_windows.contains(program) {
                // As long as its windows on each packet are.
                let empty = |input| self.work(Part::Empty, 0, program, &[input]);
                works.extend(self.inputs(program).map(empty));
            } else if !kinds.contains(kind) {
                kinds.push(*kind);
                let first = self.inputs(program).next();
                works.extend(first.map(|input| self.work(Part::Empty, 0, program, &[input])));
            }
        }
        works
    }

    /// The places of the inputs that a program takes.
    pub(super) fn inputs(&self, program: &str) -> impl Iterator<Item = usize> {
        let (kind, section) = &self.kinds[program];
        let inputs = self.subject.inputs.iter().enumerate();
        inputs.filter_map(move |(place, input)| {
            input.misfit(*kind, section).is_none().then_some(place)
        })
    }

    /// Returns the form of the loop in which a program runs.
    pub(super) fn form(&self, program: &str) -> LoopForm {
        if self.in_windows.contains(program) {
            LoopForm::Windows
        } else {
            LoopForm::Spliced
        }
    }

    /// The places of the inputs that can take turns for a program, or why they can't.
    pub(super) fn mixed(&self, program: &str) -> Result<Vec<usize>, String> {
        let kind = self.kinds[program].0;
        if !matches!(kind, ProgramKind::Xdp | ProgramKind::Tc) {
            return Err(format!(
                "what {} programs are run on can't be changed between two runs: only packets of XDP and tc programs \
                 can take turns",
                kind.word()
            ));
        }
        if self.form(program) == LoopForm::Windows {
            return Err(format!(
                "{program} makes tail calls, or has a deep stack: it runs in windows, which all begin with one packet"
            ));
        }
        let places: Vec<usize> = self.inputs(program).collect();
        let inputs = places.iter().map(|&place| &self.subject.inputs[place]);
        let mut protocols: Vec<_> = inputs.map(Input::protocol).collect();
        protocols.dedup();
        if places.len() < 2 {
            return Err("it needs at least two packets\n  Name more with --input".to_owned());
        }
        // Programs can't set it, nor can drivers.
        if kind == ProgramKind::Tc && protocols.len() > 1 {
            return Err(
                "an skb keeps the protocol of the first packet: those of tc programs must all have the same one"
                    .to_owned(),
            );
        }
        Ok(places)
    }

    /// Returns the reason if packets should take turns but no program has packets that can; otherwise `None`.
    pub fn unmixed(&self) -> Option<String> {
        let mut programs = self.subject.programs.iter();
        let mixed = |program: &String| self.mixed(program).is_ok();
        if !self.subject.mix || programs.clone().any(mixed) {
            return None;
        }
        programs.find_map(|program| self.mixed(program).err())
    }

    /// Returns the reason if a program has no input that fits it, or an input fits no program; otherwise `None`.
    pub fn misfit(&self) -> Option<String> {
        let inputs = &self.subject.inputs;
        let mut kinds = self.kinds.values();
        let misfit =
            |input: &Input, (kind, section): &(ProgramKind, String)| input.misfit(*kind, section);
        let idle = |input: &&Input| kinds.clone().all(|kind| misfit(input, kind).is_some());
        let without = |(program, _): &(&String, &(ProgramKind, String))| {
            self.inputs(program).next().is_none()
        };
        let input = inputs.iter().find(idle);
        let kind = self.kinds.iter().find(without).map(|(_, kind)| kind);
        match (input, kind.or_else(|| kinds.next())) {
            (Some(input), Some(kind)) => misfit(input, kind),
            (None, Some(kind)) if self.kinds.iter().any(|one| without(&one)) => {
                inputs.first().and_then(|input| misfit(input, kind))
            }
            _ => None,
        }
    }

    fn work(&self, part: Part, object: usize, program: &str, inputs: &[usize]) -> Work {
        let (kind, section) = &self.kinds[program];
        let (packet, packet_about) = match inputs {
            [alone] => {
                let packet = &self.subject.inputs[*alone];
                (packet.name.as_str(), packet.about.clone())
            }
            several => (MIX, format!("{} packets in turn", several.len())),
        };
        let packet_about = match self.subject.settings.context.words(*kind) {
            fields if fields.is_empty() => packet_about,
            fields => format!("{packet_about}, {fields}"),
        };
        let version = if object == 0 { "new" } else { OLD };
        let form = self.form(program);
        let given = self.subject.given(inputs, form);
        let mut name = format!("{program}/{packet}");
        if object > 0 {
            name = format!("{name}/{OLD}");
        }
        let of_case = |name: &str| format!("floor/{name}");
        let empty = match form {
            LoopForm::Spliced => format!("{EMPTY}/{}", kind.word()),
            LoopForm::Windows => format!("{EMPTY}/{program}/{packet}"),
        };
        let (name, role, floor, about) = match part {
            Part::Program => (
                name.clone(),
                Role::Case,
                Some(of_case(&name)),
                format!("{program} ({section}) on {packet_about}"),
            ),
            Part::Floor => (
                of_case(&name),
                Role::Floor,
                Some(empty),
                format!("what undoes a run of {name}, and a program that returns the same"),
            ),
            Part::Empty => (
                empty,
                Role::Floor,
                None,
                match form {
                    LoopForm::Spliced => "the loop, and a program that does nothing".to_owned(),
                    LoopForm::Windows => {
                        format!("windows of {program}, and a program that does nothing")
                    }
                },
            ),
        };
        let factors = [
            ("program", program),
            ("packet", packet),
            ("version", version),
            // The loop alone is given nothing.
            ("given", if part == Part::Empty { "" } else { &given }),
        ];
        let factors = factors.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let case = Case {
            name,
            group: match part {
                Part::Empty => "loop",
                _ => program,
            }
            .to_owned(),
            factors: factors.into(),
            about,
            role,
            floor,
            ..Case::default()
        };
        Work {
            case,
            object,
            program: program.to_owned(),
            inputs: inputs.to_vec(),
            part,
        }
    }

    pub(super) fn named(&self, case: &Case) -> Result<Work> {
        let mut works = self.works().into_iter();
        let work = works.find(|work| work.case.name == case.name);
        work.with_context(|| format!("there is no case {}", case.name))
    }
}
