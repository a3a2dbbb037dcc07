//! Kernel images: which release they are, and whether they are whole.
//!
//! The header of a bzImage is that of the kernel's Documentation/arch/x86/boot.rst.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
};

use sha2::{Digest, Sha256};

use super::{Architecture, Error, error::failed, release};

/// Where a bzImage says how long its set-up code is, in sectors.
const SETUP_SECTORS: usize = 0x1f1;
/// … how long the rest is, in units of 16 bytes.
const SYSTEM_SIZE: usize = 0x1f4;
/// … that it is a boot sector, and a kernel.
const BOOT_FLAG: usize = 0x1fe;
const MAGIC: usize = 0x202;
/// … where its version stands, counted from [`VERSION_BASE`].
const VERSION: usize = 0x20e;
const VERSION_BASE: usize = 0x200;
const SECTOR: usize = 512;

/// Kernel in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) release: String,
    /// `None` for those of which Debian has no kernels for guests.
    pub(super) architecture: Option<Architecture>,
}

/// Reads about the kernel in an image: a bzImage, an ELF vmlinux, or an arm64 Image.
pub(super) fn read(path: &Path) -> Result<Image, Error> {
    let wrong = |why: &str| {
        Error::Input(format!(
            "{} is not a kernel image: {why}\n  Name a bzImage or vmlinuz, e.g. \
             /boot/vmlinuz-6.12.107 or arch/x86/boot/bzImage",
            path.display()
        ))
    };
    let metadata = fs::metadata(path).map_err(|error| wrong(&error.to_string()))?;
    if !metadata.is_file() {
        return Err(wrong("it is not a regular file"));
    }
    let bytes = fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    let (release, architecture) = if bytes.get(MAGIC..MAGIC + 4) == Some(b"HdrS") {
        (of_bz_image(&bytes), Some(Architecture::Amd64))
    } else if bytes.starts_with(b"\x7fELF") {
        (of_plain_image(&bytes), elf_architecture(&bytes))
    } else if bytes.get(0x38..0x3c) == Some(b"ARM\x64") {
        (of_plain_image(&bytes), Some(Architecture::Arm64))
    } else {
        return Err(wrong("it does not have the header of one"));
    };
    let release = release.map_err(wrong)?;
    if !release::is_valid(&release) {
        return Err(wrong("its header names no release"));
    }
    Ok(Image {
        release,
        architecture,
    })
}

/// The architecture in the header of a little-endian ELF file.
fn elf_architecture(bytes: &[u8]) -> Option<Architecture> {
    match bytes.get(18..20)? {
        [62, 0] => Some(Architecture::Amd64),
        [183, 0] => Some(Architecture::Arm64),
        _ => None,
    }
}

fn of_bz_image(bytes: &[u8]) -> Result<String, &'static str> {
    let cut = "it is truncated";
    let word = |at: usize| {
        bytes
            .get(at..at + 2)
            .map(|two| usize::from(two[0]) | usize::from(two[1]) << 8)
    };
    if word(BOOT_FLAG) != Some(0xaa55) {
        return Err("it does not have the header of one");
    }
    // 0 stands for 4, from the time of floppy disks.
    let sectors = match bytes.get(SETUP_SECTORS).ok_or(cut)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let low = word(SYSTEM_SIZE).ok_or(cut)?;
    let high = word(SYSTEM_SIZE + 2).ok_or(cut)?;
    let whole = (sectors + 1) * SECTOR + ((high << 16 | low) << 4);
    if bytes.len() < whole {
        return Err(cut);
    }
    let at = word(VERSION)
        .filter(|at| *at != 0)
        .ok_or("its header names no release")?;
    first_word(bytes.get(at + VERSION_BASE..).ok_or(cut)?)
}

fn of_plain_image(bytes: &[u8]) -> Result<String, &'static str> {
    const BANNER: &[u8] = b"Linux version ";
    let missing = "it contains no Linux version; a compressed image must be a bzImage";
    // The format string of the banner comes with `%s` in its place: a release begins with a digit.
    let at = bytes
        .windows(BANNER.len() + 1)
        .position(|window| window.starts_with(BANNER) && window[BANNER.len()].is_ascii_digit())
        .ok_or(missing)?;
    first_word(&bytes[at + BANNER.len()..])
}

fn first_word(bytes: &[u8]) -> Result<String, &'static str> {
    let end = bytes
        .iter()
        .position(|byte| *byte == b' ' || *byte == 0)
        .ok_or("it is truncated")?;
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// The SHA-256 of a file, in hexadecimal digits.
pub(super) fn sha256(path: &Path) -> Result<String, Error> {
    let mut file = File::open(path).map_err(failed("read", path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(failed("read", path))? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The smallest file that has all that is looked at in a bzImage.
    pub(crate) fn bz_image(release: &str) -> Vec<u8> {
        let mut bytes = vec![0; 2 * SECTOR + 64];
        bytes[SETUP_SECTORS] = 1;
        bytes[SYSTEM_SIZE] = 4;
        bytes[BOOT_FLAG..BOOT_FLAG + 2].copy_from_slice(&[0x55, 0xaa]);
        bytes[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        bytes[VERSION..VERSION + 2].copy_from_slice(&[0x80, 0]);
        let version = format!("{release} (somebody@example.invalid) #1 SMP\0");
        bytes[0x280..0x280 + version.len()].copy_from_slice(version.as_bytes());
        bytes
    }

    fn image_of(bytes: &[u8]) -> Result<Image, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        read(file.path()).map_err(|error| error.to_string())
    }

    fn release_of(bytes: &[u8]) -> Result<String, String> {
        image_of(bytes).map(|image| image.release)
    }

    #[test]
    fn images_tell_their_release() {
        let whole = bz_image("6.12.107+deb13-amd64");
        assert_eq!(release_of(&whole).unwrap(), "6.12.107+deb13-amd64");
        // Signed images go on after their end.
        assert_eq!(
            release_of(&[whole, vec![7; 99]].concat()).unwrap(),
            "6.12.107+deb13-amd64"
        );
        let elf = b"\x7fELF..Linux version %s (..Linux version 6.1.5-x (me) #1\0";
        assert_eq!(release_of(elf).unwrap(), "6.1.5-x");
    }

    #[test]
    fn images_tell_their_architecture() {
        let of = |bytes: &[u8]| image_of(bytes).unwrap().architecture;
        assert_eq!(of(&bz_image("6.1.0")), Some(Architecture::Amd64));
        let mut bytes = b"Linux version 6.1.5-x (me)".to_vec();
        bytes.splice(0..0, [0; 0x40]);
        bytes[0x38..0x3c].copy_from_slice(b"ARM\x64");
        assert_eq!(of(&bytes), Some(Architecture::Arm64));
        bytes[..4].copy_from_slice(b"\x7fELF");
        for (machine, architecture) in [
            (62, Some(Architecture::Amd64)),
            (183, Some(Architecture::Arm64)),
            (243, None),
        ] {
            bytes[18] = machine;
            assert_eq!(of(&bytes), architecture, "{machine}");
        }
    }

    #[test]
    fn what_is_no_image_says_why() {
        let whole = bz_image("6.1.0");
        for (bytes, why) in [
            (&b"#!/bin/sh\n"[..], "not have the header"),
            (&[], "not have the header"),
            (&whole[..whole.len() - 1], "truncated"),
            (&whole[..0x210], "truncated"),
            (&bz_image("../../etc"), "names no release"),
            (&bz_image(""), "names no release"),
            (b"\x7fELF no version", "contains no Linux version"),
            (b"\x7fELF Linux version 6.1", "truncated"),
        ] {
            let error = release_of(bytes).unwrap_err();
            assert!(error.contains(why), "{error}");
            assert!(error.contains("bzImage or vmlinuz"), "{error}");
        }
        assert!(matches!(read(Path::new("/")), Err(Error::Input(_))));
        assert!(matches!(read(Path::new("/no/such")), Err(Error::Input(_))));
    }
}
