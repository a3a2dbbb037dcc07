//! An object's programs, and the processes that they are in.

use super::{
    error::{Error, Result},
    map::Map,
    store::Store,
    target::Target,
};
use crate::{
    object::{LoadedMap, LoadedObject, LoadedProgram},
    process::{Attachment, Counts, Function, Hits, Probe, When},
};
use std::collections::BTreeMap;

/// An object whose programs run in user space.
#[derive(Debug)]
pub struct Probes {
    /// Before the object: their memory is mapped from its descriptors.
    pub(super) targets: BTreeMap<i32, Target>,
    /// By the order of the object's maps; none where a map's type has no form in user space.
    pub(super) stores: Vec<Option<Store>>,
    pub(super) object: LoadedObject,
}

/// A program at a place of a function.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The program's name.
    pub program: &'a str,
    /// The function.
    pub function: &'a Function,
    /// Where in the function.
    pub when: When,
    /// What `bpf_get_attach_cookie` returns in the program.
    pub cookie: u64,
}

/// Programs that are attached to a process.
#[derive(Debug)]
#[must_use = "they stay attached until this is given to Probes::detach"]
pub struct Attached {
    pid: i32,
    attachment: Attachment,
}

impl Probes {
    /// Makes the maps' memory. Nothing is attached yet.
    pub fn new(object: LoadedObject) -> Result<Self> {
        let stores = object.maps().iter().map(Store::create);
        Ok(Probes {
            targets: BTreeMap::new(),
            stores: stores.collect::<Result<_>>()?,
            object,
        })
    }

    /// The object.
    pub fn object(&self) -> &LoadedObject {
        &self.object
    }

    /// Attaches programs to functions of a process: all of them, or none.
    pub fn attach(&mut self, pid: i32, places: &[Place<'_>]) -> Result<Attached> {
        let target = match self.targets.remove(&pid) {
            Some(target) if target.runtime.is_there() => target,
            // It ended, and another process has its number, or it runs another program.
            _ => Target::open(pid)?,
        };
        self.targets.insert(pid, target);
        let target = self.targets.get_mut(&pid).expect("it was just inserted");
        let mut probes: Vec<Probe<'_>> = Vec::new();
        for place in places {
            let program = program(&self.object, place.program)?;
            let program = target.load(&self.object, &self.stores, program)?;
            let program = Some(program.with_cookie(place.cookie));
            let mut probe = Probe {
                function: place.function,
                entry: None,
                returns: None,
            };
            let known = probes
                .iter()
                .position(|one| one.function.address == place.function.address);
            if let Some(known) = known {
                probe = probes.remove(known);
            }
            match place.when {
                When::Entry => probe.entry = program,
                When::Return => probe.returns = program,
            }
            probes.push(probe);
        }
        let attachment = target.runtime.attach(&probes)?;
        Ok(Attached { pid, attachment })
    }

    /// Restores the functions. Returns what the probes did, those of all functions together.
    pub fn detach(&mut self, attached: Attached) -> Result<Hits> {
        match self.targets.get_mut(&attached.pid) {
            Some(target) => Ok(sum(target.runtime.detach(attached.attachment)?)),
            None => Ok(Hits::default()),
        }
    }

    /// What the probes did so far.
    pub fn hits(&self, attached: &Attached) -> Hits {
        let target = self.targets.get(&attached.pid);
        target.map_or_else(Hits::default, |target| {
            sum(target.runtime.hits(&attached.attachment))
        })
    }

    /// A map of the object.
    pub fn map(&self, name: &str) -> Result<Map<'_>> {
        let (index, map) = self.find(name)?;
        Ok(Map {
            probes: self,
            map,
            store: self.stores[index].as_ref(),
        })
    }

    /// Reads the records that the processes' rings have for a map: `take` gets the process and the record.
    pub fn consume(&mut self, name: &str, mut take: impl FnMut(i32, &[u8])) -> Result<()> {
        use std::os::fd::AsRawFd as _;
        let (_, map) = self.find(name)?;
        let (fd, name) = (map.fd().as_raw_fd(), map.name.clone());
        for (&pid, target) in &mut self.targets {
            target.consume(fd, &name, &mut |record| take(pid, record))?;
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<(usize, &LoadedMap)> {
        let maps = self.object.maps();
        // A section's map is named for the object, too.
        let is_it =
            |map: &LoadedMap| map.name == name || map.name.ends_with(name) && name.starts_with('.');
        let index = maps.iter().position(is_it);
        let index = index.ok_or_else(|| Error::NoMap {
            map: name.to_owned(),
            names: maps.iter().map(|map| map.name.clone()).collect(),
        })?;
        Ok((index, &maps[index]))
    }
}

fn sum(hits: Vec<Hits>) -> Hits {
    let add = |one: Counts, other: Counts| Counts {
        hits: one.hits + other.hits,
        missed: one.missed + other.missed,
    };
    hits.into_iter().fold(Hits::default(), |all, one| Hits {
        entry: add(all.entry, one.entry),
        returns: add(all.returns, one.returns),
    })
}

fn program<'a>(object: &'a LoadedObject, name: &str) -> Result<&'a LoadedProgram> {
    let programs = object.programs();
    let found = programs.iter().find(|program| program.name == name);
    found.ok_or_else(|| Error::NoProgram {
        program: name.to_owned(),
        names: programs.iter().map(|one| one.name.clone()).collect(),
    })
}
