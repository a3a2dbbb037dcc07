//! Cost of a hit: one function, probed by the same programs in user space and by the kernel, in turns. Added
//! nanoseconds a call, the least of several rounds, and their ratio.
//!
//! ```sh
//! cargo run --release -p bpfcost-uprobe --example hits
//! ```

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/compile.rs"]
mod compile;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Place, Probes},
    process::{Function, Image},
};
use common::{Binary, Target};
use libbpf_rs::{MapCore as _, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use std::{cell::Cell, rc::Rc};

const SOURCE: &str = "examples/hits.bpf.c";
/// That of arenas, for kernels that have them.
const ARENA_SOURCE: &str = "examples/arena.bpf.c";
/// Number of times each way is timed, in turns.
const ROUNDS: usize = 5;
/// The program that is at the return too.
const TWICE: &str = "empty_twice";
/// The program that is at the entry twice.
const PAIR: &str = "empty_pair";
/// The programs, and what each does.
const PROGRAMS: [(&str, &str); 12] = [
    ("empty", "nothing"),
    (TWICE, "nothing, at the entry and at the return"),
    (PAIR, "nothing, and another one at the entry"),
    ("on_array", "adds 1 in an array"),
    ("on_atomic", "adds 1 to a global variable, atomically"),
    ("on_per_cpu", "adds 1 in a per-CPU array (here: per thread)"),
    ("on_hash", "adds 1 in a hash table"),
    ("on_ring", "sends 32 bytes to a ring buffer"),
    ("on_stack", "reads 16 bytes of its thread's stack"),
    ("on_read", "reads 16 bytes elsewhere in the process"),
    ("on_thread", "asks for process and thread"),
    ("on_clock", "asks for the time"),
];
const ARENA_PROGRAM: (&str, &str) = ("on_arena", "adds 1 in an arena");
/// The program that writes the ring.
const RINGER: &str = "on_ring";
/// Beginnings of the probed function: a name, and the compiler's flags.
const ENTRIES: [(&str, &[&str]); 4] = [
    ("push", &["-fno-omit-frame-pointer", "-fcf-protection=none"]),
    (
        "nop",
        &["-fcf-protection=none", "-fpatchable-function-entry=5"],
    ),
    ("nop5", &["-DNOP5"]),
    (
        "endbr64",
        &["-fno-omit-frame-pointer", "-fcf-protection=full"],
    ),
];

fn time(process: &mut Target) -> f64 {
    process.send("time");
    process.line().parse().expect("it answers with a number")
}

/// The least time of a call while a program runs at it in user space.
fn in_process(probes: &mut Probes, process: &mut Target, function: &Function, name: &str) -> f64 {
    let place = |at| Place {
        program: name,
        function,
        at,
        cookie: 0,
    };
    let places = match name {
        TWICE => vec![place(At::Entry), place(At::Return)],
        PAIR => vec![place(At::Entry); 2],
        _ => vec![place(At::Entry)],
    };
    let attached = probes.attach(process.pid(), &places).expect("it attaches");
    let time = time(process);
    let hits = probes.detach(attached).expect("it detaches").entry;
    assert_eq!(hits.missed, 0, "{name}");
    assert!(hits.hits > 0, "{name}");
    if name == RINGER {
        let mut records = 0;
        probes.consume("ring", |_, _| records += 1).expect("a ring");
        assert_eq!(records, hits.hits, "{name}");
    }
    time
}

/// The same in the kernel.
fn in_kernel(kernel: &mut Kernel, process: &mut Target, function: &Function, name: &str) -> f64 {
    let object = &kernel.object;
    let program = object.progs_mut().find(|program| program.name() == name);
    let image = Image::of_program(process.pid()).expect("it runs");
    let mapping = image.mapping(function.address).expect("it is mapped");
    let offset = function.address - mapping.start + mapping.offset;
    let program = program.expect("a program");
    let file = format!("/proc/{}/exe", process.pid());
    let attach = |returns| {
        let link = program.attach_uprobe(returns, process.pid(), &file, offset as usize);
        link.expect("it attaches")
    };
    let links = match name {
        TWICE => vec![attach(false), attach(true)],
        PAIR => vec![attach(false), attach(false)],
        _ => vec![attach(false)],
    };
    let time = time(process);
    drop(links);
    if let Some(ring) = &kernel.ring {
        ring.consume().expect("a ring");
    }
    let records = kernel.records.replace(0);
    assert_eq!(records > 0, name == RINGER, "{name}");
    time
}

/// The programs in the kernel.
struct Kernel {
    object: Object,
    ring: Option<RingBuffer<'static>>,
    records: Rc<Cell<u64>>,
}

impl Kernel {
    fn load(bytes: &[u8]) -> Self {
        let open = ObjectBuilder::default()
            .open_memory(bytes)
            .expect("it opens");
        let object = open.load().expect("it loads");
        let records = Rc::new(Cell::new(0));
        let counted = Rc::clone(&records);
        let ring = object.maps().find(|map| map.name() == "ring").map(|map| {
            let mut builder = RingBufferBuilder::new();
            let added = builder.add(&map, move |_| {
                counted.set(counted.get() + 1);
                0
            });
            added.expect("a ring");
            builder.build().expect("a ring")
        });
        Kernel {
            object,
            ring,
            records,
        }
    }
}

/// The programs of an object, in both ways.
struct Programs {
    probes: Probes,
    kernel: Kernel,
}

impl Programs {
    fn load(source: &str) -> Result<Self, bpfcost_uprobe::object::Error> {
        let bytes = compile::bpf(source);
        let loaded = LoadedObject::from_bytes(source, &bytes, &Choice::default())?;
        Ok(Programs {
            probes: Probes::new(loaded).expect("maps"),
            kernel: Kernel::load(&bytes),
        })
    }

    /// Times a program at a function that begins as `entry` says.
    fn time(&mut self, entry: &str, process: &mut Target, (name, about): (&str, &str)) {
        let image = Image::of_program(process.pid()).expect("it runs");
        let function = image.function("work").expect("it is there");
        let [mut bare, mut user, mut other] = [f64::INFINITY; 3];
        for _ in 0..ROUNDS {
            bare = bare.min(time(process));
            user = user.min(in_process(&mut self.probes, process, &function, name));
            other = other.min(in_kernel(&mut self.kernel, process, &function, name));
        }
        println!(
            "{entry:8} {name:11} {:9.1} {:8.1} {:7.1}   {about}",
            user - bare,
            other - bare,
            (other - bare) / (user - bare)
        );
    }
}

fn main() {
    let mut programs = Programs::load(SOURCE).expect("it loads");
    let arena = Programs::load(ARENA_SOURCE);
    println!("ns added to a call        user   kernel   ratio   of a program that");
    for (index, (entry, flags)) in ENTRIES.into_iter().enumerate() {
        let mut process = Binary::compile("timed.c", flags).start(&[]);
        let is_first = index == 0;
        let count = if is_first { PROGRAMS.len() } else { 2 };
        for one in &PROGRAMS[..count] {
            programs.time(entry, &mut process, *one);
        }
    }
    match arena {
        Ok(mut arena) => {
            let (entry, flags) = ENTRIES[0];
            let mut process = Binary::compile("timed.c", flags).start(&[]);
            arena.time(entry, &mut process, ARENA_PROGRAM);
        }
        Err(error) => println!("without arenas: {error}"),
    }
}
