//! Memory that stays in the process when a tool ends, for code whose address may be kept anywhere. The next tool goes on with
//! it.

use super::{
    area::CodeArea,
    error::Result,
    layout::{STATE_KEPT, STATE_KEPT_BYTES, STATE_TABLES, TABLES},
    memory::Write,
    runtime::Runtime,
    session::Session,
    trampoline::{ENTRIES, KEY, STUB, Table},
};

/// Places in the table of tables: of the free rest of memory for data, and of the first entry, which has the addresses of a
/// site, of the stubs and of the keys.
const DATA: usize = 0;
const FIRST: usize = 16;
const ENTRY: usize = 24;
const _: () = assert!(STATE_KEPT_BYTES + 4 == STATE_KEPT);

impl Runtime {
    /// Takes so many bytes for code that stays, which jumps from an address reach.
    pub(super) fn kept_code(&self, near: Option<u64>, size: u64) -> Result<u64> {
        // A stopped thread keeps other tools from doing the same.
        let session = Session::one(&self.tracer)?;
        let at = self.take_code(&session, near, size)?;
        session.finish()?;
        Ok(at)
    }

    fn take_code(&self, session: &Session, near: Option<u64>, size: u64) -> Result<u64> {
        let place = self.areas.layout.base + STATE_KEPT_BYTES as u64;
        let bytes = self.memory.read_vec(place, 12)?;
        let (left, next) = bytes.split_at(4);
        let left = u32::from_le_bytes(left.try_into().expect("4 bytes"));
        let next = number(next);
        let mut area = CodeArea::from_range(next..next + u64::from(left));
        let near = near.unwrap_or(next);
        if !area.fits(near, size) {
            let near = if near == 0 { self.code_begin() } else { near };
            area = CodeArea::create_kept(session, self.pid, near, size)?;
        }
        let at = area.take(size);
        let left = area.left() as u32;
        let bytes = [&left.to_le_bytes()[..], &area.next().to_le_bytes()].concat();
        write(session, place, bytes)?;
        Ok(at)
    }

    /// The table of return addresses of a site: the one that an earlier probe had there, or a new one. Its stubs may lead
    /// nowhere yet.
    pub(super) fn table(&self, site: u64) -> Result<Table> {
        let session = Session::one(&self.tracer)?;
        let page = self.areas.layout.base + STATE_TABLES;
        let bytes = self.memory.read_vec(page, TABLES)?;
        let mut known = tables(&bytes);
        if let Some((_, table)) = known.find(|&(of, _)| of == site) {
            session.finish()?;
            return Ok(table);
        }
        let stubs = self.take_code(&session, Some(site), ENTRIES * STUB)?;
        let (next, end) = (number(&bytes[DATA..]), number(&bytes[DATA + 8..]));
        let mut data = CodeArea::from_range(next..end);
        if !data.fits(stubs, ENTRIES * KEY) {
            data = CodeArea::create_data(&session, self.pid, stubs)?;
        }
        let keys = data.take(ENTRIES * KEY);
        let left = [data.next(), data.next() + data.left()].map(u64::to_le_bytes);
        write(&session, page + DATA as u64, left.concat())?;
        let mut entries = bytes[FIRST..].chunks_exact(ENTRY);
        match entries.position(|entry| number(entry) == 0) {
            Some(index) => {
                let entry = [site, stubs, keys].map(u64::to_le_bytes).concat();
                write(&session, page + (FIRST + index * ENTRY) as u64, entry)?;
            }
            // No one would know that these stubs lead to this tool's code.
            None => self.tracer.keep_mapped(),
        }
        session.finish()?;
        Ok(Table { keys, stubs })
    }
}

/// The tables of all sites that there were, in the bytes of the state.
pub(super) fn tables(bytes: &[u8]) -> impl Iterator<Item = (u64, Table)> {
    let entries = bytes[FIRST..].chunks_exact(ENTRY).map(|entry| {
        let (stubs, keys) = (number(&entry[8..]), number(&entry[16..]));
        (number(entry), Table { keys, stubs })
    });
    entries.filter(|&(site, _)| site != 0)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

/// Has the tracer process write it: what was mapped before in the session stays from then on.
fn write(session: &Session, address: u64, bytes: Vec<u8>) -> Result<()> {
    session.write(&[Write { address, bytes }])
}
