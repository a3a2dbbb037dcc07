//! The datapath of `xdp-lb` as a plain object costs in `program` what it costs in `xdp-lb`: two ways into a loop, with
//! loops, resets and floors of their own.

use std::path::Path;

use bpfcost_bpf::LIBBPF_HEADERS;
use bpfcost_compile::compile;
use bpfcost_record::Record;
use etherparse::PacketBuilder;

use crate::{
    kept::valid_record,
    require,
    tool::{Tool, said},
    visit::{command, says},
};

/// Cases of `xdp-lb`, and the packets that are theirs.
const CASES: [(&str, &str); 3] = [
    ("tcp-v4-lru-hit", "hit"),
    ("tcp-v4-ch", "ring"),
    ("drop-v4-frag", "fragment"),
];

fn source(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/datapath");
    folder.join(name).display().to_string()
}

fn compile_object(tool: &Tool) {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf/bpf");
    compile(
        Path::new(&source("lb.bpf.c")),
        &tool.path("lb.bpf.o"),
        Path::new(LIBBPF_HEADERS),
        &["-mcpu=v3", &format!("-I{}", headers.display())],
    )
    .expect("it compiles");
}

/// Captures of one packet each, which is what names it.
fn write_packets(tool: &Tool) {
    let from = |last, to| {
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv4(
            [10, 10, 2, last],
            [10, 10, 1, to],
            64,
        )
    };
    let mut packets = vec![
        ("hit", from(1, 1).tcp(12345, 80, 1, 100).ack(1)),
        ("ring", from(2, 2).tcp(54321, 80, 1, 100).ack(1)),
        ("fragment", from(3, 1).tcp(44444, 80, 1, 100).ack(1)),
    ]
    .into_iter()
    .map(|(name, builder)| {
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &[0; 10]).expect("a packet");
        (name, bytes)
    })
    .collect::<Vec<_>>();
    // More fragments follow.
    packets[2].1[20] |= 0x20;
    for (name, bytes) in packets {
        let length = (bytes.len() as u32).to_le_bytes();
        let head = [
            0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0,
            0,
        ];
        let capture = [&head[..], &[0; 8], &length, &length, &bytes].concat();
        tool.write(&format!("{name}.pcap"), capture);
    }
}

fn net(record: &Record, name: &str) -> f64 {
    let case = record
        .cases
        .iter()
        .find(|case| case.name == name)
        .expect(name);
    let net = case.net.as_ref().and_then(|net| net.value);
    net.unwrap_or_else(|| panic!("{case:?}"))
}

#[test]
fn a_plain_object_costs_what_it_costs_in_our_own_loop() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let (ours, plain) = (Tool::new(), Tool::new());
    let cases = CASES.map(|(case, _)| format!("--case {case}")).join(" ");
    let measured = says(
        &ours,
        &format!("run xdp-lb --quick --on exact:{kernel} {cases}"),
        "{}",
    );
    assert_eq!(measured.code, Some(0), "{measured:?}");

    compile_object(&plain);
    write_packets(&plain);
    let inputs = CASES
        .map(|(_, packet)| format!("--input {packet}.pcap"))
        .join(" ");
    let fill = source("fill.sh");
    plain.write("fill.sh", std::fs::read(&fill).expect(&fill));
    let line = format!("program lb.bpf.o --quick --on exact:{kernel} {inputs} --out x.json");
    let mut program = command(&plain, &line);
    let filled = said(
        &program
            .args(["--setup", "sh fill.sh"])
            .output()
            .expect("it runs"),
    );
    assert_eq!(filled.code, Some(0), "{filled:?}");

    let (ours, plain) = (valid_record(&ours), valid_record(&plain));
    for (case, packet) in CASES {
        let (ours, plain) = (net(&ours, case), net(&plain, &format!("lb/{packet}")));
        // Counts are whole, and both loops call the datapath as a function.
        assert!(
            (ours - plain).abs() < 0.5,
            "{case}: {ours} in xdp-lb, {plain} in program"
        );
    }
}
