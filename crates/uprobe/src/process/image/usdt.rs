//! USDT sites: nops with a name, which `.note.stapsdt` lists as `sys/sdt.h` writes it.

use super::{Error, Image, Object, ObjectSection, ObjectSegment, Result, mappings, nearest, span};

/// The type of a site's note, and its name.
const TYPE: u32 = 3;
const NAME: &[u8] = b"stapsdt\0";

/// A place in a program that its source names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsdtSite {
    /// The address of the nop in the process.
    pub address: u64,
    /// The address in the process of the number of probes there. The program prepares arguments if it isn't 0.
    pub semaphore: Option<u64>,
    /// Locations of the arguments, as `sys/sdt.h` writes them: `-4@%edi 8@-8(%rbp)`.
    pub arguments: String,
}

/// A note. It has the addresses of the file when it was linked.
struct Note<'a> {
    provider: &'a str,
    name: &'a str,
    arguments: &'a str,
    address: u64,
    base: u64,
    semaphore: u64,
}

impl Image {
    /// The sites of a USDT probe: inlined functions have several. An error with similar probes where there is none.
    pub fn usdt(&self, provider: &str, name: &str) -> Result<Vec<UsdtSite>> {
        let file = self.elf()?;
        let notes = self.notes(&file)?;
        let is_wanted = |note: &&Note<'_>| note.provider == provider && note.name == name;
        let sites = notes.iter().filter(is_wanted).map(|note| UsdtSite {
            address: note.address,
            semaphore: (note.semaphore != 0).then_some(note.semaphore),
            arguments: note.arguments.to_owned(),
        });
        let sites: Vec<UsdtSite> = sites.collect();
        if sites.is_empty() {
            let all: Vec<String> = notes
                .iter()
                .map(|note| format!("{}:{}", note.provider, note.name))
                .collect();
            let probe = format!("{provider}:{name}");
            let nearest = nearest(&probe, all.iter().map(String::as_str).collect());
            return Err(Error::NoUsdt {
                path: self.path.clone(),
                probe,
                nearest,
            });
        }
        Ok(sites)
    }

    /// The address of the semaphore at an offset in the file. `None` where the process can't write what is there, which the
    /// kernel then leaves alone: bcc's Python tools give an offset at random. An error where it is something else's.
    pub(crate) fn semaphore(&self, offset: u64) -> Result<Option<u64>> {
        let file = self.elf()?;
        let bias = self.bias(&file)?;
        let address = file.segments().find_map(|segment| {
            let (start, bytes) = segment.file_range();
            let is_here = span(start, bytes).contains(&offset);
            is_here.then(|| segment.address().wrapping_add(offset - start))
        });
        let address = address.map(|address| address.wrapping_add(bias));
        let Some(address) = address.filter(|address| self.is_variable(*address)) else {
            return Ok(None);
        };
        let notes = self.notes(&file)?;
        if notes.iter().any(|note| note.semaphore == address) {
            return Ok(Some(address));
        }
        Err(Error::Symbol {
            symbol: format!("{offset:#x}"),
            reason: format!(
                "no USDT site of {} has its semaphore there: it would change a variable",
                self.path.display()
            ),
        })
    }

    /// Returns whether the process can write its own copy of what is at an address.
    fn is_variable(&self, address: u64) -> bool {
        let all = mappings(self.pid).unwrap_or_default();
        let mut here = all.iter().filter(|one| one.contains(address));
        here.any(|one| matches!(one.permissions.as_bytes(), [_, b'w', _, b'p']))
    }

    /// The file's notes, with addresses of the process.
    fn notes<'a>(&self, file: &object::File<'a>) -> Result<Vec<Note<'a>>> {
        let section = file.section_by_name(".note.stapsdt");
        let bytes = section.as_ref().map(|one| one.data()).transpose();
        let bytes = bytes.ok().flatten().unwrap_or_default();
        let mut notes = notes(bytes).ok_or_else(|| Error::Elf {
            path: self.path.clone(),
            reason: ".note.stapsdt is damaged".into(),
        })?;
        // The section's address in the file tells how far it was moved since it was linked (prelink).
        let base = file
            .section_by_name(".stapsdt.base")
            .map(|one| one.address());
        let bias = self.bias(file)?;
        for note in &mut notes {
            let moved = base.map_or(0, |base| base.wrapping_sub(note.base));
            let here = |address: u64| address.wrapping_add(moved).wrapping_add(bias);
            note.address = here(note.address);
            if note.semaphore != 0 {
                note.semaphore = here(note.semaphore);
            }
        }
        Ok(notes)
    }
}

/// Returns whether a section is one of notes.
pub(in crate::process) fn notes_are_whole(bytes: &[u8]) -> bool {
    notes(bytes).is_some()
}

/// The notes of a section, `None` where it isn't one.
fn notes(mut bytes: &[u8]) -> Option<Vec<Note<'_>>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let number = |bytes: &mut &[u8]| {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(u32::from_le_bytes(*number))
        };
        let (name, description) = (number(&mut bytes)?, number(&mut bytes)?);
        let kind = number(&mut bytes)?;
        let mut part = |size: u32| {
            let (part, rest) = bytes.split_at_checked(size as usize)?;
            // The padding behind the last may be missing.
            bytes = rest
                .get(size.next_multiple_of(4) as usize - size as usize..)
                .unwrap_or_default();
            Some(part)
        };
        let (name, description) = (part(name)?, part(description)?);
        if name == NAME && kind == TYPE {
            all.push(note(description)?);
        }
    }
    Some(all)
}

fn note(bytes: &[u8]) -> Option<Note<'_>> {
    let (numbers, strings) = bytes.split_at_checked(24)?;
    let mut numbers = numbers
        .chunks_exact(8)
        .map(|one| u64::from_le_bytes(one.try_into().expect("8 bytes")));
    let mut strings = strings.split(|&byte| byte == 0).map(std::str::from_utf8);
    let mut string = || strings.next()?.ok();
    Some(Note {
        address: numbers.next()?,
        base: numbers.next()?,
        semaphore: numbers.next()?,
        provider: string()?,
        name: string()?,
        arguments: string()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note of a site at 0x1000.
    fn bytes(semaphore: u64, strings: &[u8]) -> Vec<u8> {
        let mut description = [0x1000, 0x2000, semaphore].map(u64::to_le_bytes).concat();
        description.extend(strings);
        let mut bytes = [8, description.len() as u32, TYPE]
            .map(u32::to_le_bytes)
            .concat();
        bytes.extend(NAME);
        bytes.extend(&description);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn notes_are_read_one_behind_the_other() {
        let mut both = bytes(0, b"nginx\0http__start\0-4@%edi\0");
        both.extend(bytes(0x3000, b"nginx\0end\0\0"));
        let notes = notes(&both).unwrap();
        assert_eq!(notes.len(), 2);
        assert_eq!((notes[0].provider, notes[0].name), ("nginx", "http__start"));
        assert_eq!((notes[0].address, notes[0].base), (0x1000, 0x2000));
        assert_eq!((notes[0].semaphore, notes[0].arguments), (0, "-4@%edi"));
        assert_eq!((notes[1].semaphore, notes[1].arguments), (0x3000, ""));
    }

    #[test]
    fn others_notes_are_left_out_and_damaged_ones_refused() {
        let mut other = bytes(0, b"a\0b\0\0");
        other[8] = 1;
        assert!(notes(&other).unwrap().is_empty());
        let whole = bytes(0, b"a\0b\0\0");
        assert!(notes(&whole[..whole.len() - 6]).is_none());
        assert!(notes(&bytes(0, b"a")).is_none());
    }
}
