//! The pinning of maps in an object's type information (BTF, Documentation/bpf/btf.rst), before libbpf opens it.
//!
//! A map is declared as a struct, each of whose members is a pointer to an array: its number of elements is the value.
//! libbpf knows the values 0 and 1 of `pinning`, and refuses a whole object for another. Other loaders have more, such as
//! Cilium's 16: replace a pin.

use std::ops::Range;

use object::{File, Object as _, ObjectSection as _};

const MEMBER: &str = "pinning";
/// A member that each map has.
const IN_ITS_PLACE: &str = "type";
const LARGEST_KNOWN: u32 = 1;

const MAGIC: u32 = 0xeb9f;
/// Bytes of a type before what its kind adds.
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const ENUM64: u32 = 19;

/// The same object, with maps not pinned whose `pinning` libbpf does not know: that member becomes a second `type`.
pub fn with_known_pins(mut bytes: Vec<u8>) -> Vec<u8> {
    for (pinning, kind) in unknown_pins(&bytes).unwrap_or_default() {
        // The name and the type of a member.
        let range = |at: usize| at..at + 8;
        if pinning + 8 <= bytes.len() && kind + 8 <= bytes.len() {
            bytes.copy_within(range(kind), pinning);
        }
    }
    bytes
}

/// A type, where it stands in the section.
#[derive(Clone, Copy)]
struct Type {
    kind: u32,
    /// Number of members, where it has any.
    members: usize,
    /// Number of the type that a pointer points to.
    target: u32,
    /// Place of what its kind adds.
    rest: usize,
}

/// Places of unknown `pinning` members in the file, each with the `type` of the same map.
fn unknown_pins(bytes: &[u8]) -> Option<Vec<(usize, usize)>> {
    let file = File::parse(bytes).ok()?;
    let (start, length) = file.section_by_name(".BTF")?.file_range()?;
    let (start, length) = (usize::try_from(start).ok()?, usize::try_from(length).ok()?);
    let section = bytes.get(start..start.checked_add(length)?)?;
    let header = |field: usize| Some(word(section, field)? as usize);
    if word(section, 0)? & 0xffff != MAGIC {
        return None;
    }
    let from = |at: usize, bytes: usize| -> Option<Range<usize>> {
        let start = header(4)?.checked_add(at)?;
        Some(start..start.checked_add(bytes)?)
    };
    let strings = section.get(from(header(16)?, header(20)?)?)?;
    let types = types(section, from(header(8)?, header(12)?)?)?;
    // Types are counted from 1.
    let numbered = |number: u32| types.get(number.checked_sub(1)? as usize);
    let value = |number: u32| {
        let pointer = numbered(number).filter(|one| one.kind == PTR)?;
        let array = numbered(pointer.target).filter(|one| one.kind == ARRAY)?;
        word(section, array.rest + 8)
    };
    let mut found = Vec::new();
    for map in types.iter().filter(|one| one.kind == STRUCT) {
        let members = (0..map.members).map(|index| map.rest + index * MEMBER_BYTES);
        let named = |name: &str| {
            let is_it = |at: &usize| {
                word(section, *at).is_some_and(|offset| string(strings, offset) == Some(name))
            };
            members.clone().find(is_it)
        };
        let (Some(pinning), Some(kind)) = (named(MEMBER), named(IN_ITS_PLACE)) else {
            continue;
        };
        let is_unknown = word(section, pinning + 4)
            .and_then(value)
            .is_some_and(|value| value > LARGEST_KNOWN);
        if is_unknown {
            found.push((start + pinning, start + kind));
        }
    }
    Some(found)
}

/// All types of a section, in their order; nothing where it is damaged.
fn types(section: &[u8], range: Range<usize>) -> Option<Vec<Type>> {
    let mut types = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let info = word(section, at + 4)?;
        let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        types.push(Type {
            kind,
            members,
            target: word(section, at + 8)?,
            rest: at + TYPE_BYTES,
        });
        at += TYPE_BYTES
            + match kind {
                INT | VAR | DECL_TAG => 4,
                ARRAY => 12,
                STRUCT | UNION | DATASEC | ENUM64 => 12 * members,
                ENUM | FUNC_PROTO => 8 * members,
                _ => 0,
            };
    }
    Some(types)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

fn string(strings: &[u8], offset: u32) -> Option<&str> {
    let rest = strings.get(offset as usize..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}
