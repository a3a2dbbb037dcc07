//! The tracer, a plugin of QEMU (`plugin/tracer.c`): writes down which instructions an emulated guest executes. It lies in
//! the guest's folder, which is where QEMU runs.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::FileExt as _,
    path::Path,
    process::Command,
};

use super::Tools;

/// The pipe that it writes to.
pub const PIPE: &str = "instructions";

const PLUGIN: &str = "tracer.so";
/// The file with the number of the recording under way.
const CONTROL: &str = "tracer-control";
/// Bytes of that file: a page, as it is mapped.
const CONTROL_BYTES: u64 = 4096;

/// The first QEMU that refuses plugins of version 1.
const FIRST_OF_VERSION_2: u32 = 9;

/// The plugin for QEMU up to 8, and for later ones.
const PLUGINS: [&[u8]; 2] = [
    include_bytes!(concat!(env!("OUT_DIR"), "/tracer1.so")),
    include_bytes!(concat!(env!("OUT_DIR"), "/tracer2.so")),
];

/// First bit of a word that defines an instruction.
const DEFINES: u32 = 1 << 31;
/// The end of a recording.
const END: u32 = u32::MAX;
/// The tracer's table of instructions is full.
const FULL: u32 = END - 1;

/// A part of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// The instruction of this number, before it is executed for the first time.
    Defined {
        /// Number in this recording.
        number: u32,
        /// Address.
        address: u64,
        /// Machine code, and zeros behind it.
        bytes: [u8; 16],
        /// Number of bytes.
        length: usize,
    },
    /// The instruction of this number is executed.
    Executed(u32),
}

/// Reads what the tracer writes, to the end of the recording.
pub fn read_traced(mut from: impl Read, mut each: impl FnMut(Traced)) -> io::Result<()> {
    let mut words = [[0; 4]; 7];
    loop {
        from.read_exact(&mut words[0])?;
        match u32::from_le_bytes(words[0]) {
            END => return Ok(()),
            FULL => {
                return Err(io::Error::other(
                    "it executed too many different instructions",
                ));
            }
            number if number & DEFINES == 0 => each(Traced::Executed(number)),
            defines => {
                from.read_exact(words.as_flattened_mut())?;
                let word = |at: usize| u32::from_le_bytes(words[at]);
                let mut bytes = [0; 16];
                bytes.copy_from_slice(words[3..].as_flattened());
                each(Traced::Defined {
                    number: word(0),
                    address: u64::from(word(1)) | u64::from(word(2)) << 32,
                    bytes,
                    length: ((defines ^ DEFINES) as usize).min(bytes.len()),
                });
            }
        }
    }
}

/// Writes the end of a recording, where the tracer does not.
pub fn end_recording(mut to: impl Write) -> io::Result<()> {
    to.write_all(&END.to_le_bytes())
}

/// The switch of the tracer in a guest's folder.
#[derive(Debug)]
pub struct TracerSwitch(File);

impl TracerSwitch {
    /// The switch of this guest; an error if its QEMU has no tracer.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let options = OpenOptions::new().write(true).open(folder.join(CONTROL));
        options.map(TracerSwitch)
    }

    /// Begins the recording of this number, which is not 0 and not that of an earlier one; 0 ends it.
    pub fn set(&self, recording: u32) -> io::Result<()> {
        self.0.write_all_at(&recording.to_ne_bytes(), 0)
    }
}

/// Puts it into the guest's folder; the arguments with which QEMU loads it. `None` if this QEMU takes no plugins.
pub(crate) fn install(tools: &Tools, folder: &Path) -> io::Result<Option<[String; 2]>> {
    let help = Command::new(&tools.qemu).arg("-help").output()?;
    if !String::from_utf8_lossy(&help.stdout).contains("\n-plugin ") {
        return Ok(None);
    }
    let later = major(&tools.qemu_version).is_some_and(|major| major >= FIRST_OF_VERSION_2);
    fs::write(folder.join(PLUGIN), PLUGINS[usize::from(later)])?;
    File::create_new(folder.join(CONTROL))?.set_len(CONTROL_BYTES)?;
    Ok(Some(["-plugin".to_owned(), format!("./{PLUGIN}")]))
}

/// The first number of a version.
fn major(version: &str) -> Option<u32> {
    version
        .split(|one: char| !one.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tracer_writes_is_read() {
        let words: [u32; 9] = [DEFINES | 3, 7, 0x8100_0000, 0xffff_ffff, 0xc089, 0, 0, 0, 7];
        let mut stream = words.map(u32::to_le_bytes).concat();
        end_recording(&mut stream).expect("written");
        let mut read = Vec::new();
        read_traced(stream.as_slice(), |one| read.push(one)).expect("read");
        let mut bytes = [0; 16];
        bytes[0] = 0x89;
        bytes[1] = 0xc0;
        let defined = Traced::Defined {
            number: 7,
            address: 0xffff_ffff_8100_0000,
            bytes,
            length: 3,
        };
        assert_eq!(read, [defined, Traced::Executed(7)]);
        let cut = &stream[..stream.len() - 4];
        assert!(read_traced(cut, |_| ()).is_err(), "it has no end");
    }

    #[test]
    fn the_first_number_decides() {
        assert_eq!(major("7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"), Some(7));
        assert_eq!(major("10.0.2"), Some(10));
        assert_eq!(major("built by hand"), None);
    }
}
