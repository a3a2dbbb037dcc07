//! What a hit costs: one function, probed by the same programs in user space and by the kernel, in turns. Added
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
/// How often each way is timed, in turns.
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
/// How the probed function begins, by its name and by how it is compiled.
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
    let mut records = 0;
    probes.consume("ring", |_, _| records += 1).expect("a ring");
    let sent = if name == "on_ring" { hits.hits } else { 0 };
    assert_eq!(records, sent, "{name}");
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
    kernel.ring.consume().expect("a ring");
    let records = kernel.records.replace(0);
    assert_eq!(records > 0, name == "on_ring", "{name}");
    time
}

/// The programs in the kernel.
struct Kernel {
    object: Object,
    ring: RingBuffer<'static>,
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
        let map = object
            .maps()
            .find(|map| map.name() == "ring")
            .expect("a ring");
        let mut builder = RingBufferBuilder::new();
        let added = builder.add(&map, move |_| {
            counted.set(counted.get() + 1);
            0
        });
        added.expect("a ring");
        let ring = builder.build().expect("a ring");
        Kernel {
            object,
            ring,
            records,
        }
    }
}

fn main() {
    let bytes = compile::bpf(SOURCE);
    let loaded = LoadedObject::from_bytes("hits", &bytes, &Choice::default()).expect("it loads");
    let mut probes = Probes::new(loaded).expect("maps");
    let mut kernel = Kernel::load(&bytes);
    println!("ns added to a call        user   kernel   ratio   of a program that");
    for (entry, flags) in ENTRIES {
        let binary = Binary::compile("timed.c", flags);
        let mut process = binary.start(&[]);
        let image = Image::of_program(process.pid()).expect("it runs");
        let function = image.function("work").expect("it is there");
        for (name, about) in PROGRAMS {
            let [mut bare, mut user, mut other] = [f64::INFINITY; 3];
            for _ in 0..ROUNDS {
                bare = bare.min(time(&mut process));
                user = user.min(in_process(&mut probes, &mut process, &function, name));
                other = other.min(in_kernel(&mut kernel, &mut process, &function, name));
            }
            println!(
                "{entry:8} {name:11} {:9.1} {:8.1} {:7.1}   {about}",
                user - bare,
                other - bare,
                (other - bare) / (user - bare)
            );
            if entry != "push" && name == TWICE {
                break;
            }
        }
    }
}
