//! Contents of an object's maps, by their types.

use bpfcost_uprobe::{
    object::LoadedMap,
    probes::{self, Probes},
};
use libbpf_rs::MapType;

use super::ProcessObject;
use crate::{
    error::Result,
    typed::{DataType, Value, object_types::section},
};

/// Contents of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapContents {
    /// The name; that of the global variables' maps is their section's.
    pub name: String,
    /// The type, as BPF names it; `variables` for global variables.
    pub kind: &'static str,
    /// The most entries.
    pub capacity: u32,
    /// The entries by their keys. Those of arrays whose value is zero are left out.
    pub entries: Vec<(Value, Value)>,
}

impl ProcessObject {
    /// Returns the maps that have entries to show: all but arrays of programs, ring buffers, constants, and those that have no
    /// form in user space. Of a map that the kernel has per CPU, a value is the sum of the threads' values.
    pub fn maps(&self) -> impl Iterator<Item = &str> {
        let maps = self.probes.object().maps().iter();
        let shown = maps.filter(|map| kind(map).is_some() && !map.is_read_only);
        shown.map(|map| shown_name(&map.name))
    }

    /// Returns the contents of one of these maps.
    pub fn contents(&self, name: &str) -> Result<MapContents> {
        let maps = self.probes.object().maps().iter();
        let mut named = maps.filter(|map| shown_name(&map.name) == name);
        let shown = named.find_map(|map| Some((map, kind(map)?)));
        let Some((map, kind)) = shown else {
            // The error has the names of those that are there.
            return Err(match self.probes.map(name) {
                Err(error) => error.into(),
                Ok(_) => probes::Error::WrongMap {
                    map: name.to_owned(),
                    kind: "one without entries".to_owned(),
                    what: "entries to show",
                }
                .into(),
            });
        };
        let key = self.types().key(&map.name, map.key_size as usize);
        let value = self.types().value(&map.name, map.value_size as usize);
        let mut entries = read(&self.probes, map, &key, &value)?;
        entries.sort();
        Ok(MapContents {
            name: name.to_owned(),
            kind,
            capacity: map.entries,
            entries,
        })
    }
}

/// The name of a type; none for one that has no entries to show.
fn kind(map: &LoadedMap) -> Option<&'static str> {
    Some(match map.kind {
        MapType::Array if map.name.contains('.') => "variables",
        MapType::Array => "array",
        MapType::PercpuArray => "percpu_array",
        MapType::Hash => "hash",
        MapType::LruHash => "lru_hash",
        MapType::PercpuHash => "percpu_hash",
        MapType::LruPercpuHash => "lru_percpu_hash",
        MapType::StackTrace => "stack_trace",
        _ => return None,
    })
}

/// The name without that of the object.
fn shown_name(name: &str) -> &str {
    section(name).unwrap_or(name)
}

fn read(
    probes: &Probes,
    map: &LoadedMap,
    key: &DataType,
    value: &DataType,
) -> Result<Vec<(Value, Value)>> {
    let open = probes.map(&map.name)?;
    let index = |index: u32| Value::Unsigned(index.into());
    Ok(match map.kind {
        MapType::Array | MapType::PercpuArray => {
            let mut entries = Vec::new();
            for number in 0..map.entries {
                let one = if map.kind == MapType::Array {
                    let bytes = open.get(&number.to_ne_bytes())?;
                    bytes.map(|bytes| value.value(&bytes))
                } else {
                    sum(value, &open.of_threads(number)?)
                };
                let is_shown = |one: &Value| section(&map.name).is_some() || !one.is_zero();
                entries.extend(one.filter(is_shown).map(|one| (index(number), one)));
            }
            entries
        }
        MapType::PercpuHash | MapType::LruPercpuHash => {
            let entries = open.entries_of_threads()?.into_iter();
            // No thread has a value yet where the one that makes the entry is about to.
            let zero = || value.value(&vec![0; value.bytes()]);
            let summed = entries.map(|(bytes, values)| {
                let sum = sum(value, &values).unwrap_or_else(zero);
                (key.value(&bytes), sum)
            });
            summed.collect()
        }
        MapType::StackTrace => {
            let mut stacks = Vec::new();
            for number in 0..map.entries.next_power_of_two() {
                let addresses = open.stack(number)?.into_iter();
                stacks.extend(addresses.map(|stack| {
                    let stack = stack.into_iter().map(Value::Address).collect();
                    (index(number), Value::List(stack))
                }));
            }
            stacks
        }
        _ => {
            let entries = open.entries()?.into_iter();
            let typed = entries.map(|(own, bytes)| (key.value(&own), value.value(&bytes)));
            typed.collect()
        }
    })
}

/// The sum of the threads' values; `None` where no thread has one.
fn sum(kind: &DataType, values: &[Vec<u8>]) -> Option<Value> {
    let values = values.iter().map(|bytes| kind.value(bytes));
    values.reduce(Value::plus)
}
