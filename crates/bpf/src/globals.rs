//! Reads and writes global variables of an object by name. BTF gives their positions, so no type is declared a
//! second time in Rust.

use std::{collections::BTreeMap, ops::Range};

use libbpf_rs::{
    Btf, HasSize as _, Map, MapCore as _, Object, OpenObject, ReferencesType as _,
    btf::{
        BtfType,
        types::{Array, DataSec, Int, MemberAttr, Struct, StructMember, Var},
    },
};
use memmap2::MmapMut;

use crate::{
    error::{Error, Result, lacks},
    mapping,
};

/// Sections that user space may write to after loading.
const WRITABLE: [&str; 2] = [".bss", ".data"];

/// The places of an object's variables.
#[derive(Debug)]
pub(crate) struct GlobalsLayout {
    object: String,
    variables: BTreeMap<String, Variable>,
}

/// A variable, or an array of structures.
#[derive(Debug)]
struct Variable {
    section: String,
    place: ByteRange,
    /// Bytes from one element to the next, where it is an array.
    stride: usize,
    elements: usize,
    /// Members of a structure, or of the array's.
    members: BTreeMap<String, ByteRange>,
}

/// Bytes of a section, of a structure.
#[derive(Clone, Copy, Debug)]
struct ByteRange {
    offset: usize,
    bytes: usize,
}

impl GlobalsLayout {
    pub(crate) fn from_btf(object: &str, btf: &Btf<'_>) -> Self {
        let mut variables = BTreeMap::new();
        for section in btf.type_by_kind::<DataSec<'_>>() {
            let Some(name) = section.name() else { continue };
            for entry in section.iter() {
                let Some(variable) = btf.type_by_id::<Var<'_>>(entry.ty) else {
                    continue;
                };
                let named = variable.name().map(|name| name.to_string_lossy());
                let kind = variable.referenced_type().skip_mods_and_typedefs();
                let (elements, element) = match Array::try_from(kind) {
                    Ok(array) => (
                        array.capacity(),
                        array.contained_type().skip_mods_and_typedefs(),
                    ),
                    Err(single) => (1, single),
                };
                variables.insert(
                    named.unwrap_or_default().into_owned(),
                    Variable {
                        section: name.to_string_lossy().into_owned(),
                        place: ByteRange {
                            offset: entry.offset as usize,
                            bytes: entry.size,
                        },
                        stride: entry.size / elements.max(1),
                        elements,
                        members: Struct::try_from(element)
                            .map_or_else(|_| BTreeMap::new(), |structure| members(btf, &structure)),
                    },
                );
            }
        }
        GlobalsLayout {
            object: object.to_owned(),
            variables,
        }
    }

    /// The section of a variable.
    pub(crate) fn section(&self, name: &str) -> Result<&str> {
        Ok(&self.variable(name)?.section)
    }

    /// The bytes of a variable.
    pub(crate) fn size(&self, name: &str) -> Result<usize> {
        Ok(self.variable(name)?.place.bytes)
    }

    /// The variables of a section by name, and where each is.
    pub(crate) fn variables_of(&self, section: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
        let of_section = self.variables.iter();
        let of_section = of_section.filter(move |(_, variable)| variable.section == section);
        of_section.map(|(name, variable)| {
            let ByteRange { offset, bytes } = variable.place;
            (name.as_str(), offset..offset + bytes)
        })
    }

    /// A variable's bytes for a value, of at most 8.
    pub(crate) fn word(&self, name: &str, value: u64) -> Result<Vec<u8>> {
        let word = value.to_le_bytes();
        let bytes = word.get(..self.size(name)?);
        bytes.map(<[u8]>::to_vec).ok_or_else(|| self.no(name))
    }

    /// Gives a variable of an open object its first bytes.
    pub(crate) fn initialise(
        &self,
        name: &str,
        value: &[u8],
        object: &mut OpenObject,
    ) -> Result<()> {
        let section = self.section(name)?;
        for mut map in object.maps_mut() {
            // The name of a section's map is the section's behind the object's.
            if map.name().to_string_lossy().ends_with(section)
                && let Some(bytes) = map.initial_value_mut()
            {
                self.write(name, value, bytes)?;
            }
        }
        Ok(())
    }

    /// Writes the first bytes of a variable into those of its section.
    pub(crate) fn write(&self, name: &str, value: &[u8], section: &mut [u8]) -> Result<()> {
        let ByteRange { offset, bytes } = self.variable(name)?.place;
        let room = section.get_mut(offset..offset + bytes);
        let room = room.and_then(|room| room.get_mut(..value.len()));
        room.map(|room| room.copy_from_slice(value))
            .ok_or_else(|| self.no(name))
    }

    fn variable(&self, name: &str) -> Result<&Variable> {
        self.variables.get(name).ok_or_else(|| self.no(name))
    }

    /// The place of a member in the section, of one element of an array.
    fn member(&self, name: &str, index: usize, member: &str) -> Result<(&str, ByteRange)> {
        let variable = self.variable(name)?;
        let place = variable.members.get(member).copied();
        let place = place
            .filter(|_| index < variable.elements)
            .ok_or_else(|| self.no(&format!("{name}[{index}].{member}")))?;
        Ok((
            &variable.section,
            ByteRange {
                offset: variable.place.offset + index * variable.stride + place.offset,
                ..place
            },
        ))
    }

    fn no(&self, name: &str) -> Error {
        lacks(&self.object, &format!("variable {name}"))
    }
}

/// Integers of a structure. Bit fields are left out.
fn members(btf: &Btf<'_>, structure: &Struct<'_>) -> BTreeMap<String, ByteRange> {
    let place = |member: StructMember<'_>| {
        let MemberAttr::Normal { offset } = member.attr else {
            return None;
        };
        let name = member.name?.to_string_lossy().into_owned();
        let ty = btf.type_by_id::<BtfType<'_>>(member.ty)?;
        let bytes = Int::try_from(ty.skip_mods_and_typedefs()).ok()?.size();
        Some((
            name,
            ByteRange {
                offset: offset as usize / 8,
                bytes,
            },
        ))
    };
    structure.iter().filter_map(place).collect()
}

/// The variables of a loaded object, which its programs share. They are read and written only while none of
/// them runs.
#[derive(Debug)]
pub(crate) struct Globals {
    layout: GlobalsLayout,
    sections: BTreeMap<&'static str, MmapMut>,
}

impl Globals {
    pub(crate) fn new(layout: GlobalsLayout, object: &Object) -> Result<Self> {
        let mut sections = BTreeMap::new();
        for section in WRITABLE {
            // The name of such a map is the section's behind the object's.
            let of_section = |map: &Map<'_>| {
                let name = map.name().to_string_lossy();
                name.ends_with(section)
            };
            if let Some(map) = object.maps().find(of_section) {
                sections.insert(section, mapping::map(&map, section)?);
            }
        }
        Ok(Globals { layout, sections })
    }

    pub(crate) fn get(&self, name: &str) -> Result<u64> {
        let variable = self.layout.variable(name)?;
        self.read(&variable.section, variable.place, name)
    }

    /// The bytes of a variable.
    pub(crate) fn bytes(&self, name: &str) -> Result<&[u8]> {
        let variable = self.layout.variable(name)?;
        let place = variable.place;
        let section = self.sections.get(&*variable.section);
        let bytes = section.and_then(|all| all.get(place.offset..place.offset + place.bytes));
        bytes.ok_or_else(|| self.layout.no(name))
    }

    /// The first of an array of words, as many as it has.
    pub(crate) fn words(&self, name: &str, most: usize) -> Vec<u64> {
        let bytes = self.bytes(name).unwrap_or_default();
        let (words, _) = bytes.as_chunks::<8>();
        words
            .iter()
            .take(most)
            .map(|&word| u64::from_le_bytes(word))
            .collect()
    }

    pub(crate) fn set(&mut self, name: &str, value: u64) -> Result<()> {
        self.set_bytes(name, &self.layout.word(name, value)?)
    }

    /// Writes the first bytes of a variable.
    pub(crate) fn set_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let section = self.sections.get_mut(self.layout.section(name)?);
        let section = section.map(|section| &mut section[..]);
        self.layout.write(name, bytes, section.unwrap_or_default())
    }

    pub(crate) fn member(&self, name: &str, index: usize, member: &str) -> Result<u64> {
        let (section, place) = self.layout.member(name, index, member)?;
        self.read(section, place, name)
    }

    pub(crate) fn set_member(
        &mut self,
        name: &str,
        index: usize,
        member: &str,
        value: u64,
    ) -> Result<()> {
        let (section, place) = self.layout.member(name, index, member)?;
        let section = self.sections.get_mut(section);
        if section.is_some_and(|section| write(section, place, value)) {
            Ok(())
        } else {
            Err(self.layout.no(name))
        }
    }

    fn read(&self, section: &str, place: ByteRange, name: &str) -> Result<u64> {
        let bytes = self.sections.get(section).and_then(|section| {
            let bytes = section.get(place.offset..place.offset + place.bytes)?;
            let mut word = [0; 8];
            word.get_mut(..bytes.len())?.copy_from_slice(bytes);
            Some(u64::from_le_bytes(word))
        });
        bytes.ok_or_else(|| self.layout.no(name))
    }
}

/// Writes a value to a place, of at most a word; false where there is no such place.
fn write(section: &mut [u8], place: ByteRange, value: u64) -> bool {
    let word = value.to_le_bytes();
    let Some(value) = word.get(..place.bytes) else {
        return false;
    };
    let Some(bytes) = section.get_mut(place.offset..place.offset + place.bytes) else {
        return false;
    };
    bytes.copy_from_slice(value);
    true
}
