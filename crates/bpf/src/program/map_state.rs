//! Contents of a program's maps and variables, and the changes that its runs make there.

use std::collections::{BTreeMap, BTreeSet};

use libbpf_rs::{Map, MapCore, MapFlags, MapType, Object};

use crate::globals::GlobalsLayout;

/// Numbers of a map that are compared; of a larger one, none is.
const MAX_NUMBERS: usize = 8192;
/// Entries of a table that are counted; of a fuller one, none is.
const MAX_ENTRIES: usize = 65_536;
/// Numbers of a variable that are compared.
const MAX_IN_VARIABLE: usize = 64;

/// Changes that one run of a program makes in its maps and variables, found from many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapChanges {
    /// Change of each number in a run, and of the number of entries of each table, by its place: `stats[0]`,
    /// `stats[0]@8` (at byte 8 of the value), `runs` (a variable), `flows` (a table). `None` if runs differ.
    pub per_run: BTreeMap<String, Option<i64>>,
    /// Tables that no two runs find the same.
    pub drifts: BTreeMap<String, Drift>,
    /// Maps and variables that are too large to be compared, or can't be read.
    pub unread: BTreeSet<String>,
}

/// Difference of a table from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// Runs add entries, or remove some.
    Grows {
        /// Entries when this was seen.
        entries: u64,
        /// The most that it can have.
        room: u64,
    },
    /// Runs replace entries by others.
    Replaced,
    /// Runs added entries until there was no more room.
    Full {
        /// The most entries that it can have.
        room: u64,
    },
}

/// Contents of maps and variables.
#[derive(Clone, Debug, Default)]
pub struct MapState {
    numbers: BTreeMap<String, Number>,
    tables: BTreeMap<String, Table>,
    unread: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    value: u64,
    bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct Table {
    keys: BTreeSet<Vec<u8>>,
    room: u64,
}

impl MapState {
    /// That of a loaded object. `layout` says where its variables are, if it has types.
    pub(super) fn from_object(object: &Object, layout: Option<&GlobalsLayout>) -> Self {
        let mut state = MapState::default();
        for map in object.maps().filter(|map| map.autocreate()) {
            let name = map.name().to_string_lossy().into_owned();
            match (name.split_once('.'), map.map_type()) {
                // Sections are maps too, with a dot in their names. Those of constants stay as they are.
                (Some((_, section)), MapType::Array) if !section.starts_with("rodata") => {
                    let section = format!(".{section}");
                    match map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY) {
                        Ok(bytes) => {
                            state.add_section(&section, &bytes.unwrap_or_default(), layout);
                        }
                        Err(_) => state.leave_out(&section),
                    }
                }
                (Some(_), _) => {}
                (None, MapType::Array | MapType::PercpuArray) => state.add_array(&name, &map),
                (
                    None,
                    MapType::Hash
                    | MapType::PercpuHash
                    | MapType::LruHash
                    | MapType::LruPercpuHash
                    | MapType::LpmTrie,
                ) => state.add_table(&name, &map),
                // Others hold no data, or refuse to be read.
                (None, _) => {}
            }
        }
        state
    }

    fn add_section(&mut self, section: &str, bytes: &[u8], layout: Option<&GlobalsLayout>) {
        let Some(layout) = layout else {
            return self.add_value(section, bytes);
        };
        for (name, range) in layout.variables_of(section) {
            match bytes.get(range) {
                Some(value) if value.len() <= 8 * MAX_IN_VARIABLE => self.add_value(name, value),
                _ => self.leave_out(name),
            }
        }
    }

    fn add_array(&mut self, name: &str, map: &Map<'_>) {
        let entries = map.max_entries();
        let numbers = entries as usize * split(map.value_size() as usize).count();
        if numbers > MAX_NUMBERS {
            return self.leave_out(name);
        }
        for index in 0..entries {
            match value(map, &index.to_ne_bytes()) {
                Ok(value) => {
                    self.add_value(&format!("{name}[{index}]"), &value.unwrap_or_default())
                }
                Err(_) => return self.leave_out(name),
            }
        }
    }

    fn add_table(&mut self, name: &str, map: &Map<'_>) {
        let keys: BTreeSet<Vec<u8>> = map.keys().take(MAX_ENTRIES + 1).collect();
        if keys.len() > MAX_ENTRIES {
            return self.leave_out(name);
        }
        if keys.len() * split(map.value_size() as usize).count() <= MAX_NUMBERS {
            for key in &keys {
                match value(map, key) {
                    Ok(Some(value)) => {
                        self.add_value(&format!("{name}[{}]", written(key)), &value);
                    }
                    Ok(None) => {}
                    Err(_) => return self.leave_out(name),
                }
            }
        }
        let room = u64::from(map.max_entries());
        self.tables.insert(name.to_owned(), Table { keys, room });
    }

    /// Notes what is too large, or may not be read from user space.
    fn leave_out(&mut self, name: &str) {
        self.unread.insert(name.to_owned());
    }

    fn add_value(&mut self, place: &str, value: &[u8]) {
        for (at, bytes) in split(value.len()) {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&value[at..at + bytes]);
            let name = match at {
                0 => place.to_owned(),
                at => format!("{place}@{at}"),
            };
            let value = u64::from_le_bytes(word);
            self.numbers.insert(name, Number { value, bytes });
        }
    }

    /// Returns true if such a number or table was read.
    pub fn has(&self, place: &str) -> bool {
        self.numbers.contains_key(place) || self.tables.contains_key(place)
    }

    /// The tables that have more entries than before.
    pub(super) fn fuller_than(&self, before: &MapState) -> BTreeSet<String> {
        let is_fuller = |(name, table): &(&String, &Table)| {
            let before = before.tables.get(*name);
            before.is_some_and(|before| before.keys.len() < table.keys.len())
        };
        let fuller = self.tables.iter().filter(is_fuller);
        fuller.map(|(name, _)| name.clone()).collect()
    }
}

impl MapChanges {
    /// Compares three states, with so many runs from each to the next. `grew`: the tables to which the first runs of
    /// all added entries, and later ones more.
    pub fn between(states: [&MapState; 3], runs: [u64; 2], grew: &BTreeSet<String>) -> Self {
        let [first, second, third] = states;
        let mut changes = MapChanges {
            unread: &(&first.unread | &second.unread) | &third.unread,
            ..MapChanges::default()
        };
        for (place, before) in &first.numbers {
            // An entry that comes or goes is no number that changes.
            let (Some(then), Some(after)) = (second.numbers.get(place), third.numbers.get(place))
            else {
                continue;
            };
            let steps = [difference(*before, *then), difference(*then, *after)];
            if steps != [0, 0] {
                changes.per_run.insert(place.clone(), per_run(steps, runs));
            }
        }
        for (name, before) in &first.tables {
            let (Some(then), Some(after)) = (second.tables.get(name), third.tables.get(name))
            else {
                continue;
            };
            let count = |table: &Table| table.keys.len() as i64;
            let steps = [count(then) - count(before), count(after) - count(then)];
            let room = after.room;
            let drift = if steps != [0, 0] {
                let is_full = |table: &Table| table.keys.len() as u64 >= room;
                let amount = if is_full(after) && !is_full(then) {
                    // Later runs found no room for what the first of them did.
                    per_run([steps[0]; 2], [runs[0]; 2])
                } else {
                    per_run(steps, runs)
                };
                changes.per_run.insert(name.clone(), amount);
                let entries = after.keys.len() as u64;
                Some(Drift::Grows { entries, room })
            } else if before.keys != then.keys || then.keys != after.keys {
                Some(Drift::Replaced)
            } else if grew.contains(name) && after.keys.len() as u64 >= room {
                Some(Drift::Full { room })
            } else {
                None
            };
            changes
                .drifts
                .extend(drift.map(|drift| (name.clone(), drift)));
        }
        changes
    }
}

/// The amount that each run adds, if it is the same.
fn per_run(steps: [i64; 2], runs: [u64; 2]) -> Option<i64> {
    let [first, second] = [0, 1].map(|at| {
        let runs = i64::try_from(runs[at]).ok().filter(|runs| *runs > 0)?;
        (steps[at] % runs == 0).then(|| steps[at] / runs)
    });
    first.filter(|_| first == second)
}

/// Growth of a number, of the bytes that it has.
fn difference(before: Number, after: Number) -> i64 {
    let unused = 64 - 8 * before.bytes.clamp(1, 8) as u32;
    let grown = after.value.wrapping_sub(before.value);
    (grown << unused).cast_signed() >> unused
}

/// The numbers of a value of so many bytes, by their place and their bytes: one, if there can be such a number, else words of 8
/// or of 4 bytes.
fn split(bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let size = match bytes {
        1 | 2 | 4 => bytes,
        _ if bytes % 8 == 4 => 4,
        _ => 8,
    };
    (0..bytes)
        .step_by(size)
        .map(move |at| (at, size.min(bytes - at)))
}

/// A key: a number if it can be one, else its bytes.
fn written(key: &[u8]) -> String {
    if matches!(key.len(), 1 | 2 | 4 | 8) {
        let mut word = [0; 8];
        word[..key.len()].copy_from_slice(key);
        return u64::from_le_bytes(word).to_string();
    }
    let digits = key.iter().map(|byte| format!("{byte:02x}"));
    format!("0x{}", digits.collect::<String>())
}

/// The value of a key: of one with values for each CPU, their sum, number by number.
fn value(map: &Map<'_>, key: &[u8]) -> libbpf_rs::Result<Option<Vec<u8>>> {
    if !map.map_type().is_percpu() {
        return map.lookup(key, MapFlags::ANY);
    }
    let values = map.lookup_percpu(key, MapFlags::ANY)?;
    Ok(values.map(|values| sum(&values, map.value_size() as usize)))
}

fn sum(values: &[Vec<u8>], bytes: usize) -> Vec<u8> {
    let mut total = vec![0; bytes];
    for (at, size) in split(bytes) {
        let number = |value: &Vec<u8>| {
            let mut word = [0; 8];
            if let Some(part) = value.get(at..at + size) {
                word[..size].copy_from_slice(part);
            }
            u64::from_le_bytes(word)
        };
        let number = values.iter().map(number).fold(0, u64::wrapping_add);
        total[at..at + size].copy_from_slice(&number.to_le_bytes()[..size]);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of a byte, and a table with the keys below `entries`.
    fn state(counter: u8, entries: std::ops::Range<u8>, room: u64) -> MapState {
        let mut state = MapState::default();
        state.add_value("counter", &[counter]);
        let keys = entries.map(|key| vec![key]).collect();
        state
            .tables
            .insert("table".to_owned(), Table { keys, room });
        state
    }

    fn changes(states: [MapState; 3], grew: bool) -> MapChanges {
        let grew = grew.then(|| "table".to_owned()).into_iter().collect();
        MapChanges::between(states.each_ref(), [2, 4], &grew)
    }

    #[test]
    fn what_each_run_adds_is_found() {
        let steady = |last| {
            [
                state(250, 0..1, 9),
                state(254, 0..1, 9),
                state(last, 0..1, 9),
            ]
        };
        // Beyond the last number of a byte it begins anew.
        let linear = changes(steady(6), false);
        assert_eq!(
            linear.per_run,
            BTreeMap::from([("counter".to_owned(), Some(2))])
        );
        assert!(linear.drifts.is_empty());
        let other = changes(steady(7), false);
        assert_eq!(
            other.per_run,
            BTreeMap::from([("counter".to_owned(), None)])
        );
        let none = changes([0; 3].map(|_| state(1, 0..1, 9)), false);
        assert_eq!(none, MapChanges::default());
    }

    #[test]
    fn tables_that_drift_are_found() {
        let drift = |keys: [std::ops::Range<u8>; 3], room, grew| {
            let changes = changes(keys.map(|keys| state(0, keys, room)), grew);
            (
                changes.drifts.get("table").copied(),
                changes.per_run.get("table").copied(),
            )
        };
        let grows = Some(Drift::Grows {
            entries: 7,
            room: 9,
        });
        assert_eq!(drift([1..2, 1..4, 1..8], 9, false), (grows, Some(Some(1))));
        assert_eq!(drift([1..2, 1..3, 1..8], 9, false), (grows, Some(None)));
        // It became full on the way.
        assert_eq!(drift([1..2, 1..4, 1..8], 7, false).1, Some(Some(1)));
        assert_eq!(drift([1..2, 1..8, 1..8], 7, false).1, Some(None));
        assert_eq!(
            drift([0..2, 1..3, 2..4], 9, false),
            (Some(Drift::Replaced), None)
        );
        let full = Some(Drift::Full { room: 2 });
        assert_eq!(drift([0..2, 0..2, 0..2], 2, true), (full, None));
        // One that its loader or the first run has filled.
        assert_eq!(drift([0..2, 0..2, 0..2], 2, false), (None, None));
        assert_eq!(drift([0..2, 0..2, 0..2], 3, true), (None, None));
    }

    #[test]
    fn values_are_numbers_of_their_sizes() {
        let parts = |bytes| split(bytes).collect::<Vec<_>>();
        assert_eq!(parts(4), [(0, 4)]);
        assert_eq!(parts(16), [(0, 8), (8, 8)]);
        assert_eq!(parts(12), [(0, 4), (4, 4), (8, 4)]);
        assert_eq!(parts(11), [(0, 8), (8, 3)]);
        assert_eq!(written(&[1, 2]), "513");
        assert_eq!(written(&[1, 2, 255]), "0x0102ff");
        let values = [vec![1, 0, 0, 0, 255], vec![2, 0, 0, 0, 2]];
        assert_eq!(sum(&values, 5), [3, 0, 0, 0, 1]);
    }
}
