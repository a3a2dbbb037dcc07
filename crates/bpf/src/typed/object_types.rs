//! Types that an object's BTF has for its maps, global variables and records.

use std::collections::BTreeMap;

use libbpf_rs::{
    Btf, HasSize as _, ReferencesType as _,
    btf::{
        BtfType,
        types::{Array, DataSec, Ptr, Struct, Var},
    },
};

use super::{DataType, data_type::Field};

/// The section in which libbpf looks for maps.
const MAPS: &str = ".maps";

/// Types of an object.
#[derive(Clone, Debug, Default)]
pub struct ObjectTypes {
    /// Types of keys and values, by the map's name.
    maps: BTreeMap<String, (Option<DataType>, Option<DataType>)>,
    /// Types of the variables of a section, such as `.bss`.
    sections: BTreeMap<String, DataType>,
    structs: BTreeMap<String, DataType>,
}

impl ObjectTypes {
    /// Reads the types of an object file's bytes. An object without BTF has none.
    pub fn read(object: &[u8]) -> Self {
        let Ok(Some(btf)) = Btf::from_raw("object", object) else {
            return ObjectTypes::default();
        };
        let mut types = ObjectTypes::default();
        for section in btf.type_by_kind::<DataSec<'_>>() {
            let name = name(&section);
            if name == MAPS {
                types.maps = variables(&btf, &section)
                    .map(|(name, _, kind)| (name, map_types(&btf, kind)))
                    .collect();
                continue;
            }
            let fields = variables(&btf, &section).filter_map(|(name, offset, kind)| {
                Some(Field {
                    name,
                    offset: 8 * offset,
                    bits: None,
                    kind: DataType::from_btf(&btf, kind)?,
                })
            });
            let whole = DataType::Fields(fields.collect(), section.size());
            types.sections.insert(name, whole);
        }
        for one in btf.type_by_kind::<Struct<'_>>() {
            if let Some(whole) = DataType::from_btf(&btf, *one) {
                types.structs.entry(name(&one)).or_insert(whole);
            }
        }
        types
    }

    /// The type of a map's keys.
    pub fn key(&self, map: &str, bytes: usize) -> DataType {
        let key = self.maps.get(map).and_then(|(key, _)| key.clone());
        fitting(key, bytes)
    }

    /// The type of its values. That of a section's map is a `struct` of the variables.
    pub fn value(&self, map: &str, bytes: usize) -> DataType {
        let of_section = || self.sections.get(section(map)?).cloned();
        let value = self.maps.get(map).and_then(|(_, value)| value.clone());
        fitting(value.or_else(of_section), bytes)
    }

    /// A `struct` by its name.
    pub fn structure(&self, name: &str) -> Option<&DataType> {
        self.structs.get(name)
    }

    /// The names of all `struct`s that have one.
    pub fn structures(&self) -> impl Iterator<Item = &str> {
        let names = self.structs.keys().map(String::as_str);
        names.filter(|name| !name.is_empty())
    }
}

/// The section that a map has the variables of: the map of `.bss` is named for the object too.
pub(crate) fn section(map: &str) -> Option<&str> {
    map.find('.').map(|start| &map[start..])
}

/// The type, if a value has as many bytes as it.
fn fitting(kind: Option<DataType>, bytes: usize) -> DataType {
    kind.filter(|kind| kind.bytes() == bytes)
        .unwrap_or_else(|| DataType::unknown(bytes))
}

/// The variables of a section: name, offset and type.
fn variables<'a>(
    btf: &'a Btf<'_>,
    section: &'a DataSec<'a>,
) -> impl Iterator<Item = (String, usize, BtfType<'a>)> {
    section.iter().filter_map(|entry| {
        let variable = btf.type_by_id::<Var<'_>>(entry.ty)?;
        let kind = variable.referenced_type();
        Some((name(&variable), entry.offset as usize, kind))
    })
}

/// The types of keys and values of a map's definition, which has pointers to them.
fn map_types(btf: &Btf<'_>, kind: BtfType<'_>) -> (Option<DataType>, Option<DataType>) {
    // A variable may be an array of maps with one element.
    let kind = kind.skip_mods_and_typedefs();
    let kind = Array::try_from(kind).map_or_else(|kind| kind, |array| array.contained_type());
    let Ok(definition) = Struct::try_from(kind.skip_mods_and_typedefs()) else {
        return (None, None);
    };
    let pointed = |wanted: &str| {
        let mut members = definition.iter();
        let member = members.find(|member| member.name.is_some_and(|name| name == wanted))?;
        let pointer = btf.type_by_id::<Ptr<'_>>(member.ty)?;
        DataType::from_btf(btf, pointer.referenced_type())
    };
    (pointed("key"), pointed("value"))
}

fn name(kind: &BtfType<'_>) -> String {
    let name = kind.name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
