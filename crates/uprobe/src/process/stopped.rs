//! A process whose threads are all stopped, for a moment, by ptrace.
//!
//! Threads are seized and interrupted until no new one appears: a thread that is about to make another stops only
//! after that one is in the list. A thread counts as stopped in `PTRACE_EVENT_STOP` alone. In any other stop, the
//! kernel may still have work to do on its registers; there, it is made to go on until it arrives in this one.
//! Dropped, the threads are let go with the registers that they have then.

#![allow(
    unsafe_code,
    reason = "nix has neither waitid's WNOWAIT for threads nor all of ptrace"
)]

use super::{
    error::{Error, Result},
    permission,
    priority::{Priority, cpu_time},
};
use nix::{
    errno::Errno,
    sys::ptrace::{self, Options},
    unistd::Pid,
};
use std::{
    collections::BTreeSet,
    fs, io, mem,
    num::NonZeroU64,
    time::{Duration, Instant},
};

/// The registers of a thread, as ptrace has them.
pub type Registers = libc::user_regs_struct;

/// Time that a thread may take to stop: it does so as soon as it runs, and returns from the kernel.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which the others stand still meanwhile, if it sleeps and no signal wakes it: in `vfork`, until its child executes
/// another program.
const STOP_BUDGET: Duration = Duration::from_millis(50);
/// Time that a thread which did not stop may take to be let go: the kernel does it with the tracer's end otherwise.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// After how long a thread that has not stopped is interrupted again.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(20);
/// Time that a wait sleeps between two questions. To yield instead would take longest where CPUs are few.
const POLL_INTERVAL: Duration = Duration::from_micros(5);

/// The timer slack that threads begin with, in nanoseconds.
const DEFAULT_SLACK: u64 = 50_000;

/// The event of a stop that PTRACE_INTERRUPT, or a group stop, caused.
const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;
/// Signal that a system call's stop reports instead of SIGTRAP.
const SYSCALL_TRAP: i32 = libc::SIGTRAP | 0x80;

/// `PTRACE_SECCOMP_GET_FILTER`.
const GET_FILTER: libc::c_uint = 0x420c;

/// Threads that are stopped until this is dropped. All of its functions must be called on the thread that made it.
#[derive(Debug)]
pub struct Stopped {
    pid: i32,
    threads: BTreeSet<i32>,
    since: Instant,
    /// How long after that a thread may sleep that does not arrive.
    budget: Duration,
    /// This thread's timer slack before, in nanoseconds.
    slack: u64,
    /// Calls of `waitid` and `ptrace` belong to one thread.
    not_send: std::marker::PhantomData<*const ()>,
}

/// Kind of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// In PTRACE_EVENT_STOP: registers may be read and written.
    Interrupted,
    /// At the entry or the exit of a system call.
    SystemCall,
    /// About to receive a signal.
    Signal(i32),
    /// Another event.
    Other,
    /// The thread is gone.
    Dead,
}

impl Stopped {
    /// Stops all threads of a process. Where one sleeps and does not arrive, all go on until it does, and it is tried again.
    pub fn all(pid: i32) -> Result<Self> {
        let start = Instant::now();
        loop {
            match Self::all_at_once(pid) {
                Err(Error::Unstoppable { .. }) if start.elapsed() < STOP_TIMEOUT => {}
                result => return result,
            }
        }
    }

    /// The same, without a second attempt.
    pub(super) fn all_at_once(pid: i32) -> Result<Self> {
        let mut stopped = Self::none(pid, STOP_BUDGET)?;
        let options = stopped.options()?;
        let mut known = BTreeSet::new();
        loop {
            // One that was left out is dead, unless its number is another's by now.
            let mut new = all_threads(pid)?;
            new.retain(|tid| {
                !stopped.threads.contains(tid) && (known.insert(*tid) || !is_dead(pid, *tid))
            });
            if new.is_empty() {
                break;
            }
            for &tid in &new {
                stopped.seize(tid, options)?;
            }
            for tid in new
                .into_iter()
                .filter(|tid| stopped.threads.contains(tid))
                .collect::<Vec<_>>()
            {
                stopped.arrive(tid)?;
            }
            // None is left where all were zombies, or died.
            if stopped.threads.is_empty() {
                return Err(Error::Gone { pid });
            }
        }
        Ok(stopped)
    }

    /// Stops a single thread of a process, the others go on.
    pub fn one(pid: i32) -> Result<Self> {
        Self::first(pid, threads(pid)?)
    }

    /// The same, with the thread that has used the least CPU time: what it does takes long, and others have more to do.
    pub(super) fn idle(pid: i32) -> Result<Self> {
        let mut threads = threads(pid)?;
        threads.sort_by_key(|&tid| cpu_time(pid, tid));
        Self::first(pid, threads)
    }

    /// The first of these threads that executes code of the process.
    fn first(pid: i32, threads: Vec<i32>) -> Result<Self> {
        let mut stopped = Self::none(pid, STOP_TIMEOUT)?;
        let options = stopped.options()?;
        for tid in threads {
            stopped.seize(tid, options)?;
            if stopped.threads.contains(&tid) {
                stopped.arrive(tid)?;
            }
            if stopped.threads_of_user().next().transpose()?.is_some() {
                return Ok(stopped);
            }
        }
        Err(Error::Gone { pid })
    }

    fn none(pid: i32, budget: Duration) -> Result<Self> {
        let (state, tracer) = (status(pid, "State")?, status(pid, "TracerPid")?);
        if state.starts_with(['Z', 'X']) {
            // A leader that ended before its threads is a zombie too.
            if threads(pid)?.is_empty() {
                return Err(Error::NoProcess { pid });
            }
        }
        match tracer.parse() {
            Ok(0) | Err(_) => {}
            Ok(tracer) => return Err(Error::Traced { pid, tracer }),
        }
        // By default, sleeps take up to 50 µs longer than they are told to.
        let slack = rustix::thread::current_timer_slack().unwrap_or(DEFAULT_SLACK);
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Ok(Stopped {
            pid,
            threads: BTreeSet::new(),
            since: Instant::now(),
            budget,
            slack,
            not_send: std::marker::PhantomData,
        })
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The stopped threads, by ascending ID.
    pub fn threads(&self) -> impl Iterator<Item = i32> + '_ {
        self.threads.iter().copied()
    }

    /// Returns how long the process has been stopped, from before its first thread was.
    pub fn duration(&self) -> Duration {
        self.since.elapsed()
    }

    /// The registers of a stopped thread.
    pub fn registers(&self, tid: i32) -> Result<Registers> {
        ptrace::getregs(Pid::from_raw(tid)).map_err(|error| self.error("PTRACE_GETREGS", error))
    }

    /// Threads that execute code of the process, with their registers. Those of io_uring are the kernel's own.
    pub(super) fn threads_of_user(&self) -> impl Iterator<Item = Result<(i32, Registers)>> {
        let all = self.threads().map(|tid| Ok((tid, self.registers(tid)?)));
        // So that debuggers see that they never go there, the kernel sets both to 0.
        let is_of_kernel = |one: &Registers| (one.rip, one.rsp) == (0, 0);
        all.filter(move |one| !matches!(one, Ok((_, one)) if is_of_kernel(one)))
    }

    /// The filters of a stopped thread's system calls; `None` where they can't be read: that takes `CAP_SYS_ADMIN`, and a
    /// process here without filters.
    pub(super) fn filters(&self, tid: i32) -> Option<Vec<Vec<libc::sock_filter>>> {
        let ask = |index: usize, to: *mut libc::sock_filter| {
            // SAFETY: without an address, the kernel writes nothing; else as many as it said before, for which there is room.
            let length = unsafe { libc::ptrace(GET_FILTER, tid, index, to) };
            Errno::result(length).map(|length| length as usize)
        };
        let mut filters = Vec::new();
        loop {
            let length = match ask(filters.len(), std::ptr::null_mut()) {
                Ok(length) => length,
                // There is none behind the last.
                Err(Errno::ENOENT) if !filters.is_empty() => return Some(filters),
                Err(_) => return None,
            };
            let nothing = libc::sock_filter {
                code: 0,
                jt: 0,
                jf: 0,
                k: 0,
            };
            let mut filter = vec![nothing; length];
            ask(filters.len(), filter.as_mut_ptr()).ok()?;
            filters.push(filter);
        }
    }

    /// Gives a stopped thread other registers.
    pub fn set_registers(&self, tid: i32, registers: Registers) -> Result<()> {
        ptrace::setregs(Pid::from_raw(tid), registers)
            .map_err(|error| self.error("PTRACE_SETREGS", error))
    }

    fn options(&self) -> Result<Options> {
        let suspend = Options::from_bits_retain(libc::PTRACE_O_SUSPEND_SECCOMP);
        Ok(if has_seccomp(self.pid)? {
            Options::PTRACE_O_TRACESYSGOOD | suspend
        } else {
            Options::PTRACE_O_TRACESYSGOOD
        })
    }

    /// Seizes and interrupts a thread. One that is gone, or a zombie, is left out.
    fn seize(&mut self, tid: i32, options: Options) -> Result<()> {
        let thread = Pid::from_raw(tid);
        let suspends = options.bits() & libc::PTRACE_O_SUSPEND_SECCOMP != 0;
        match seize_thread(thread, options) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(()),
            Err(Errno::EPERM) if is_dead(self.pid, tid) => return Ok(()),
            Err(error) if suspends => {
                // Whether the seizing, or only the option, is forbidden.
                return Err(match seize_thread(thread, Options::PTRACE_O_TRACESYSGOOD) {
                    Ok(()) => {
                        // Interrupted, it can be detached from again.
                        self.threads.insert(tid);
                        let _ = ptrace::interrupt(thread);
                        let _ = self.arrive(tid);
                        Error::Seccomp {
                            pid: self.pid,
                            source: error.into(),
                        }
                    }
                    Err(error) => self.refused(tid, error),
                });
            }
            Err(error) => return Err(self.refused(tid, error)),
        }
        self.threads.insert(tid);
        self.interrupt(tid)
    }

    /// Has a thread enter PTRACE_EVENT_STOP as soon as it runs. Any other stop before that one takes the interrupt
    /// back.
    pub(super) fn interrupt(&self, tid: i32) -> Result<()> {
        match ptrace::interrupt(Pid::from_raw(tid)) {
            // It was killed: the next wait says so.
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(self.error("PTRACE_INTERRUPT", error)),
        }
    }

    /// Waits until a thread that was seized and interrupted is in PTRACE_EVENT_STOP, or dead.
    fn arrive(&mut self, tid: i32) -> Result<()> {
        // With the interrupt pending, it can't make another thread any more.
        let _priority = Priority::raise(tid);
        loop {
            let signal = match self.wait(tid, STOP_TIMEOUT)? {
                Stop::Interrupted => return Ok(()),
                Stop::Dead => {
                    self.threads.remove(&tid);
                    return Ok(());
                }
                Stop::Signal(signal) => signal,
                Stop::SystemCall | Stop::Other => 0,
            };
            self.interrupt(tid)?;
            self.resume(tid, libc::PTRACE_CONT, signal)?;
        }
    }

    /// Waits for the next stop of a thread that may be in the kernel for long.
    fn wait(&self, tid: i32, timeout: Duration) -> Result<Stop> {
        let start = Instant::now();
        let mut again = INTERRUPT_INTERVAL;
        loop {
            if let Some(stop) = self.look(tid, libc::WNOHANG)? {
                return Ok(stop);
            }
            if start.elapsed() > timeout {
                return Err(Error::Unstoppable { pid: self.pid, tid });
            }
            // Whatever took the interrupt back. One too many is taken back by the stop.
            if start.elapsed() > again {
                if self.since.elapsed() > self.budget && state(self.pid, tid) == Some('D') {
                    return Err(Error::Unstoppable { pid: self.pid, tid });
                }
                self.interrupt(tid)?;
                again += INTERRUPT_INTERVAL;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits for the next stop of a thread that runs, or that is in a system call of ours.
    pub(super) fn wait_running(&self, tid: i32) -> Result<Stop> {
        loop {
            if let Some(stop) = self.look(tid, 0)? {
                return Ok(stop);
            }
        }
    }

    fn look(&self, tid: i32, flags: i32) -> Result<Option<Stop>> {
        let state =
            look(tid, flags | libc::WNOWAIT).map_err(|error| self.error("waitid", error))?;
        let Some((code, status)) = state else {
            return Ok(None);
        };
        let stop = match code {
            libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED => Stop::Dead,
            _ if status >> 8 == EVENT_STOP => Stop::Interrupted,
            _ if status >> 8 != 0 => Stop::Other,
            _ if status == SYSCALL_TRAP => Stop::SystemCall,
            _ => Stop::Signal(status),
        };
        if stop == Stop::Dead {
            self.reap(tid);
        } else {
            let _ = look(tid, libc::WNOHANG);
        }
        Ok(Some(stop))
    }

    /// Takes notice of a thread's death, without which its process never ends. The process itself, where it is a
    /// child of this one, is left to what started it: its exit status is not ours to take.
    fn reap(&self, tid: i32) {
        if tid != self.pid || !is_child(tid) {
            let _ = look(tid, libc::WNOHANG);
        }
    }

    /// Lets a stopped thread go on: PTRACE_CONT, PTRACE_DETACH, or PTRACE_SYSCALL up to its next system call.
    pub(super) fn resume(&self, tid: i32, request: libc::c_uint, signal: i32) -> Result<()> {
        // SAFETY: neither request reads or writes memory of this process.
        let result = unsafe { libc::ptrace(request, tid, 0_usize, signal as usize) };
        match Errno::result(result) {
            // It was killed: the next wait says so.
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(self.error("PTRACE_CONT", error)),
        }
    }

    pub(super) fn error(&self, what: &str, error: Errno) -> Error {
        match error {
            Errno::ESRCH | Errno::ECHILD => Error::Gone { pid: self.pid },
            _ => Error::system(format!("{what} of process {}", self.pid), error),
        }
    }

    fn refused(&self, tid: i32, error: Errno) -> Error {
        let pid = self.pid;
        match (error, tracer(tid)) {
            (Errno::EPERM, Some(tracer)) if tracer != 0 => Error::Traced { pid, tracer },
            (Errno::EPERM | Errno::EACCES, _) => permission::refused(pid),
            (error, _) => self.error("PTRACE_SEIZE", error),
        }
    }
}

/// The process that traces a thread, 0 for none; `None` where that can't be read.
fn tracer(tid: i32) -> Option<i32> {
    status(tid, "TracerPid").ok()?.parse().ok()
}

/// Seizes a thread. A thread that another process traces is refused as a protected one is; where that process is gone when
/// it is looked for, the thread is tried again.
fn seize_thread(thread: Pid, options: Options) -> nix::Result<()> {
    match ptrace::seize(thread, options) {
        Err(Errno::EPERM) if tracer(thread.as_raw()) == Some(0) => ptrace::seize(thread, options),
        seized => seized,
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(self.slack));
        // Nothing waits for it any more.
        self.budget = Duration::MAX;
        let mut late = self.threads.clone();
        late.retain(|&tid| ptrace::detach(Pid::from_raw(tid), None) == Err(Errno::ESRCH));
        for tid in late {
            // It is dead, or did not arrive, and can't be let go yet. Where it never stops, the kernel lets it go with
            // this thread's end.
            match self.wait(tid, RELEASE_TIMEOUT) {
                Ok(Stop::Dead) | Err(_) => {}
                Ok(Stop::Signal(signal)) => drop(self.resume(tid, libc::PTRACE_DETACH, signal)),
                Ok(_) => drop(self.resume(tid, libc::PTRACE_DETACH, 0)),
            }
        }
    }
}

/// The state of a thread, if it has changed: `si_code` and `si_status`.
fn look(tid: i32, flags: i32) -> Result<Option<(i32, i32)>, Errno> {
    let flags = libc::WSTOPPED | libc::WEXITED | libc::__WALL | flags;
    // SAFETY: all zeroes is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    // SAFETY: waitid writes to `info` alone.
    Errno::result(unsafe { libc::waitid(libc::P_PID, tid as libc::id_t, &raw mut info, flags) })?;
    // SAFETY: waitid has filled the fields of a SIGCHLD in, or left them zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((pid != 0).then_some((info.si_code, status)))
}

/// The threads of a process that are not zombies, by ascending ID.
fn threads(pid: i32) -> Result<Vec<i32>> {
    let mut threads = all_threads(pid)?;
    threads.retain(|&tid| !is_dead(pid, tid));
    Ok(threads)
}

/// The same, with those that are.
fn all_threads(pid: i32) -> Result<Vec<i32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| Error::Gone { pid })?;
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(ids.collect())
}

fn is_dead(pid: i32, tid: i32) -> bool {
    matches!(state(pid, tid), None | Some('Z' | 'X'))
}

/// What a thread does, as the kernel's letter; `None` if it is gone.
fn state(pid: i32, tid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // The name before the state may hold anything, parentheses too.
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns whether a process filters system calls of any of its threads.
pub(super) fn has_seccomp(pid: i32) -> Result<bool> {
    Ok(threads(pid)?.into_iter().any(is_filtered))
}

/// Returns whether a thread's system calls are filtered.
pub(super) fn is_filtered(tid: i32) -> bool {
    status(tid, "Seccomp").is_ok_and(|mode| !matches!(mode.as_str(), "" | "0"))
}

fn is_child(pid: i32) -> bool {
    status(pid, "PPid").is_ok_and(|parent| parent == std::process::id().to_string())
}

/// One line of `/proc/PID/status`.
pub(super) fn status(pid: i32, key: &str) -> Result<String> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoProcess { pid },
        _ if error.raw_os_error() == Some(libc::ESRCH) => Error::NoProcess { pid },
        _ => Error::system(path, error),
    })?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    Ok(value.unwrap_or_default().trim().to_owned())
}
