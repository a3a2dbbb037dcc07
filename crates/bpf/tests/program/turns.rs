//! Packets that take turns: each run is given the next one, whole, whatever the run before it did.

use bpfcost_bpf::{
    current_cpu,
    program::{Body, Change, ObjectFile, Ran, Spliced},
    timing::Request,
};

use crate::{
    lab::{Prepared, object, packet, prepare_on},
    require,
};

/// Packets of three lengths, the second longer than a page holds beside others.
fn packets() -> Vec<Vec<u8>> {
    let mut long = packet();
    long.resize(3500, 7);
    vec![packet(), long, packet()[..60].to_vec()]
}

/// A program alone on each packet.
fn alone(object: &ObjectFile, program: &str) -> Vec<Prepared> {
    let packets = packets();
    let each = packets.iter();
    each.map(|packet| prepare_on(object, program, packet))
        .collect()
}

/// A batch in which the packets take turns, each with the code that it returns alone, and `extra`.
fn batch(each: &[Prepared], ops: u64, resets: u64, extra: [u32; 3]) -> Ran {
    let changes: Vec<Change> = each.iter().map(|one| one.change).collect();
    let change = Change::to_next(&changes);
    let loaded = Spliced::load(&each[0].native, Body::Program, &change);
    let mut looped = loaded.unwrap_or_else(|error| panic!("{error}"));
    let codes = each.iter().zip(extra);
    let inputs: Vec<(&[u8], u32)> = codes
        .map(|(one, extra)| (one.packet.as_slice(), one.oracle.code + extra))
        .collect();
    looped.take_turns(&inputs).expect("there is room");
    let request = Request {
        ops,
        resets,
        cpus: &[current_cpu()],
        after_tick: false,
    };
    let (packet, code) = inputs[0];
    let ran = looped.batch(&request, packet, code).expect("it runs");
    assert_eq!((ran.seen.ops, ran.runs), (ops, ops));
    assert_eq!(ran.rounds, (ops - 1) / each.len() as u64);
    ran
}

#[test]
fn each_packet_runs_as_alone() {
    if !require::host() {
        return;
    }
    let (xdp, skb) = (object("xdp.bpf.c"), object("skb.bpf.c"));
    for (object, program) in [
        (&xdp, "count"),
        (&xdp, "push"),
        (&xdp, "pop"),
        (&xdp, "shrink"),
        (&xdp, "describe"),
        (&xdp, "flip_later"),
        (&skb, "ok"),
        (&skb, "mark"),
        (&skb, "encapsulate"),
        (&skb, "lengthen"),
        (&skb, "write_byte"),
    ] {
        let each = alone(object, program);
        // A batch may end with any of them.
        for ops in [1, 2, 3, 3000, 3001, 3002] {
            for resets in [1, 2] {
                let ran = batch(&each, ops, resets, [0; 3]);
                let last = &each[(ops as usize - 1) % 3];
                assert!(
                    last.is_right(&ran),
                    "{program}, {ops} runs, {resets} resets: {} wrong",
                    ran.wrong
                );
            }
        }
    }
}

/// The code of each run is compared with that of its own packet.
#[test]
fn a_wrong_code_of_one_packet_is_counted() {
    if !require::host() {
        return;
    }
    let object = object("xdp.bpf.c");
    let each = alone(&object, "count");
    let codes: Vec<u32> = each.iter().map(|one| one.oracle.code).collect();
    assert_eq!(codes, [2, 1, 2]);
    let ran = batch(&each, 300, 1, [0, 0, 1]);
    assert_eq!((ran.wrong, ran.wrong_code, ran.wrong_turn), (100, 2, 2));
}
