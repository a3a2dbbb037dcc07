//! Packed files: xz and zstd, read as they are unpacked.

use std::io::{self, BufReader, Read};

use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use super::Observer;

/// Memory of the unpacker of xz: twice what the strongest setting of xz takes.
const MAX_XZ_KIB: u32 = 128 << 10;
/// Reading in pieces of this size asks often enough whether to end.
const BUFFER_BYTES: usize = 1 << 18;

/// The packing of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Xz,
    Zstd,
}

impl Packing {
    /// The packing that the ending of a name stands for; `None` for others.
    pub(crate) fn from_ending(ending: &str) -> Option<Self> {
        match ending {
            "" => Some(Packing::Plain),
            ".xz" => Some(Packing::Xz),
            ".zst" => Some(Packing::Zstd),
            _ => None,
        }
    }
}

/// Reads what is packed. It fails when the observer asks for an end.
pub(crate) fn reader<'a>(
    file: impl Read + 'a,
    packing: Packing,
    observer: &'a dyn Observer,
) -> io::Result<Box<dyn Read + 'a>> {
    let file = BufReader::with_capacity(BUFFER_BYTES, Interruptible { file, observer });
    Ok(match packing {
        Packing::Plain => Box::new(file),
        Packing::Xz => Box::new(XzReader::new_mem_limit(file, true, MAX_XZ_KIB)),
        Packing::Zstd => Box::new(StreamingDecoder::new(file).map_err(io::Error::other)?),
    })
}

struct Interruptible<'a, R> {
    file: R,
    observer: &'a dyn Observer,
}

impl<R: Read> Read for Interruptible<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.observer.interrupted() {
            return Err(io::Error::other("interrupted"));
        }
        self.file.read(buffer)
    }
}
