//! The programs that a tool has loaded: their instructions, as it gave them to the kernel, proved by the kernel's tag.

#![allow(unsafe_code, reason = "asks the kernel")]

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
    time::Duration,
};

use libbpf_rs::libbpf_sys as sys;
use rustix::time::{ClockId, clock_gettime};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::{call::LoadProgram, caller::Caller, maps::Maps};
use crate::{
    object::LoadedProgram,
    translate::{Instruction, without_dead_code},
};

/// Sources of a wide load that name a map: by a file, and by a number among files that the call had elsewhere.
const MAP_FILE: [u8; 2] = [1, 2];
const MAP_INDEX: [u8; 2] = [5, 6];
const WIDE_LOAD: u8 = 0x18;
const TAG_BYTES: usize = 8;
/// The most maps of a program.
const MOST_MAPS: usize = 64;

/// A program that a tool gave to the kernel, whether or not that took it.
#[derive(Debug)]
pub(super) struct Captured {
    tags: [[u8; TAG_BYTES]; 2],
    /// All maps that the instructions name, by the kernel's numbers.
    named: Vec<u32>,
    /// The time before the kernel took it, since the machine's start.
    before: Duration,
    /// Without what is never executed.
    pub(super) instructions: Vec<Instruction>,
    /// The kernel's numbers of the maps that it uses.
    pub(super) maps: Vec<u32>,
    /// A reason for which the instructions are not those that the kernel verified.
    pub(super) unknown: Option<&'static str>,
}

/// A program of the kernel.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) fd: OwnedFd,
    tag: [u8; TAG_BYTES],
    /// The numbers of its maps.
    maps: Vec<u32>,
    /// The time at which it was loaded, since the machine's start.
    loaded: Duration,
}

impl Captured {
    /// The program that the tool is about to load. Maps become known by it, and are named by the kernel's numbers of them.
    pub(super) fn new(program: &LoadProgram, caller: &Caller, maps: &mut Maps) -> Self {
        let mut unknown = program
            .is_relocated
            .then_some("the kernel changes its instructions as it loads them (a light skeleton)");
        let raw = program.instructions.chunks_exact(8);
        let mut instructions: Vec<Instruction> = raw.map(instruction).collect();
        for one in &mut instructions {
            if one.code != WIDE_LOAD {
                continue;
            }
            if MAP_INDEX.contains(&one.src) {
                unknown = Some("it names its maps by numbers (a light skeleton)");
            }
            if MAP_FILE.contains(&one.src) {
                match maps.find(caller, one.immediate) {
                    Some(id) => one.immediate = id.cast_signed(),
                    // A file that is none is the kernel's to refuse.
                    None => unknown = Some("one of its maps can't be looked at"),
                }
            }
        }
        let numbers = |instructions: &[Instruction]| {
            let maps = instructions.iter().filter_map(Instruction::map);
            let mut numbers: Vec<u32> = maps.map(i32::cast_unsigned).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        let named = numbers(&instructions);
        let instructions =
            without_dead_code(&instructions, &|map| maps.constants(map.cast_unsigned()));
        Captured {
            tags: tags(&program.instructions),
            named,
            before: since_start(),
            maps: numbers(&instructions),
            instructions,
            unknown,
        }
    }

    /// The program of the kernel's among those that were captured, in their order: of equal ones, with the same maps, the last
    /// before it was loaded.
    pub(super) fn find<'a>(all: &'a [Captured], program: &Known) -> Option<&'a Captured> {
        all.iter().rev().find(|one| one.is(program))
    }

    /// Returns whether the kernel's program may have been loaded from it. The tag says nothing of maps.
    fn is(&self, program: &Known) -> bool {
        self.tags.contains(&program.tag)
            && self.before <= program.loaded
            && self.named.iter().all(|map| program.maps.contains(map))
    }
}

impl Known {
    /// The program that a file is of.
    pub(super) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let mut maps = vec![0_u32; MOST_MAPS];
        let mut info = sys::bpf_prog_info {
            nr_map_ids: MOST_MAPS as u32,
            map_ids: maps.as_mut_ptr() as u64,
            ..Default::default()
        };
        let mut bytes = size_of_val(&info) as u32;
        let into = (&raw mut info).cast();
        // SAFETY: the kernel writes at most so many bytes of what it knows of the program, and so many numbers of maps.
        let answer =
            unsafe { sys::bpf_obj_get_info_by_fd(fd.as_fd().as_raw_fd(), into, &raw mut bytes) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        maps.truncate(info.nr_map_ids as usize);
        let name = info.name.iter().take_while(|byte| **byte != 0);
        let name: Vec<u8> = name.map(|byte| byte.cast_unsigned()).collect();
        Ok(Known {
            id: info.id,
            name: String::from_utf8_lossy(&name).into_owned(),
            tag: info.tag,
            maps,
            loaded: Duration::from_nanos(info.load_time),
            fd,
        })
    }

    /// The program with these instructions, by a name that no other has. `file` has the file of a map by its number, where user space has the map.
    pub(super) fn with(
        self,
        captured: &Captured,
        file: impl Fn(u32) -> Option<RawFd>,
    ) -> Option<LoadedProgram> {
        let name = unique(&self.name, self.id);
        let mut instructions = captured.instructions.clone();
        for one in &mut instructions {
            if let Some(map) = one.map() {
                one.immediate = file(map.cast_unsigned())?;
            }
        }
        Some(LoadedProgram::from_parts(name, instructions, self.fd))
    }
}

/// A name that no other program has.
pub(super) fn unique(name: &str, id: u32) -> String {
    format!("{name}#{id}")
}

/// The time since the machine's start, sleep included, as the kernel has it of programs.
fn since_start() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

fn instruction(bytes: &[u8]) -> Instruction {
    let &[code, registers, low, high, ref immediate @ ..] = bytes else {
        unreachable!("an instruction has 8 bytes");
    };
    Instruction {
        code,
        dst: registers & 15,
        src: registers >> 4,
        offset: i16::from_le_bytes([low, high]),
        immediate: i32::from_le_bytes(immediate.try_into().expect("4 bytes")),
    }
}

/// The kernel's tags of instructions: of newer kernels (6.18), and of older ones. Maps' files are no part of it.
fn tags(instructions: &[u8]) -> [[u8; TAG_BYTES]; 2] {
    let mut bytes = instructions.to_vec();
    let mut is_second = false;
    for one in bytes.chunks_exact_mut(8) {
        let names_map = one[0] == WIDE_LOAD && MAP_FILE.contains(&(one[1] >> 4));
        if names_map || is_second {
            one[4..].fill(0);
        }
        is_second = names_map;
    }
    let first = |digest: &[u8]| digest[..TAG_BYTES].try_into().expect("digests are longer");
    [first(&Sha256::digest(&bytes)), first(&Sha1::digest(&bytes))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const INSTRUCTIONS: [u8; 16] = [0x18, 0x11, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    fn captured(named: &[u32], before: u64) -> Captured {
        Captured {
            tags: tags(&INSTRUCTIONS),
            named: named.to_owned(),
            before: Duration::from_secs(before),
            instructions: Vec::new(),
            maps: named.to_owned(),
            unknown: None,
        }
    }

    fn known(tag: [u8; TAG_BYTES], maps: &[u32], loaded: u64) -> Known {
        Known {
            id: 1,
            name: String::new(),
            fd: File::open("/dev/null").unwrap().into(),
            tag,
            maps: maps.to_owned(),
            loaded: Duration::from_secs(loaded),
        }
    }

    #[test]
    fn a_program_is_known_by_tag_maps_and_time() {
        let all = [captured(&[3], 10), captured(&[4], 20), captured(&[3], 30)];
        let [newer, older] = tags(&INSTRUCTIONS);
        let found = |tag, maps: &[u32], loaded| {
            let found = Captured::find(&all, &known(tag, maps, loaded));
            found.map(|one| one.before.as_secs())
        };
        assert_eq!(found(newer, &[4], 50), Some(20));
        assert_eq!(found(older, &[4], 50), Some(20));
        // libbpf binds further maps to it.
        assert_eq!(found(newer, &[4, 9], 50), Some(20));
        assert_eq!(found(newer, &[3], 50), Some(30));
        assert_eq!(found(newer, &[3], 29), Some(10));
        assert_eq!(found(newer, &[3], 9), None);
        assert_eq!(found(newer, &[5], 50), None);
        assert_eq!(found([0; TAG_BYTES], &[3], 50), None);
    }

    #[test]
    fn tags_leave_out_the_files_of_maps_alone() {
        let mut other = INSTRUCTIONS;
        other[4] = 9;
        assert_eq!(tags(&INSTRUCTIONS), tags(&other));
        other[12] = 1;
        assert_eq!(tags(&INSTRUCTIONS), tags(&other));
        other[2] = 1;
        assert_ne!(tags(&INSTRUCTIONS), tags(&other));
        // Of a number, all of it counts.
        let number = |value| [0x18, 0x01, 0, 0, value, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_ne!(tags(&number(1)), tags(&number(2)));
    }
}
