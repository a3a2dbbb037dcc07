//! The process that traces for the tool is killed, and the tool is not: before, while and after it holds the probed one.

mod common;

use bpfcost_uprobe::process::{
    Attachment, Error, Function, Hits, Image, Memory, Probe, Runtime, Session,
};
use common::{Binary, Target, program, wait_until};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use std::{fs, path::Path};

/// A program that works, probed by this one.
struct Probed {
    process: Target,
    work: Function,
    memory: Memory,
    runtime: Runtime,
}

impl Probed {
    fn start() -> Self {
        let process = Binary::compile("busy.c", &[]).start(&["4", "bt"]);
        let pid = process.pid();
        Probed {
            work: Image::of_program(pid).unwrap().function("work").unwrap(),
            memory: Memory::open(pid).unwrap(),
            runtime: Runtime::open(pid).unwrap(),
            process,
        }
    }

    fn attach(&mut self) -> Result<Attachment, Error> {
        let session = self.runtime.stop()?;
        self.attach_in(session)
    }

    fn attach_in(&mut self, session: Session) -> Result<Attachment, Error> {
        let wild = program::wild(&mut self.runtime);
        let probe = Probe {
            function: &self.work,
            entry: Some(wild),
            returns: Some(wild),
            inside: &[],
        };
        let prepared = self.runtime.prepare(&[probe])?;
        self.runtime.attach_in(session, &prepared)
    }

    fn hits(&self, attachment: &Attachment) -> u64 {
        self.runtime.hits(attachment)[0].returns.hits
    }

    /// Waits until threads have run the probe.
    fn runs(&self, attachment: &Attachment) {
        let before = self.hits(attachment);
        wait_until(|| self.hits(attachment) > before + 1000);
    }

    /// Kills the tracer process, and waits until the kernel has let go of the threads.
    fn kill_tracer(&self) {
        let memory = format!("/proc/{}/mem", self.process.pid());
        // One that was just forked for another test has all files of this process.
        let has_it = |process: &i32| {
            let files = fs::read_dir(format!("/proc/{process}/fd"));
            let files: Vec<_> = files.into_iter().flatten().flatten().collect();
            let is_memory = |path| fs::read_link(path).is_ok_and(|to| to == Path::new(&memory));
            // The tool, the memory and the channel, and up to two links of the kernel's programs.
            files.len() <= 5 && files.iter().any(|file| is_memory(file.path()))
        };
        let own = fs::read_dir("/proc/self/task").unwrap();
        let children = own.map(|task| fs::read_to_string(task.unwrap().path().join("children")));
        let children: Vec<String> = children.filter_map(Result::ok).collect();
        let children = children.iter().flat_map(|all| all.split_whitespace());
        let mut children = children.map(|child| child.parse().unwrap());
        let tracer = children.find(has_it).expect("there is a tracer process");
        signal::kill(Pid::from_raw(tracer), Signal::SIGKILL).unwrap();
        // Its files are closed before its threads are let go of.
        wait_until(|| {
            let stat = fs::read_to_string(format!("/proc/{tracer}/stat"));
            stat.is_ok_and(|stat| stat.contains(") Z "))
        });
    }

    fn ends_well(mut self) {
        self.work.check(&self.memory).unwrap();
        let attachment = self.attach().unwrap();
        self.runs(&attachment);
        self.runtime.detach(attachment).unwrap();
        self.work.check(&self.memory).unwrap();
        assert_eq!(self.process.stop().1, 0);
    }
}

fn is_all(hits: &[Hits]) -> bool {
    hits.iter()
        .all(|hits| hits.entry.hits > 0 && hits.returns.hits > 0)
}

#[test]
fn one_that_is_killed_between_two_stops_is_replaced() {
    let mut probed = Probed::start();
    probed.kill_tracer();
    let attachment = probed.attach().unwrap();
    probed.kill_tracer();
    probed.runs(&attachment);
    assert!(is_all(&probed.runtime.detach(attachment).unwrap()));
    probed.ends_well();
}

#[test]
fn the_one_in_its_place_restores_what_the_tool_leaves() {
    let mut probed = Probed::start();
    let attachment = probed.attach().unwrap();
    probed.kill_tracer();
    drop(probed.runtime.stop().unwrap());
    probed.runs(&attachment);
    let Probed {
        mut process,
        work,
        memory,
        runtime,
    } = probed;
    assert!(work.check(&memory).is_err());
    drop(runtime);
    wait_until(|| work.check(&memory).is_ok());
    assert_eq!(process.stop().1, 0);
}

#[test]
fn threads_that_one_held_go_on_and_nothing_is_changed() {
    let mut probed = Probed::start();
    let session = probed.runtime.stop().unwrap();
    probed.kill_tracer();
    // Not those of the next session, either.
    let next = probed.runtime.stop().unwrap();
    let is_ended = |error| matches!(error, Error::TracerEnded { .. });
    assert!(is_ended(
        session
            .call("getpid", libc::SYS_getpid, [0; 6])
            .unwrap_err()
    ));
    assert!(is_ended(session.finish().unwrap_err()));
    assert_eq!(
        next.call("getpid", libc::SYS_getpid, [0; 6]).unwrap(),
        next.pid() as u64
    );
    drop(next);
    // The first one sets the registers of threads; the second has none to set.
    for _ in 0..2 {
        let session = probed.runtime.stop().unwrap();
        probed.kill_tracer();
        assert!(is_ended(probed.attach_in(session).unwrap_err()));
        probed.work.check(&probed.memory).unwrap();
        let attachment = probed.attach().unwrap();
        probed.runs(&attachment);
        let session = probed.runtime.stop().unwrap();
        probed.kill_tracer();
        assert!(is_all(
            &probed.runtime.detach_in(session, attachment).unwrap()
        ));
        probed.work.check(&probed.memory).unwrap();
    }
    probed.ends_well();
}

/// The children that this thread has started.
fn children() -> String {
    fs::read_to_string("/proc/thread-self/children").unwrap()
}

#[test]
fn none_is_left_of_a_process_that_ended_or_runs_another_program() {
    for is_attached in [false, true] {
        for mode in ["", "x"] {
            let mut process = Binary::compile("busy.c", &[]).start(&["1", mode]);
            let pid = process.pid();
            let work = Image::of_program(pid).unwrap().function("work").unwrap();
            let mut runtime = Runtime::open(pid).unwrap();
            runtime.load_guard().unwrap();
            runtime.install_guard().unwrap();
            let wild = program::wild(&mut runtime);
            let probe = Probe {
                function: &work,
                entry: Some(wild),
                returns: None,
                inside: &[],
            };
            let attachment = runtime.attach(&[probe]).unwrap();
            assert_eq!(children().split_whitespace().count(), 2);
            assert_eq!(process.stop().1, 0);
            process.send("end");
            if mode == "x" {
                process.ready();
            } else {
                process.wait();
            }
            if !is_attached {
                runtime.detach(attachment).unwrap();
            }
            drop(runtime);
            let rest = if mode == "x" {
                format!("{pid} ")
            } else {
                String::new()
            };
            assert_eq!(children(), rest, "{is_attached}");
        }
    }
}
