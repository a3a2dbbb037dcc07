//! Files of this process, mapped into the probed one: a kernel's array, or memory that both write.
//!
//! The process needs no permission for them: their descriptors are sent through a pair of sockets that it makes, as
//! `SCM_RIGHTS`, and closed again once they are mapped.

use super::{
    area::take,
    error::{Error, Result},
    layout::STATE_SCRATCH,
    maps::{is_copied, mappings},
    memory::Memory,
    runtime::Runtime,
    session::Session,
};
use rustix::{
    fd::{BorrowedFd, OwnedFd},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};
use std::{io::IoSlice, mem::MaybeUninit};

const PAGE: u64 = 4096;
/// Number of descriptors that are sent at once.
const AT_ONCE: usize = 32;
/// The offsets in the scratch page: a `struct msghdr`, its `struct iovec`, the byte that goes along, and the
/// descriptors.
const HEADER: u64 = 0;
const VECTOR: u64 = 64;
const BYTE: u64 = 96;
const CONTROL: u64 = 128;
/// The bytes of `struct msghdr`, and of `struct cmsghdr`, which the descriptors follow.
const HEADER_BYTES: usize = 56;
const CONTROL_HEADER: u64 = 16;

/// A file to map.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// The bytes, whole pages.
    pub bytes: u64,
    /// True if it can only be read.
    pub is_read_only: bool,
    /// Offset of a second mapping of the rest of the file, which follows the first one: a ring's records never end at
    /// its end.
    pub again_from: Option<u64>,
    /// The address that it has to have, for the kernel's arenas. Their pages come when they are used first.
    pub at: Option<u64>,
}

impl Shared<'_> {
    /// The bytes of all mappings.
    pub fn mapped(&self) -> u64 {
        self.bytes + self.again_from.map_or(0, |start| self.bytes - start)
    }
}

impl Runtime {
    /// Maps files into the process: all of them, or none. Returns their addresses. One of its threads is stopped for it.
    pub fn share(&mut self, all: &[Shared<'_>]) -> Result<Vec<u64>> {
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let session = Session::one(&self.tracer)?;
        let sharing = Sharing {
            session: &session,
            memory: &self.memory,
            pid: self.pid,
            scratch: self.areas.layout.base + STATE_SCRATCH,
        };
        let mut addresses = Vec::new();
        for some in all.chunks(AT_ONCE) {
            if let Err(error) = sharing.map_all(some, &mut addresses) {
                for (at, shared) in addresses.into_iter().zip(all) {
                    // The first error is the one that counts.
                    let _ = unmap(&session, at, shared.mapped());
                }
                return Err(error);
            }
        }
        session.finish()?;
        Ok(addresses)
    }

    /// Removes mappings, whose addresses and bytes these are, that no code uses yet.
    pub fn unshare(&mut self, all: &[(u64, u64)]) -> Result<()> {
        if all.is_empty() {
            return Ok(());
        }
        let session = Session::one(&self.tracer)?;
        for &(at, bytes) in all {
            unmap(&session, at, bytes)?;
        }
        session.finish()
    }
}

impl Runtime {
    /// Makes memory of the process alone, all of it zero, and zero again in each of its children. Returns its address.
    pub fn make_wiped(&mut self, bytes: u64) -> Result<u64> {
        let session = Session::one(&self.tracer)?;
        let bytes = bytes.next_multiple_of(PAGE);
        let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
        let map = [0, bytes, access, flags, u64::MAX, 0];
        let at = session.map(map)?;
        let wiped = [at, bytes, libc::MADV_WIPEONFORK as u64, 0, 0, 0];
        session.call("madvise", libc::SYS_madvise, wiped)?;
        session.finish()?;
        Ok(at)
    }

    /// Has forked children miss calls, as long as this is there, if the kernel does not copy a mapping for them, as newer
    /// ones do with arenas.
    pub fn close_to_children_without(&mut self, at: u64) -> Result<()> {
        let Some(children) = &mut self.areas.children else {
            return Ok(());
        };
        if !is_copied(self.pid, at)? {
            children.close()?;
        }
        Ok(())
    }
}

struct Sharing<'a> {
    session: &'a Session,
    memory: &'a Memory,
    pid: i32,
    scratch: u64,
}

impl Sharing<'_> {
    /// Maps files, and adds their addresses, up to the first error. None of their descriptors stays open.
    fn map_all(&self, all: &[Shared<'_>], addresses: &mut Vec<u64>) -> Result<()> {
        let mut result = Ok(());
        for (shared, file) in all.iter().zip(self.send(all)?) {
            if result.is_ok() {
                result = self.map(shared, file).map(|at| addresses.push(at));
            }
            let closed = self.close(file);
            result = result.and(closed);
        }
        result
    }

    /// Gives the process descriptors of these files. Returns their numbers there.
    fn send(&self, all: &[Shared<'_>]) -> Result<Vec<u64>> {
        let [family, kind] = [
            libc::AF_UNIX as u64,
            (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64,
        ];
        let call = [family, kind, 0, self.scratch, 0, 0];
        self.session
            .call("socketpair", libc::SYS_socketpair, call)?;
        let pair = self.memory.read_u64(self.scratch)?;
        let (ours, theirs) = (pair & 0xffff_ffff, pair >> 32);
        let sent = take(self.pid, ours as i32).and_then(|socket| {
            send(&socket, all)?;
            self.receive(theirs, all.len())
        });
        let [ours, theirs] = [ours, theirs].map(|socket| self.close(socket));
        ours.and(theirs)?;
        sent
    }

    fn receive(&self, socket: u64, count: usize) -> Result<Vec<u64>> {
        let at = self.scratch;
        let mut header = [0; HEADER_BYTES];
        let room = CONTROL_HEADER + 4 * count as u64;
        // Name and its length, vectors, control data and flags.
        for (offset, value) in [
            (16, at + VECTOR),
            (24, 1),
            (32, at + CONTROL),
            (40, room.next_multiple_of(8)),
        ] {
            header[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        self.memory.write(at + HEADER, &header)?;
        let vector = [(at + BYTE).to_le_bytes(), 1_u64.to_le_bytes()].concat();
        self.memory.write(at + VECTOR, &vector)?;
        // Where there is room for no descriptor, the kernel writes nothing here.
        self.memory.write(at + CONTROL, &[0; 8])?;
        let flags = (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as u64;
        let call = [socket, at + HEADER, flags, 0, 0, 0];
        self.session.call("recvmsg", libc::SYS_recvmsg, call)?;
        let got = self.memory.read_vec(at + CONTROL, room as usize)?;
        let bytes = u64::from_le_bytes(got[..8].try_into().expect("8 bytes"));
        let numbers = got[CONTROL_HEADER as usize..].chunks_exact(4);
        let number = |four: &[u8]| u64::from(u32::from_le_bytes(four.try_into().expect("4 bytes")));
        let numbers = numbers.map(number);
        if bytes != room {
            // Limits on open files are seen here, as a message that was cut.
            let received = bytes.saturating_sub(CONTROL_HEADER) / 4;
            for file in numbers.take(received as usize) {
                self.close(file)?;
            }
            let reason = "it has too many open files".to_owned();
            return Err(Error::Code {
                what: format!("process {}", self.pid),
                reason,
            });
        }
        Ok(numbers.collect())
    }

    /// Maps a file, and its end once more behind it.
    fn map(&self, shared: &Shared<'_>, file: u64) -> Result<u64> {
        let access = match shared.is_read_only {
            true => libc::PROT_READ,
            false => libc::PROT_READ | libc::PROT_WRITE,
        } as u64;
        // The pages are there: a probe does not wait until they are mapped.
        let flags = (libc::MAP_SHARED | libc::MAP_POPULATE) as u64;
        if let Some(at) = shared.at {
            return self.map_at(at, shared.bytes, access, file);
        }
        let Some(start) = shared.again_from else {
            let call = [0, shared.bytes, access, flags, file, 0];
            return self.session.map(call);
        };
        let nothing = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
        let call = [0, shared.mapped(), 0, nothing, u64::MAX, 0];
        let at = self.session.map(call)?;
        let fixed = flags | libc::MAP_FIXED as u64;
        for call in [
            [at, shared.bytes, access, fixed, file, 0],
            [
                at + shared.bytes,
                shared.bytes - start,
                access,
                fixed,
                file,
                start,
            ],
        ] {
            if let Err(error) = self.session.call("mmap", libc::SYS_mmap, call) {
                let _ = unmap(self.session, at, shared.mapped());
                return Err(error);
            }
        }
        Ok(at)
    }

    /// Maps a file at an address where nothing else is.
    fn map_at(&self, at: u64, bytes: u64, access: u64, file: u64) -> Result<u64> {
        let flags = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
        let call = [at, bytes, access, flags, file, 0];
        match self.session.map(call) {
            Err(Error::Remote { source, .. }) if source.raw_os_error() == Some(libc::EEXIST) => {
                let all = mappings(self.pid)?;
                let there = all
                    .iter()
                    .find(|one| one.start < at + bytes && at < one.end);
                let what = there.map_or("something", |one| match one.name.as_str() {
                    "" => "memory without a name",
                    name => name,
                });
                Err(Error::AddressTaken {
                    pid: self.pid,
                    address: at,
                    what: what.to_owned(),
                })
            }
            other => other,
        }
    }

    fn close(&self, file: u64) -> Result<()> {
        let call = [file, 0, 0, 0, 0, 0];
        self.session.call("close", libc::SYS_close, call).map(drop)
    }
}

fn unmap(session: &Session, at: u64, bytes: u64) -> Result<()> {
    let call = [at, bytes, 0, 0, 0, 0];
    session.call("munmap", libc::SYS_munmap, call).map(drop)
}

/// Sends descriptors, and a byte for them to go with.
fn send(socket: &OwnedFd, all: &[Shared<'_>]) -> Result<()> {
    debug_assert!(all.iter().all(|one| one.bytes.is_multiple_of(PAGE)));
    let files: Vec<BorrowedFd<'_>> = all.iter().map(|one| one.file).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fits = ancillary.push(SendAncillaryMessage::ScmRights(&files));
    debug_assert!(fits, "no more are sent than fit");
    let byte = [IoSlice::new(&[0])];
    sendmsg(socket, &byte, &mut ancillary, SendFlags::DONTWAIT)
        .map_err(|error| Error::system("sendmsg of the maps' descriptors", error))?;
    Ok(())
}
