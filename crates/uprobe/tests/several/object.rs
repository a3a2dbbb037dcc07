//! The programs of an object at the places of `step`.

use super::common::Target;
use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Attached, Place, Probes, Result},
    process::{Function, Image},
};

/// Place at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Entry,
    Return,
    Usdt(&'static str),
}

/// All programs, each with its index as its cookie.
pub(crate) const PLACES: &[(&str, Kind)] = &[
    ("entry_1", Kind::Entry),
    ("entry_2", Kind::Entry),
    ("begun", Kind::Usdt("begun")),
    ("return_1", Kind::Return),
    ("inner_1", Kind::Usdt("inner")),
    ("entry_3", Kind::Entry),
    ("return_2", Kind::Return),
    ("inner_2", Kind::Usdt("inner")),
];

pub(crate) fn open(object: &[u8]) -> Probes {
    Probes::new(LoadedObject::from_bytes("steps", object, &Choice::default()).unwrap()).unwrap()
}

pub(crate) fn step(process: &Target) -> Function {
    let image = Image::of_program(process.pid()).unwrap();
    image.function("step").unwrap()
}

/// Some of [`PLACES`], in the order of the names.
pub(crate) fn some(names: &[&str]) -> Vec<(&'static str, Kind)> {
    let place = |name: &&str| {
        let place = PLACES.iter().find(|(program, _)| program == name);
        *place.expect("the object has it")
    };
    names.iter().map(place).collect()
}

/// Attaches programs; the cookie of each is its index in [`PLACES`].
pub(crate) fn attach(
    probes: &mut Probes,
    process: &Target,
    programs: &[(&'static str, Kind)],
) -> Attached {
    try_attach(probes, process, programs).unwrap()
}

pub(crate) fn try_attach(
    probes: &mut Probes,
    process: &Target,
    programs: &[(&'static str, Kind)],
) -> Result<Attached> {
    let image = Image::of_program(process.pid()).unwrap();
    let function = step(process);
    let mut place = |&(program, kind): &(&'static str, Kind)| {
        let index = PLACES.iter().position(|&(name, _)| name == program);
        let mut cookie = index.unwrap() as u64;
        let at = match kind {
            Kind::Entry => At::Entry,
            Kind::Return => At::Return,
            Kind::Usdt(name) => {
                let site = image.usdt("test", name).unwrap().remove(0);
                cookie = probes.usdt_cookie(program, &site, cookie).unwrap();
                At::Inside {
                    offset: site.address - function.address,
                    semaphore: site.semaphore,
                }
            }
        };
        Place {
            program,
            function: &function,
            at,
            cookie,
        }
    };
    let places: Vec<Place<'_>> = programs.iter().map(&mut place).collect();
    probes.attach(process.pid(), &places)
}
