//! Starts a guest, reads its messages, and ends it. Its boot, its silence and its end have time limits.

use std::{
    collections::VecDeque,
    io,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::ExitStatus,
    sync::{Arc, atomic::AtomicBool},
    thread::sleep,
    time::Duration,
};

use rustix::process::Signal;
use serde::Serialize;

use super::{
    Acceleration, GuestError, GuestLimit, GuestSpec, GuestWait, Hooks, HostChannel, Job, Message,
    Rescue, Tail, Tools, TraceOrder, TraceReply, recorder::Recorder, trouble, wakeup::Wakeup,
};
use bpfcost_guest::Vm;
use bpfcost_program::{Trace, TraceReader, Watch};
use bpfcost_record::Journal;

/// CPU time for which a guest that has booted may say nothing. The longest thing that it does without a word is to load
/// an epoch: seconds, even emulated.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(180);

/// CPU time to a kernel's first word. Emulated it comes after some 3 s.
const FIRST_WORD_TIMEOUT: Duration = Duration::from_secs(45);

/// A running guest. Dropping it kills it and leaves nothing of it behind.
#[derive(Debug)]
pub struct Guest {
    vm: Vm,
    channel: HostChannel,
    tail: Tail,
    /// Ends a wait when the guest writes; `None` for one whose time is measured.
    wakeup: Option<Wakeup>,
    unread: VecDeque<Message>,
    kernel: String,
    port: Option<u16>,
    /// The wait for its next word; `None` where one was there when it was last listened to.
    wait: Option<GuestWait>,
    booted: bool,
    /// What records its instructions, while that goes on.
    recorder: Option<Recorder>,
    recordings: u32,
    first_word: GuestLimit,
    boot: GuestLimit,
    silence: GuestLimit,
}

impl Guest {
    /// Starts one, with what a test changes, to do `job`; with the journal of the run's earlier parts where there are any. An interrupt ends
    /// every wait for QEMU. Call it on a thread that lasts as long as the guest.
    pub fn start(
        tools: &Tools,
        spec: &GuestSpec,
        hooks: &Hooks,
        job: &Job,
        journal: Option<&Path>,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<Guest, GuestError> {
        let channel = HostChannel::new()?;
        channel.fill(job, journal, hooks.before.as_deref())?;
        let vm = Vm::start(tools, spec, channel.folder(), interrupt)?;
        // Of a limit that a test sets as well.
        let asleep = |set: Option<f64>| set.and(hooks.asleep_s).map(Duration::from_secs_f64);
        let boot = Hooks::or(hooks.boot_s, spec.acceleration.boot_limit());
        // KVM that can't boot a guest leaves it standing still, and emulation takes its place: the sooner the better.
        let stands_still = (spec.acceleration == Acceleration::Kvm).then_some(boot);
        let boot = GuestLimit::new(boot, stands_still.or(asleep(hooks.boot_s)));
        Ok(Guest {
            wait: Some(GuestWait::begin(vm.id())),
            vm,
            tail: Tail::new(channel.folder()),
            wakeup: spec.exact.then(|| Wakeup::of_writes_to(&channel.stream())),
            channel,
            unread: VecDeque::new(),
            kernel: spec.kernel.release.clone(),
            port: spec.forward.as_ref().map(|forward| forward.port),
            booted: false,
            recorder: None,
            recordings: 0,
            first_word: GuestLimit::new(FIRST_WORD_TIMEOUT, None).min(boot),
            boot,
            silence: GuestLimit::new(
                Hooks::or(hooks.silence_s, SILENCE_TIMEOUT),
                asleep(hooks.silence_s),
            ),
        })
    }

    /// Who runs it, as records keep it.
    pub fn emulator(&self) -> &str {
        self.vm.emulator()
    }

    /// The next thing that it says; `None` where it has nothing to say right now. An error is its end.
    pub fn listen(&mut self) -> Result<Option<Message>, GuestError> {
        if self.unread.is_empty() {
            // Asked before the stream is read, so that the last words of one that ends are heard.
            let ended = self.vm.end().map_err(GuestError::io("waiting for QEMU"))?;
            self.vm.read_console()?;
            self.unread.extend(self.tail.read()?);
            if self.unread.is_empty() {
                return self.silent(ended).map(|()| None);
            }
            self.wait = None;
            self.booted = true;
        }
        match self.unread.pop_front() {
            Some(Message::Gone(code)) => Err(self.gone(code)),
            message => Ok(message),
        }
    }

    /// Waits until it may have something to say, for `most` at most. One whose time is measured has the CPUs for itself
    /// meanwhile; one that counts stands still until it is answered.
    pub fn wait(&self, most: Duration) {
        match &self.wakeup {
            Some(wakeup) => wakeup.wait(most),
            None => sleep(most),
        }
    }

    /// The port of 127.0.0.1 on this machine by which servers in it are reached, where any are.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Has the reaper write what it sends to this journal, where this process is killed before it has done so.
    pub fn rescue(&self, journal: &Journal) -> anyhow::Result<Rescue> {
        Rescue::new(self.channel.folder(), journal)
    }

    /// Answers what the guest asked for. Its silence while it waited does not count.
    pub fn answer(&mut self, number: u32, answer: &impl Serialize) -> Result<(), GuestError> {
        self.wait = None;
        self.channel.answer(number, answer)
    }

    /// Begins or ends a recording of the guest's instructions.
    pub fn record(&mut self, order: TraceOrder) -> TraceReply {
        let recorded = match order {
            TraceOrder::Begin(watch) => self.begin_recording(watch).map(|()| Trace::default()),
            TraceOrder::End => match self.recorder.take() {
                Some(recorder) => recorder.stop(),
                None => Err(io::Error::other("no recording was begun")),
            },
        };
        recorded.map_err(|error| error.to_string())
    }

    fn begin_recording(&mut self, watch: Watch) -> io::Result<()> {
        let folder = self.channel.folder();
        let monitor = self.vm.monitor()?;
        self.recordings += 1;
        let reader = TraceReader::new(watch);
        let qemu = self.vm.id();
        self.recorder = Some(Recorder::start(
            monitor,
            qemu,
            folder,
            self.recordings,
            reader,
        )?);
        Ok(())
    }

    /// Asks it to end after the trial under way.
    pub fn stop(&self) -> Result<(), GuestError> {
        self.channel.stop()
    }

    /// Fails if the guest has ended, or has been silent for too long.
    fn silent(&mut self, ended: Option<ExitStatus>) -> Result<(), GuestError> {
        if let Some(status) = ended {
            // The last output may still be in the pipe.
            self.vm.read_console()?;
            if status.signal() == Some(Signal::KILL.as_raw()) {
                return Err(GuestError::killed(&self.kernel));
            }
            let what = if self.booted {
                "ended during the run"
            } else if self.vm.console().lines().is_empty() {
                "ended at once: its image is not a kernel or is damaged, or it has too little \
                 memory"
            } else {
                "ended before it had booted"
            };
            return Err(self.dead(what.to_owned()));
        }
        let (limit, what) = if self.booted {
            (self.silence, "hangs: no message from it for")
        } else if self.vm.console().lines().is_empty() {
            (self.first_word, "cannot boot: its image printed nothing in")
        } else {
            (self.boot, "has not booted within")
        };
        let id = self.vm.id();
        // Another QEMU has taken over: it waits for that one, from now on.
        self.wait.take_if(|wait| wait.qemu() != id);
        let wait = self.wait.get_or_insert_with(|| GuestWait::begin(id));
        match wait.over(limit) {
            Some(time) => Err(self.dead(format!("{what} {time}"))),
            None => Ok(()),
        }
    }

    /// The program inside ended without a word.
    fn gone(&mut self, code: i32) -> GuestError {
        let _ = self.vm.read_console();
        self.dead(match code {
            // 128 + SIGKILL, as shells have it: in a guest only the kernel kills.
            137 => "killed the measuring program".to_owned(),
            126 | 127 => "cannot start the measuring program".to_owned(),
            _ => format!("reports that the measuring program ended with exit code {code}"),
        })
    }

    /// Its end, with what its console says of the cause, else `what` was seen.
    fn dead(&self, what: String) -> GuestError {
        if self.channel.is_full() {
            return GuestError::no_room(self.channel.folder());
        }
        GuestError::Dead(format!(
            "the guest ({}) {}{}",
            self.kernel,
            trouble(&self.vm.console().lines()).unwrap_or(what),
            self.vm.console().last_words()
        ))
    }
}
