//! The instructions of the vDSO that the copy takes the place of.

use super::super::{
    error::Result,
    memory::{Memory, Write},
};
use object::{Object as _, ObjectSymbol as _};

const FUNCTION: &str = "__vdso_sgx_enter_enclave";
/// `enclu`.
const ENCLU: [u8; 3] = [0x0f, 0x01, 0xd7];
/// `rep movsb; ret`, to be called with RDI, RSI and RCX. RCX is the number of bytes that are left.
const COPY: [u8; 3] = [0xf3, 0xa4, 0xc3];
/// Start of the fix-up: it stores the numbers of the exception, which the kernel left in RDI, RSI and RDX.
const FIXUP: [u8; 11] = [
    0x48, 0x8b, 0x5d, 0x10, // mov rbx, [rbp + 16]
    0x89, 0x43, 0x08, // mov [rbx + 8], eax
    0x66, 0x89, 0x7b, 0x0c, // mov [rbx + 12], di
];
/// `ret`: RCX is as the fault left it.
const RETURN: [u8; 1] = [0xc3];

/// Addresses in a process, or offsets in its vDSO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Places {
    /// That of the copy.
    pub(super) copy: u64,
    /// That where the kernel has it go on after a fault.
    pub(super) fixup: u64,
}

impl Places {
    /// Finds the offsets in a vDSO, which is mapped as it is in its file. `None` where there is not exactly one of each.
    pub(super) fn find(image: &[u8]) -> Option<Self> {
        let file = object::File::parse(image).ok()?;
        let mut symbols = file.dynamic_symbols();
        let function = symbols.find(|symbol| symbol.name() == Ok(FUNCTION))?;
        let start = function.address();
        let end = start.checked_add(function.size())?;
        let code = image.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?;
        let places = Places {
            copy: start + only(code, &ENCLU)?,
            fixup: start + only(code, &FIXUP)?,
        };
        (places.copy + ENCLU.len() as u64 <= places.fixup).then_some(places)
    }

    /// The addresses, from offsets in a vDSO at this address.
    pub(super) fn in_vdso_at(self, start: u64) -> Self {
        Places {
            copy: start + self.copy,
            fixup: start + self.fixup,
        }
    }

    /// The writes that put the copy there.
    pub(super) fn writes(self) -> [Write; 2] {
        self.parts().map(|(address, _, ours)| Write {
            address,
            bytes: ours.to_vec(),
        })
    }

    /// Returns whether the copy is there.
    pub(super) fn are_written(self, memory: &Memory) -> Result<bool> {
        for (address, _, ours) in self.parts() {
            if memory.read_vec(address, ours.len())? != ours {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the original bytes back where ours are.
    pub(super) fn restore(self, memory: &Memory) -> Result<()> {
        for (address, original, ours) in self.parts() {
            if memory.read_vec(address, ours.len())? == ours {
                memory.write(address, original)?;
            }
        }
        Ok(())
    }

    /// Address, original bytes and ours of each part.
    fn parts(self) -> [(u64, &'static [u8], &'static [u8]); 2] {
        [
            (self.fixup, &FIXUP[..RETURN.len()], &RETURN),
            (self.copy, &ENCLU, &COPY),
        ]
    }
}

/// The offset of bytes that are in others exactly once.
fn only(code: &[u8], bytes: &[u8]) -> Option<u64> {
    let mut found = code
        .windows(bytes.len())
        .enumerate()
        .filter(|(_, window)| *window == bytes);
    let (offset, _) = found.next()?;
    found.next().is_none().then_some(offset as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, process::Command};

    /// A shared library with that function, of these bytes.
    fn library(name: &str, code: &[u8]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let [source, output] = ["vdso.S", "vdso.so"].map(|name| folder.path().join(name));
        let bytes: Vec<String> = code.iter().map(|byte| byte.to_string()).collect();
        let text = format!(
            ".globl {name}\n.type {name}, @function\nnop\n{name}: .byte {}\n.size {name}, . - {name}\n",
            bytes.join(", ")
        );
        fs::write(&source, text).unwrap();
        let mut compiler = Command::new("gcc");
        compiler.args(["-shared", "-nostdlib", "-o"]).arg(&output);
        assert!(compiler.arg(&source).status().unwrap().success());
        fs::read(output).unwrap()
    }

    #[test]
    fn both_places_are_found_by_name_and_bytes() {
        let code = [&[0x55], &ENCLU[..], &[0x90], &FIXUP[..], &[0xc3]].concat();
        let image = library(FUNCTION, &code);
        let places = Places::find(&image).unwrap();
        let at = |offset: u64, length: usize| &image[offset as usize..][..length];
        assert_eq!(at(places.copy, 3), ENCLU);
        assert_eq!(at(places.fixup, 11), FIXUP);
        let moved = places.in_vdso_at(0x1000);
        assert_eq!(moved.copy, places.copy + 0x1000);
        assert_eq!(moved.fixup, places.fixup + 0x1000);
        assert_eq!(Places::find(&library("other", &code)), None);
        assert_eq!(Places::find(b"no image"), None);
    }

    #[test]
    fn no_place_is_guessed() {
        for code in [
            &[&ENCLU[..], &ENCLU[..], &FIXUP[..]].concat()[..],
            &[&ENCLU[..], &FIXUP[..], &FIXUP[..]].concat()[..],
            &[&FIXUP[..], &ENCLU[..]].concat()[..],
            &ENCLU,
            &FIXUP,
            // That of another tool.
            &[&COPY[..], &FIXUP[..]].concat()[..],
            &[&ENCLU[..], &RETURN[..], &FIXUP[1..]].concat()[..],
        ] {
            assert_eq!(Places::find(&library(FUNCTION, code)), None, "{code:02x?}");
        }
    }
}
