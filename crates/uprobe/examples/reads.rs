//! Reads of bad pointers: a program reads in a process that blocks all signals, wherever it is pointed to, and each
//! read ends with the bytes or an error. Says how memory is read on this kernel. Fails if anything is not as it should be.
//!
//! ```sh
//! cargo run --release -p bpfcost-uprobe --example reads
//! ```
//!
//! With `vdso`, it also fails on a kernel where the copy in the vDSO does not read.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/compile.rs"]
mod compile;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Attached, Place, Probes},
    process::{Function, Image},
};
use common::{Binary, Target, vdso, wait_until};
use std::{
    env,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

const SOURCE: &str = "tests/reads/reads.bpf.c";
/// The programs, and where they are.
const PLACES: [(&str, &str); 2] = [("on_entry", "handle"), ("on_string", "handle_string")];
/// Numbers of reads by which "good", "bad" and "child" count.
const GOOD: u64 = 1000;
const BAD: u64 = 1008;
/// Pointers that can't be read, as the process names them.
const POINTERS: [&str; 8] = [
    "null",
    "unmapped",
    "forbidden",
    "past the end",
    "edge",
    "of the kernel",
    "last",
    "not canonical",
];
/// The argument by which this program is the tool that is killed.
const ATTACH: &str = "attach";
const REQUIRE: &str = "vdso";

/// A process that is read.
struct Read {
    process: Target,
    probes: Probes,
    attached: Option<Attached>,
    /// The vDSO's bytes before.
    vdso: Vec<u8>,
}

/// Numbers of reads that succeeded, failed, and gave something wrong.
type Counts = [u64; 3];

/// Attaches programs to functions.
fn attach(
    pid: i32,
    places: &[(&str, &str)],
) -> Result<(Probes, Attached), bpfcost_uprobe::probes::Error> {
    let object = compile::bpf(SOURCE);
    let object = LoadedObject::from_bytes("reads", &object, &Choice::default());
    let mut probes = Probes::new(object.expect("it loads"))?;
    probes.follow_children();
    let image = Image::of_program(pid).expect("it runs");
    let functions = places.iter().map(|(_, name)| image.function(name));
    let functions: Vec<Function> = functions.map(|one| one.expect("it is there")).collect();
    let places = places.iter().zip(&functions);
    let places = places.map(|((program, _), function)| Place {
        program,
        function,
        at: At::Entry,
        cookie: 0,
    });
    let attached = probes.attach(pid, &places.collect::<Vec<_>>())?;
    Ok((probes, attached))
}

fn ask(process: &mut Target, command: &str) -> i64 {
    process.send(command);
    let line = process.line();
    let answer = line.parse();
    answer.unwrap_or_else(|_| panic!("{command}: the process died: {line:?}"))
}

impl Read {
    /// Attaches to a process.
    fn start(mut process: Target, before: &[&str]) -> Result<Self, String> {
        for command in before {
            assert_eq!(ask(&mut process, command), 0, "{command}");
        }
        let vdso = vdso(process.pid());
        match attach(process.pid(), &PLACES) {
            Ok((probes, attached)) => Ok(Read {
                process,
                probes,
                attached: Some(attached),
                vdso,
            }),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns whether the copy in the vDSO reads: it is what differs.
    fn is_by_vdso(&self) -> bool {
        vdso(self.process.pid()) != self.vdso
    }

    fn counts(&self) -> Counts {
        let values = self.probes.map(".bss").expect("a map").get(&[0; 4]);
        let values = values.expect("it can be read").expect("an entry");
        [0, 1, 2].map(|word| {
            let bytes = values[8 * word..][..8].try_into();
            u64::from_ne_bytes(bytes.expect("8 bytes"))
        })
    }

    /// Has the process do what a command says. Returns its answer, and what was read.
    fn ask(&mut self, command: &str) -> (i64, Counts) {
        let before = self.counts();
        let answer = ask(&mut self.process, command);
        let after = self.counts();
        let counts = [0, 1, 2].map(|index| after[index] - before[index]);
        assert_eq!(counts[2], 0, "{command}: wrong bytes");
        (answer, counts)
    }

    /// The same, of a command that reads so often, and fails so often.
    fn expect(&mut self, command: &str, read: u64, unread: u64) {
        let expected = (0, [read, unread, 0]);
        assert_eq!(self.ask(command), expected, "{command}");
        println!("{command:>20}: {read} read, {unread} errors; it lives");
    }

    /// Everything that may be read, and may not.
    fn read_all(&mut self) {
        self.expect("good", GOOD, 0);
        for pointer in POINTERS {
            self.expect(&format!("bad {pointer}"), 0, 1);
        }
        self.expect("bad", 0, BAD);
        let (unread, [strings, failed, _]) = self.ask("strings");
        assert!(strings > 0, "no string was read");
        assert_eq!(failed as i64, unread, "strings");
        println!(
            "{:>20}: {strings} read, {failed} errors; it lives",
            "strings"
        );
    }

    /// Ends it all. The vDSO is as it was before.
    fn detach(mut self) -> Target {
        let attached = self.attached.take().expect("it is attached");
        let hits = self.probes.detach(attached).expect("it detaches").entry;
        assert_eq!(hits.missed, 0);
        drop(self.probes);
        wait_until(|| vdso(self.process.pid()) == self.vdso);
        for command in ["good", "bad", "strings"] {
            ask(&mut self.process, command);
        }
        self.process
    }
}

/// Two tools in one process: the second one reads by other means, before and after the end of the first.
fn use_two_tools(process: &mut Target) {
    let before = vdso(process.pid());
    let read = |process: &mut Target| {
        for command in ["good", "bad", "strings"] {
            ask(process, command);
        }
    };
    for first_ends_first in [true, false] {
        let mut tools = PLACES.map(|place| attach(process.pid(), &[place]).expect("it attaches"));
        read(process);
        if !first_ends_first {
            tools.reverse();
        }
        for (mut probes, attached) in tools {
            let hits = probes.detach(attached).expect("it detaches").entry;
            assert!(hits.hits > 0 && hits.missed == 0, "{hits:?}");
            drop(probes);
            read(process);
        }
        wait_until(|| vdso(process.pid()) == before);
    }
    println!("{:>20}: it lives, and the vDSO is as before", "two tools");
}

/// A tool that is killed while a thread of the process reads.
fn kill_tool(mut process: Target) {
    let before = vdso(process.pid());
    for _ in 0..3 {
        let this = env::current_exe().expect("this program");
        let mut tool = Command::new(this)
            .args([ATTACH, &process.pid().to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(tool.stdout.take().expect("a pipe")).lines();
        assert!(lines.any(|line| line.expect("text") == "attached"));
        process.send("short race");
        tool.kill().expect("it runs");
        tool.wait().expect("a child");
        assert_eq!(process.line(), "0");
        wait_until(|| vdso(process.pid()) == before);
        for command in ["good", "bad", "child"] {
            assert_eq!(ask(&mut process, command), 0);
        }
    }
    println!("{:>20}: the vDSO is as before", "the tool was killed");
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [command, pid] = &arguments[..]
        && command == ATTACH
    {
        let _attached = attach(pid.parse().expect("a number"), &PLACES).expect("it attaches");
        println!("attached");
        wait_until(|| false);
    }
    let is_required = arguments.iter().any(|argument| argument == REQUIRE);
    let binary = Binary::compile("reads.c", &[]);
    let read = Read::start(binary.start(&[]), &["block"]);
    let mut read = read.unwrap_or_else(|error| panic!("{error}"));
    let is_by_vdso = read.is_by_vdso();
    assert!(is_by_vdso || !is_required, "the vDSO does not read here");
    let reader = if is_by_vdso {
        "the copy in the vDSO"
    } else {
        "helpers that ask the kernel"
    };
    println!("{reader} reads; all signals are blocked");
    read.read_all();
    read.expect("child", GOOD, BAD);
    let (answer, [there, gone, _]) = read.ask("short race");
    assert!(answer == 0 && there > 0 && gone > 0, "{there}, {gone}");
    println!(
        "{:>20}: {there} read, {gone} errors; it lives",
        "short race"
    );
    let mut process = read.detach();
    use_two_tools(&mut process);
    kill_tool(process);

    match Read::start(binary.start(&[]), &["filter"]) {
        Ok(mut read) => {
            println!("under a seccomp filter:");
            read.read_all();
            read.detach();
        }
        Err(error) => {
            assert!(!is_by_vdso, "{error}");
            println!("under a seccomp filter: {error}");
        }
    }
}
