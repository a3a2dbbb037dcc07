//! Work of a person's loader before its programs run: first values of variables, sizes of maps, and their contents.

#![allow(unsafe_code)]

use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{
    AsRawLibbpf as _, Btf, MapCore as _, MapFlags, MapType, Object, OpenObject, num_possible_cpus,
};

use serde::{Deserialize, Serialize};

use super::{
    file::{ObjectFile, lines, wrong},
    packet_context::PacketContext,
};
use crate::{error::Result, globals::GlobalsLayout};

/// Settings for loading programs of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// True if programs may have effects outside of their maps and packets.
    #[serde(default)]
    pub allow_effects: bool,
    /// First values of global variables of at most 8 bytes, constants among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<(String, u64)>,
    /// Maps by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<MapContents>,
    /// Programs that others make tail calls to, beside those that the object's source names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<ProgramSlot>,
    /// Context of packets, beside their bytes.
    #[serde(default, skip_serializing_if = "PacketContext::is_empty")]
    pub context: PacketContext,
}

/// A program in a map of programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSlot {
    /// The map's name.
    pub map: String,
    /// The key.
    pub slot: u32,
    /// The program's name.
    pub program: String,
}

/// Initial contents of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapContents {
    /// The map's name.
    pub name: String,
    /// The most entries, where they are others than the object says.
    pub max_entries: Option<u32>,
    /// Keys and values. In a map with values for each CPU, all get the same.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A map of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Map name.
    pub name: String,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// True if the map holds programs, for tail calls.
    pub is_program_array: bool,
}

impl Settings {
    /// Before the object is loaded.
    pub(crate) fn apply(&self, file: &ObjectFile, object: &mut OpenObject) -> Result<()> {
        for contents in &self.maps {
            let Some(entries) = contents.max_entries else {
                continue;
            };
            let map = object.maps_mut().find(|map| map.name() == &*contents.name);
            let map = map.map(|mut map| map.set_max_entries(entries));
            let refused = |error| file.refused(format!("{}: {error}", contents.name));
            map.ok_or_else(|| lacks_map(file, &contents.name))?
                .map_err(refused)?;
        }
        if self.variables.is_empty() {
            return Ok(());
        }
        let layout = layout(file, object)?;
        for (name, value) in &self.variables {
            if let Some(why) = cut(name, layout.size(name)?, *value) {
                return Err(wrong(file.path(), why));
            }
            layout.initialise(name, &layout.word(name, *value)?, object)?;
        }
        Ok(())
    }

    /// Once it is loaded.
    pub(crate) fn fill(&self, file: &ObjectFile, object: &Object) -> Result<()> {
        let cpus = num_possible_cpus().unwrap_or(1);
        for contents in self.maps.iter().filter(|one| !one.entries.is_empty()) {
            let map = object.maps().find(|map| map.name() == &*contents.name);
            let map = map.ok_or_else(|| lacks_map(file, &contents.name))?;
            for (number, (key, value)) in (1..).zip(&contents.entries) {
                let written = if map.map_type().is_percpu() {
                    map.update_percpu(key, &vec![value.clone(); cpus], MapFlags::ANY)
                } else if matches!(map.map_type(), MapType::Queue | MapType::Stack) {
                    map.update(&[], value, MapFlags::ANY)
                } else {
                    map.update(key, value, MapFlags::ANY)
                };
                written.map_err(|error| {
                    let count = contents.entries.len();
                    file.refused(format!(
                        "the kernel rejected entry {number} of {count} of the map {}: {error}",
                        contents.name
                    ))
                })?;
            }
        }
        for ProgramSlot { map, slot, program } in &self.slots {
            let found = object.maps().find(|one| one.name() == &**map);
            let found = found.ok_or_else(|| lacks_map(file, map))?;
            let put = object.progs_mut().find(|one| one.name() == &**program);
            let put = put.ok_or_else(|| file.refused(format!("{program} was not loaded")))?;
            let number = put.as_fd().as_raw_fd().to_ne_bytes();
            let written = found.update(&slot.to_ne_bytes(), &number, MapFlags::ANY);
            written.map_err(|error| {
                file.refused(format!(
                    "the kernel rejected the program {program} in slot {slot} of the map {map}: {error}"
                ))
            })?;
        }
        Ok(())
    }
}

impl ObjectFile {
    /// The maps that can be filled, in their order in the file.
    pub fn maps(&self) -> Result<Vec<MapEntry>> {
        let object = self.opened()?;
        let entry = |map: libbpf_rs::OpenMap<'_>| {
            let name = map.name().to_string_lossy().into_owned();
            // Sections are maps too, with a dot in their names.
            (!name.contains('.')).then(|| MapEntry {
                name,
                key_bytes: map.key_size() as usize,
                value_bytes: map.value_size() as usize,
                is_program_array: map.map_type() == MapType::ProgArray,
            })
        };
        Ok(object.maps().filter_map(entry).collect())
    }

    /// Returns true if there is a variable of that name.
    pub fn has_variable(&self, name: &str) -> Result<bool> {
        let object = self.opened()?;
        // Without types, nothing says where one is.
        Ok(layout(self, &object).is_ok_and(|layout| layout.section(name).is_ok()))
    }

    /// Refuses a variable that is not there, or that does not hold a value, with a sign or without one.
    pub fn check_variable(&self, name: &str, value: u64) -> Result<()> {
        let layout = layout(self, &self.opened()?)?;
        let set = layout.section(name).and_then(|_| {
            // Large enough for any place.
            layout.write(name, &layout.word(name, 0)?, &mut vec![0; 1 << 24])
        });
        set.map_err(|error| {
            wrong(
                self.path(),
                format!("it can't be set:{}", lines(&error.to_string())),
            )
        })?;
        let cut = cut(name, layout.size(name)?, value);
        cut.map_or(Ok(()), |why| Err(wrong(self.path(), why)))
    }
}

/// The reason that a variable of so many bytes can't hold a value, if any: neither without a sign nor with one.
fn cut(name: &str, bytes: usize, value: u64) -> Option<String> {
    let unused = 64u32.saturating_sub(8 * bytes as u32).min(63);
    let signed = value.cast_signed();
    let holds = value << unused >> unused == value || signed << unused >> unused == signed;
    (!holds).then(|| {
        format!(
            "{name} has room for {} to {}, not for {signed}",
            i64::MIN >> unused,
            u64::MAX >> unused
        )
    })
}

/// Layout of an object's variables.
pub(super) fn layout(file: &ObjectFile, object: &OpenObject) -> Result<GlobalsLayout> {
    let types = types(file, object, "where variables are")?;
    Ok(GlobalsLayout::from_btf(&file.name(), &types))
}

/// Types of an object, which say `what` is asked for.
pub(crate) fn types<'a>(file: &ObjectFile, object: &'a OpenObject, what: &str) -> Result<Btf<'a>> {
    // SAFETY: an open object is a valid `bpf_object`, which the types are borrowed from.
    let btf = Btf::from_bpf_object(unsafe { object.as_libbpf_object().as_ref() });
    btf.ok().flatten().ok_or_else(|| {
        let words = format!("it has no BTF, which says {what}\n  Compile it with -g");
        wrong(file.path(), words)
    })
}

fn lacks_map(file: &ObjectFile, name: &str) -> crate::Error {
    wrong(file.path(), format!("there is no map {name} in it"))
}
