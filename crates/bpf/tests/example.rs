//! `bpf/example.bpf.c` as an outside program would use it: its own object, this crate's timing.

mod require;

use bpfcost_bpf::{
    timed::OpenObject,
    timing::{Loop, Request},
};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/example.o"));
const OPS: u64 = 10_000;
const XDP_PASS: u32 = 2;

#[test]
fn an_outside_program_times_itself() {
    if !require::host() {
        return;
    }
    let looping = Loop::probe().expect("a loop that this kernel knows");
    let mut open = OpenObject::from_bytes("example", OBJECT, looping).expect("open");
    open.time("example").expect("a program of it");
    let mut example = open.load().expect("load");
    let packet: Vec<u8> = (0..64).collect();

    let two = Request {
        ops: OPS,
        resets: 1,
        cpus: &[0, 1],
        after_tick: false,
    };
    let refused = example.batch("example", &two, std::slice::from_ref(&packet));
    assert!(refused.is_err(), "two CPUs, one packet: {refused:?}");

    let request = Request {
        ops: OPS,
        resets: 1,
        cpus: &[0],
        after_tick: false,
    };
    let seen = example
        .batch("example", &request, std::slice::from_ref(&packet))
        .expect("run");

    let [seen] = seen.as_slice() else {
        panic!("one CPU, one sample: {seen:?}")
    };
    assert_eq!((seen.cpu, seen.ops, seen.code), (0, OPS, XDP_PASS));
    assert_eq!(seen.output, packet, "the body only reads");
    assert!(seen.end_ns > seen.start_ns, "{seen:?}");
    // The last body's result stands: nothing was reset after it.
    let hash = example.variable("hash").expect("a variable");
    assert_eq!(hash, u64::from(lookup3(&packet[..16])));
}

/// Jenkins' lookup3 of 16 bytes from initial value 0, written apart from the BPF one.
fn lookup3(bytes: &[u8]) -> u32 {
    let word = |i: usize| u32::from_le_bytes(bytes[4 * i..][..4].try_into().expect("4 bytes"));
    let mut s = [0xdead_beef_u32.wrapping_add(16); 3];
    for (i, sum) in s.iter_mut().enumerate() {
        *sum = sum.wrapping_add(word(i));
    }
    for (i, rotation) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
        let (x, y, z) = (i % 3, (i + 2) % 3, (i + 1) % 3);
        s[x] = s[x].wrapping_sub(s[y]) ^ s[y].rotate_left(rotation);
        s[y] = s[y].wrapping_add(s[z]);
    }
    s[0] = s[0].wrapping_add(word(3));
    for (i, rotation) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (x, y) = ((i + 2) % 3, (i + 1) % 3);
        s[x] = (s[x] ^ s[y]).wrapping_sub(s[y].rotate_left(rotation));
    }
    s[2]
}
