//! Files of packages, deb(5): an ar archive whose member `data.tar.*` has the files to install.
//!
//! Only regular files are written, only below the folder that is named, and no link is ever made or followed.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use super::{
    Error, Observer,
    error::failed,
    unpack::{self, Packing},
};

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER_BYTES: usize = 60;
/// No package unpacks to more.
const MAX_UNPACKED_BYTES: u64 = 8 << 30;
/// Longer than any path that the kernel takes.
const MAX_PATH_BYTES: u64 = 4096;

/// Returns whether a file begins like a package.
pub fn is_package(file: &Path) -> bool {
    let mut start = [0; 21];
    File::open(file).is_ok_and(|mut file| file.read_exact(&mut start).is_ok())
        && start.starts_with(MAGIC)
        && start[MAGIC.len()..].starts_with(b"debian-binary")
}

/// Writes the files of a package that are accepted into a folder, which nothing else may write to meanwhile. Returns
/// how many files there were.
///
/// `accept` gets the path of each regular file, without a slash at its beginning.
pub fn extract(
    package: &Path,
    folder: &Path,
    accept: &mut dyn FnMut(&Path) -> bool,
    observer: &dyn Observer,
) -> Result<usize, Error> {
    let file = File::open(package).map_err(failed("read", package))?;
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let counted = Counted {
        file,
        done: 0,
        bytes: bytes.max(1),
        observer,
    };
    let mut count = 0;
    let mut made = PathBuf::new();
    let read = read(counted, observer, &mut |path, contents| {
        if !accept(path) {
            return Ok(());
        }
        let target = folder.join(path);
        let parent = target.parent().unwrap_or(folder);
        if parent != made {
            fs::create_dir_all(parent).map_err(failed("make", parent))?;
            made = parent.to_owned();
        }
        let mut file = File::create_new(&target).map_err(failed("write", &target))?;
        copy(contents, &mut file, &target)?;
        count += 1;
        Ok(())
    });
    match read {
        Ok(()) => Ok(count),
        Err(_) if observer.interrupted() => Err(Error::Interrupted),
        Err(Stop::Other(error)) => Err(error),
        Err(Stop::Damaged(why)) => {
            let name = package.file_name().unwrap_or_default().to_string_lossy();
            Err(Error::Package {
                file: bpfcost_text::line(&name),
                why: bpfcost_text::line(&why),
            })
        }
    }
}

/// Copies, so that a damaged source and a full disk are two things.
fn copy(from: &mut dyn Read, to: &mut File, path: &Path) -> Result<(), Stop> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Stop::Damaged(error.to_string())),
        };
        io::Write::write_all(to, &buffer[..read]).map_err(failed("write", path))?;
    }
}

/// Shows how much of a file was read.
struct Counted<'a> {
    file: File,
    done: u64,
    bytes: u64,
    observer: &'a dyn Observer,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.done += read as u64;
        self.observer
            .progress((self.done as f64 / self.bytes as f64).min(1.0));
        Ok(read)
    }
}

/// Reason not to read on in a package.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The package is damaged.
    Damaged(String),
    /// Something else failed.
    Other(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Other(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Damaged(error.to_string())
    }
}

impl From<&str> for Stop {
    fn from(why: &str) -> Self {
        Stop::Damaged(why.to_owned())
    }
}

/// Visits each regular file of a package.
pub(crate) fn read(
    mut package: impl Read,
    observer: &dyn Observer,
    visit: &mut dyn FnMut(&Path, &mut dyn Read) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut magic = [0; MAGIC.len()];
    package.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err("it is no archive".into());
    }
    let mut is_first = true;
    loop {
        let mut header = [0; HEADER_BYTES];
        package
            .read_exact(&mut header)
            .map_err(|_| "it ends before its files")?;
        let (name, bytes) = member(&header).ok_or("it has a damaged member")?;
        if is_first && name != "debian-binary" {
            return Err("it is an archive of another kind".into());
        }
        is_first = false;
        if let Some(ending) = name.strip_prefix("data.tar") {
            let packing = Packing::from_ending(ending).ok_or_else(|| {
                Stop::Damaged(format!(
                    "its files are packed in another way than xz or zstd ({ending})"
                ))
            })?;
            let data = Exact {
                file: package,
                left: bytes,
            };
            return files(unpack::reader(data, packing, observer)?, visit);
        }
        let padded = bytes + bytes % 2;
        if io::copy(&mut (&mut package).take(padded), &mut io::sink())? < padded {
            return Err("it ends before its files".into());
        }
    }
}

/// The name and the size of a member.
fn member(header: &[u8; HEADER_BYTES]) -> Option<(&str, u64)> {
    if !header.ends_with(b"`\n") {
        return None;
    }
    let text = std::str::from_utf8(header)
        .ok()
        .filter(|text| text.is_ascii())?;
    // Only GNU's ar ends names with a slash.
    let name = text[..16].trim_end().trim_end_matches('/');
    Some((name, text[48..58].trim_end().parse().ok()?))
}

/// So many bytes of a file; it is an error if they are not there.
struct Exact<R> {
    file: R,
    left: u64,
}

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.file.read(&mut buffer[..wanted])?;
        if read == 0 {
            return Err(io::Error::other("it is truncated"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// Visits the regular files of a tar archive. Links, devices and folders are left out.
fn files(
    data: impl Read,
    visit: &mut dyn FnMut(&Path, &mut dyn Read) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut archive = tar::Archive::new(data.take(MAX_UNPACKED_BYTES));
    let mut long_name = None;
    // Raw, as otherwise names of any length are read into memory.
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() {
            let mut name = Vec::new();
            (&mut entry).take(MAX_PATH_BYTES).read_to_end(&mut name)?;
            while name.last() == Some(&0) {
                name.pop();
            }
            long_name = Some(name);
            continue;
        }
        let name = match long_name.take() {
            Some(name) => name,
            None => entry.path_bytes().into_owned(),
        };
        if !kind.is_file() {
            continue;
        }
        visit(&inside(&name)?, &mut entry)?;
    }
    Ok(())
}

/// A path that cannot lead out of the folder that it is put into.
fn inside(name: &[u8]) -> Result<PathBuf, Stop> {
    let outside = || Stop::from("it has a file that would lie outside of its folder");
    let name = std::str::from_utf8(name).map_err(|_| "it has a file whose name is not UTF-8")?;
    let mut path = PathBuf::new();
    for component in Path::new(name).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) if !name.contains('\0') => path.push(part),
            _ => return Err(outside()),
        }
    }
    if path.as_os_str().is_empty() {
        return Err(outside());
    }
    Ok(path)
}

#[cfg(test)]
mod tests;
