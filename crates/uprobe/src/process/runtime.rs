//! Everything that is kept in one process to probe its functions: memory for threads, code, and the patched bytes.

use super::{
    area::{Areas, CodeArea},
    attachment::Attachment,
    children::{descendants, is_descendant},
    error::{Error, Result},
    guard::Guard,
    identity::{self, Proof},
    image::{Function, Image},
    maps::Mapping,
    memory::{Memory, Write},
    place::Place,
    program_list::Listed,
    replaced::Replaced,
    seccomp::Denied,
    session::{Session, Stops},
    site::{JUMP, Site, When},
    tail::Stubs,
    tracer::Tracer,
    trampoline::{Context, Role, Trampoline},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, atomic::AtomicBool},
};

/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE`.
const REGISTER_SYNC_CORE: [u64; 6] = [1 << 6, 0, 0, 0, 0, 0];
/// Areas beyond two for each thread that there is, and those for each CPU: threads come, the more the more CPUs there
/// are, and those that went are noticed at the next stop.
const SPARE_AREAS: u64 = 32;
const CPU_AREAS: u64 = 8;
/// The most bytes of a trampoline.
const TRAMPOLINE: u64 = 2048;

/// A program in the process: machine code that a C function of the type `u64 (const struct pt_regs *)` could be.
/// The program may use no vector register, and needs no more than 64 KiB of stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Program {
    /// The address.
    pub address: u64,
    /// The result of `bpf_get_attach_cookie` in it.
    pub cookie: u64,
}

impl Program {
    /// The same, with another cookie.
    #[must_use]
    pub fn with_cookie(self, cookie: u64) -> Self {
        Program { cookie, ..self }
    }

    /// Returns what a trampoline begins with once it is attached.
    pub(super) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_le_bytes());
        bytes
    }
}

/// Number of times a probe ran its program, and how often it could not: in as many probes already as a thread may be, no
/// area left. The sum is the number of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// The program's runs.
    pub hits: u64,
    /// Calls without it.
    pub missed: u64,
}

/// The memory and code of one process for probes. When this is dropped, the code goes once no thread is in it.
#[derive(Debug)]
pub struct Runtime {
    pub(super) pid: i32,
    pub(super) memory: Memory,
    pub(super) tracer: Arc<Tracer>,
    pub(super) areas: Areas,
    code: Vec<CodeArea>,
    /// Bytes that are still to be written into the process's code.
    pub(super) pending: Vec<Write>,
    /// The code of each site that was ever probed, by the instruction's address: it is used again.
    known: HashMap<(u64, When), Known>,
    /// Addresses at which that code goes on in functions, and of the instructions that jump there.
    backs: BTreeSet<(u64, u64)>,
    /// The slots of each function's entry and returns, and of each instruction inside: the first counts in the site's
    /// code, the others in lists of programs.
    pub(super) slots: HashMap<(u64, When), Vec<u64>>,
    /// The code of each list of programs that was ever needed: it is used again.
    pub(super) lists: HashMap<Vec<Listed>, u64>,
    /// Number of attachments that were prepared.
    pub(super) attachments: u64,
    /// Attachments that could not be restored when they ended: the process could not be stopped, or there
    /// was no memory for code.
    pub(super) lost: Vec<Attachment>,
    /// The bytes that are replaced now, by their address.
    pub(super) replaced: BTreeMap<u64, Replaced>,
    /// The programs that run there.
    pub(super) places: BTreeMap<u64, Place>,
    /// The copy for helpers, if it was loaded.
    pub(super) guard: Option<Guard>,
    /// Proof of a thread's identity in code that is assembled.
    pub(super) proof: Proof,
    denied: Denied,
    /// True if no other process had this memory at the last look.
    pub(super) is_alone: AtomicBool,
    /// The offset from a thread's FS base of the word that holds its number.
    pub(super) thread_word: Option<i64>,
}

#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) site: Site,
    /// Key of its counts: two functions may have one RET.
    key: (u64, When),
    pub(super) at: u64,
    pub(super) entry: u64,
    pub(super) moved: Vec<(u64, u64)>,
    pub(super) slot: u64,
    /// The stubs to which a function returns that leaves by a jump.
    pub(super) stubs: Option<Stubs>,
}

impl Known {
    /// Returns what has it run a program.
    pub(super) fn running(&self, program: Program) -> Write {
        Write {
            address: self.at,
            bytes: program.to_bytes().to_vec(),
        }
    }
}

/// An error where code is longer than what there is for it.
pub(super) fn check_length(what: &str, bytes: usize, most: usize) -> Result<()> {
    if bytes <= most {
        return Ok(());
    }
    let what = what.to_owned();
    Err(Error::TooLong { what, bytes, most })
}

/// A jump from one address to another.
pub(super) fn jump(pid: i32, from: u64, to: u64) -> Result<[u8; JUMP]> {
    let distance = to.wrapping_sub(from + JUMP as u64) as i64;
    let distance = i32::try_from(distance).map_err(|_| Error::NoGap { pid, size: 0 })?;
    let mut bytes = [0xe9, 0, 0, 0, 0];
    bytes[1..].copy_from_slice(&distance.to_le_bytes());
    Ok(bytes)
}

impl Runtime {
    /// Makes what probes need in a running process. Its threads are stopped for moments, mostly a single one.
    pub fn open(pid: i32) -> Result<Self> {
        super::support::check()?;
        let near = Image::program_address(pid)?;
        let memory = Memory::open(pid)?;
        let tracer = Arc::new(Tracer::start(pid, &memory)?);
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
            .map_err(|_| Error::Gone { pid })?
            .count() as u64;
        let mut layout = None;
        if Areas::adopt(pid, &memory)?.is_none() {
            // First: where there is a block, it was done. It takes some 10 ms, so the other threads go on.
            let session = Session::idle(&tracer)?;
            session.call("membarrier", libc::SYS_membarrier, REGISTER_SYNC_CORE)?;
            session.finish()?;
            let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
            let spare = SPARE_AREAS + CPU_AREAS * cpus;
            let session = Session::one(&tracer)?;
            layout = Some(Areas::prepare(&session, &memory, 2 * threads + spare)?);
            session.finish()?;
        }
        let session = Session::one(&tracer)?;
        let code = CodeArea::create(&session, pid, near, 0)?;
        session.finish()?;
        let session = Session::all(&tracer)?;
        // Another tool may have been faster.
        let areas = match (Areas::adopt(pid, &memory)?, layout) {
            (Some(areas), _) => areas,
            (None, Some(layout)) => Areas::create(&session, pid, &memory, layout)?,
            (None, None) => return Err(Error::Gone { pid }),
        };
        let thread_word = identity::thread_word(pid, session.threads(), &memory);
        session.finish()?;
        let denied = Denied::find(pid)?;
        tracer.set_mark(areas.mark(&memory)?);
        let mut runtime = Runtime {
            pid,
            memory,
            tracer,
            areas,
            code: vec![code],
            pending: Vec::new(),
            known: HashMap::new(),
            backs: BTreeSet::new(),
            slots: HashMap::new(),
            lists: HashMap::new(),
            attachments: 0,
            lost: Vec::new(),
            replaced: BTreeMap::new(),
            places: BTreeMap::new(),
            guard: None,
            proof: Proof {
                counter: None,
                // The filter may answer with the process's death.
                asks: denied.ask.is_none(),
            },
            denied,
            is_alone: AtomicBool::new(false),
            thread_word,
        };
        runtime.share_counter()?;
        runtime.wait_for_sharers()?;
        Ok(runtime)
    }

    /// Has forked children of the process run the probes that are attached from now on, and theirs. Their calls are
    /// counted with those of the process.
    pub fn follow_children(&mut self) -> Result<()> {
        if self.areas.children.is_none() {
            let session = Session::one(&self.tracer)?;
            self.areas
                .follow_children(&session, self.pid, &self.memory)?;
            session.finish()?;
        }
        if let Some(children) = &self.areas.children {
            self.tracer.set_children(children.inode);
        }
        Ok(())
    }

    /// Returns whether a process, with what it has mapped, is a child that was forked while children were followed, or a child's
    /// child, and runs the same program.
    pub fn is_parent_of(&self, pid: i32, mappings: &[Mapping]) -> bool {
        let children = self.areas.children.as_ref();
        children.is_some_and(|children| pid != self.pid && is_descendant(children.inode, mappings))
    }

    /// Returns whether there are such children, of those that had probes.
    pub fn has_children(&self) -> bool {
        let children = self.areas.children.as_ref();
        children.is_some_and(|children| {
            children.number() > 0 && !descendants(children.inode, self.pid).is_empty()
        })
    }

    /// System calls that the process's filters may not let pass.
    pub fn denied(&self) -> Denied {
        self.denied
    }

    /// Returns how many children had probes so far.
    pub fn children(&self) -> u64 {
        let children = self.areas.children.as_ref();
        children.map_or(0, |children| children.number())
    }

    /// Gives what children had that ended to those that come, where little is left. `release` is called before, where
    /// something is given, to release the locks of ended children.
    pub(crate) fn reuse_children(&self, release: impl FnOnce()) -> Result<()> {
        let children = self.areas.children.as_ref();
        children.map_or(Ok(()), |children| children.reuse(release))
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The stops of the process for this runtime so far.
    pub fn stops(&self) -> Stops {
        self.tracer.stops()
    }

    /// Stops all threads of the process, for [`Self::attach_in`] and [`Self::detach_in`].
    pub fn stop(&self) -> Result<Session> {
        Session::all(&self.tracer)
    }

    /// Puts code, or numbers that nobody changes, into the process: `write` returns the bytes, at most `most`, for the
    /// address that they get, a multiple of 64. They are there when the next probe is attached.
    pub fn load<E: From<Error>>(
        &mut self,
        most: usize,
        write: impl FnOnce(u64) -> Result<Vec<u8>, E>,
    ) -> Result<u64, E> {
        self.load_in(None, most, write)
    }

    /// Has all that was loaded be there now. The process is stopped for it.
    pub fn write_loaded(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let session = self.stop()?;
        self.write_code(&session)?;
        session.finish()
    }

    /// The same while a session of the process lasts, where there is one.
    pub(super) fn load_in<E: From<Error>>(
        &mut self,
        session: Option<&Session>,
        most: usize,
        write: impl FnOnce(u64) -> Result<Vec<u8>, E>,
    ) -> Result<u64, E> {
        let area = self.code_area(session, None, most as u64)?;
        let address = area.next();
        let bytes = write(address)?;
        check_length("a program", bytes.len(), most)?;
        area.take(bytes.len() as u64);
        self.pending.push(Write { address, bytes });
        Ok(address)
    }

    /// An address near which code is.
    pub(super) fn code_begin(&self) -> u64 {
        self.code[0].next()
    }

    /// Memory for so many bytes of code, which jumps from an address reach; made where there is none.
    pub(super) fn code_area(
        &mut self,
        session: Option<&Session>,
        near: Option<u64>,
        size: u64,
    ) -> Result<&mut CodeArea> {
        let near = near.unwrap_or_else(|| self.code_begin());
        let index = match self.code.iter().position(|area| area.fits(near, size)) {
            Some(index) => index,
            None => {
                let area = match session {
                    Some(session) => CodeArea::create(session, self.pid, near, size)?,
                    None => {
                        let session = Session::one(&self.tracer)?;
                        let area = CodeArea::create(&session, self.pid, near, size)?;
                        session.finish()?;
                        area
                    }
                };
                self.code.push(area);
                self.code.len() - 1
            }
        };
        Ok(&mut self.code[index])
    }

    /// The code of a site, made where there is none. Its program is not written yet.
    pub(super) fn trampoline(&mut self, function: &Function, site: &Site) -> Result<Known> {
        let key = site.key(function);
        let known = self.known.get(&(site.probed(), site.when));
        if let Some(known) = known.filter(|one| one.key == key && one.site.is_same(site)) {
            // Errors say the name that was asked for.
            let site = site.clone();
            return Ok(Known {
                site,
                ..known.clone()
            });
        }
        let slot = self.slot(key, |_| true)?;
        let context = Context {
            layout: self.areas.layout,
            proof: self.proof,
            slot,
            function: match site.when {
                When::Entry | When::Return => function.address,
                // The kernel's bpf_get_func_ip returns the uprobe's address.
                When::Inside => site.probed(),
            },
            role: Role::Probe,
        };
        let (at, trampoline, stubs) = if site.is_tail {
            let (at, trampoline, stubs) = self.tail(site, context)?;
            (at, trampoline, Some(stubs))
        } else {
            let (at, trampoline) = self.assemble(site.address, site, context)?;
            (at, trampoline, None)
        };
        let known = Known {
            site: site.clone(),
            key,
            at,
            entry: trampoline.entry,
            moved: trampoline.moved,
            slot,
            stubs,
        };
        self.backs
            .extend(trampoline.back.map(|back| (site.end(), back)));
        self.known.insert((site.probed(), site.when), known.clone());
        Ok(known)
    }

    /// Makes a trampoline that is in reach of an address. Returns where it begins, too.
    pub(super) fn assemble(
        &mut self,
        near: u64,
        site: &Site,
        context: Context,
    ) -> Result<(u64, Trampoline)> {
        let area = self.code_area(None, Some(near), TRAMPOLINE)?;
        let address = area.next();
        let trampoline = Trampoline::assemble(address, site, context)?;
        let bytes = trampoline.bytes.clone();
        check_length(&site.function, bytes.len(), TRAMPOLINE as usize)?;
        area.take(bytes.len() as u64);
        self.pending.push(Write { address, bytes });
        Ok((address, trampoline))
    }

    /// The first slot of a function's entry or returns, or of an instruction, that is free; another one where none is.
    pub(super) fn slot(&mut self, key: (u64, When), is_free: impl Fn(u64) -> bool) -> Result<u64> {
        let slots = self.slots.entry(key).or_default();
        if let Some(&slot) = slots.iter().find(|&&slot| is_free(slot)) {
            return Ok(slot);
        }
        let slot = self.areas.take_slot(self.pid, &self.memory)?;
        slots.push(slot);
        Ok(slot)
    }

    /// Returns whether the process still runs the program that this was made for.
    pub fn is_there(&self) -> bool {
        self.memory.read_u64(self.areas.layout.base).is_ok()
    }

    /// Takes so many bytes of each thread's memory, which are zero: where they begin there, and how far that is from a
    /// thread's control page, which the GS base points to.
    pub fn take_thread_memory(&mut self, bytes: u64) -> Result<(u64, u64)> {
        let start = self.areas.take_memory(self.pid, &self.memory, bytes)?;
        Ok((start, self.areas.layout.to_slots() + start))
    }

    /// Bytes of the memory of each thread that ever had some, also after the process's end.
    pub fn thread_memory(&self, start: u64, bytes: usize) -> Vec<Vec<u8>> {
        self.areas.read_memory(start, bytes)
    }

    /// Writes into the memory of each thread that has some, or is going to. What a thread writes at the same moment may
    /// win.
    pub fn set_thread_memory(&self, start: u64, bytes: &[u8]) {
        self.areas.write_memory(start, bytes);
    }

    /// Writes the code that was made since the last time.
    pub(super) fn write_code(&mut self, session: &Session) -> Result<()> {
        session.write(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    /// The same, and then writes code that threads executed before.
    pub(super) fn patch(&mut self, session: &Session, writes: Vec<Write>) -> Result<()> {
        let all = [&self.pending[..], &writes].concat();
        session.patch(&all)?;
        self.pending.clear();
        Ok(())
    }

    /// The writes that have the code of all other sites go on where a jump's bytes allow it, before the jump is written
    /// at an address: a thread may still be in the code of an earlier probe, which would lead into the middle of this
    /// jump. `moved` are the copies of the instructions that the jump replaces, or none when it is about to be removed.
    /// The process has to be stopped.
    pub(super) fn lead_back(&self, address: u64, moved: &[(u64, u64)]) -> Result<Vec<Write>> {
        let inside = (address + 1, 0)..(address + JUMP as u64, 0);
        let lead = |&(end, back): &(u64, u64)| {
            let copy = moved.iter().find(|&&(from, _)| from == end);
            let target = copy.map_or(end, |&(_, to)| to);
            Ok(Write {
                address: back,
                bytes: jump(self.pid, back, target)?.to_vec(),
            })
        };
        self.backs.range(inside).map(lead).collect()
    }

    /// The counts of a slot, since its first probe.
    pub(super) fn count(&self, slot: u64) -> Counts {
        let (hits, missed) = self.areas.count(slot);
        Counts { hits, missed }
    }
}
