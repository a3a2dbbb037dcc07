//! Every parser of what people, tools, servers or the kernel hand to bpfcost, as a function of bytes: what cargo-fuzz
//! (in `fuzz/`) and `tests/fuzz.rs` call. None may panic or run for ever, whatever the bytes are.

use std::{collections::BTreeMap, path::Path, str::FromStr};

use bpfcost_bpf::{fuzz as kernel, program::MapEntry};

use crate::{builtin::workload::Workload, stack::SymbolHistory};
use bpfcost_probe::Spec;
use bpfcost_workload::{
    self, Client, Definition, Output, Reading,
    generator::{LoadTarget, response},
};

use bpfcost_model::Experiment as _;
use bpfcost_record::{GateOptions, Record};
use bpfcost_report::{csv, json, rate::EventLoad, section::Detail, style::Style, terminal};

/// A parser, under a name.
pub type Target = (&'static str, fn(&[u8]));

/// All parsers.
pub const TARGETS: [Target; 18] = [
    ("access-log", access_log),
    ("deb", bpfcost_debian::fuzz::deb),
    ("elf", kernel::elf),
    ("iperf3", iperf3),
    ("journal", journal),
    ("kallsyms", kallsyms),
    ("load", load),
    ("map", map),
    ("openpgp", bpfcost_debian::fuzz::openpgp),
    ("orc", kernel::orc),
    ("pcap", pcap),
    ("record", record),
    ("redis-benchmark", redis_benchmark),
    ("response", response),
    ("text", text),
    ("usdt", kernel::usdt),
    ("workload", workload),
    ("wrk", wrk),
];

/// Runs the parser of that name.
///
/// # Panics
///
/// Where there is none.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, parse) = target.unwrap_or_else(|| panic!("there is no parser {name}"));
    parse(bytes);
}

/// Records of a file: shown in every form, and compared with themselves.
fn record(bytes: &[u8]) {
    if let Ok(records) = bpfcost_record::parse_records(bytes, Path::new("fuzzed.json")) {
        show(&records);
    }
}

fn show(records: &[Record]) {
    let style = Style::default();
    let load = EventLoad::default();
    for record in records {
        for detail in [Detail::Brief, Detail::Full] {
            let _ = terminal::render(&bpfcost_pages::record_view(record, detail, load), style);
        }
        let _ = bpfcost_pages::picture(record);
    }
    let _ = bpfcost_pages::markdown(records, load);
    let _ = bpfcost_pages::document(records, load);
    let _ = bpfcost_pages::csv(records, load);
    let _ = csv::comparisons(records);
    let _ = json::render(records);
    let _ = bpfcost_pages::page(records, load);
    let none = |_: &Record, _| Vec::new();
    if let Ok(changes) = bpfcost_record::compare(records, records, GateOptions::default(), none) {
        let view = bpfcost_report::compare::view(&changes);
        let _ = terminal::render(&view, style);
        let _ = bpfcost_report::markdown::render(&view);
        let _ = bpfcost_report::compare::junit(&changes);
        let _ = bpfcost_report::compare::json(&changes);
    }
}

/// A journal, and the record of what it holds.
fn journal(bytes: &[u8]) {
    let Ok((contents, length)) =
        bpfcost_record::parse_journal(bytes, Path::new("fuzzed.json.journal"))
    else {
        return;
    };
    assert!(length <= bytes.len() as u64, "no more than there is");
    let header = &contents.header;
    let _ = contents.has_rounds_of(&header.plan);
    let _ = header.continues(&header.plan.cases, &header.machine);
    show(&[Record::build(
        &header.plan,
        &contents.measured,
        &header.started,
        header.machine.clone(),
    )]);
}

/// A definition of a workload, and the cases that it has.
fn workload(bytes: &[u8]) {
    let Ok(definition) = Definition::parse(&String::from_utf8_lossy(bytes)) else {
        return;
    };
    let _ = (definition.rehearsal_ms(), definition.windows());
    let window_ms = definition.trial_ms();
    for client in &definition.clients {
        let _ = (client.limit(window_ms), client.warm_up_limit(window_ms));
    }
    for variant in &definition.variants {
        let _ = definition.with_server(variant.server.as_ref());
        let text = variant.probe.as_ref().map(Spec::to_string);
        let _ = text.map(|text| Spec::from_str(&text));
    }
    let experiment = Workload::new(definition);
    let _ = (experiment.description(), experiment.pairs());
    for case in experiment.cases() {
        let _ = experiment.needs(&case);
    }
}

/// Packets of a capture.
fn pcap(bytes: &[u8]) {
    let Ok(packets) = bpfcost_program::pcap_packets(bytes, 256) else {
        return;
    };
    let all: usize = packets.iter().map(Vec::len).sum();
    assert!(all <= bytes.len(), "no more than there is");
}

/// The sizes of keys and values, a byte each, and a file with contents of a map.
fn map(bytes: &[u8]) {
    let [key_bytes, value_bytes, text @ ..] = bytes else {
        return;
    };
    let map = MapEntry {
        name: "fuzzed".to_owned(),
        key_bytes: (*key_bytes).into(),
        value_bytes: (*value_bytes).into(),
        is_program_array: false,
    };
    let text = String::from_utf8_lossy(text);
    let read = [
        bpfcost_program::MapSyntax::Json,
        bpfcost_program::MapSyntax::Csv,
    ]
    .map(|one| one.entries(&text, &map));
    for (key, value) in read.into_iter().flatten().flatten() {
        let sizes = (key.len(), value.len());
        assert_eq!(
            sizes,
            (map.key_bytes, map.value_bytes),
            "as the map has them"
        );
    }
}

/// A server's access log with two numbers a line.
fn access_log(bytes: &[u8]) {
    let names = ["bytes_in".to_owned(), "bytes_out".to_owned()];
    let _ = bpfcost_workload::read_access_log(&names, &String::from_utf8_lossy(bytes));
}

fn iperf3(bytes: &[u8]) {
    client_output(Output::Iperf3, bytes);
}

fn load(bytes: &[u8]) {
    client_output(Output::Load, bytes);
}

fn redis_benchmark(bytes: &[u8]) {
    client_output(Output::RedisBenchmark, bytes);
}

fn wrk(bytes: &[u8]) {
    client_output(Output::Wrk, bytes);
}

/// A regular expression, a line end, and the output that it finds a number in.
fn text(bytes: &[u8]) {
    client_output(Output::Text, bytes);
}

/// What a load generator printed.
fn client_output(output: Output, bytes: &[u8]) {
    let printed = String::from_utf8_lossy(bytes);
    let (pattern, rest) = printed.split_once('\n').unwrap_or((&printed, ""));
    let printed = match output {
        Output::Text => rest,
        _ => &printed,
    };
    let metrics = ["ops", "seconds", "latency_p99_us", "errors"];
    let client = Client {
        name: "fuzzed".to_owned(),
        about: String::new(),
        command: Vec::new(),
        warm_up: Vec::new(),
        output,
        metrics: metrics
            .map(|name| (name.to_owned(), pattern.to_owned()))
            .into(),
        ops: None,
        repeat: false,
        within_s: None,
        quick: false,
        only: BTreeMap::new(),
    };
    if let Ok(reading) = Reading::parse(&client, printed) {
        let _ = Reading::together(&[reading.clone(), reading]);
    }
}

/// What a server answers: a byte for its protocol and the size of pieces, then its bytes; and the same as a URL.
fn response(bytes: &[u8]) {
    let [how, answer @ ..] = bytes else {
        return;
    };
    response::read_in_pieces(how & 1 == 1, answer, usize::from(how >> 1));
    let _ = LoadTarget::parse(&String::from_utf8_lossy(answer));
}

/// The kernel's symbols and modules, an empty line between them.
fn kallsyms(bytes: &[u8]) {
    kernel::kallsyms(bytes);
    let text = String::from_utf8_lossy(bytes);
    let (list, modules) = text.split_once("\n\n").unwrap_or((&text, ""));
    let history = SymbolHistory::with(bpfcost_bpf::unwind::KernelSymbols::parse(list), modules);
    for line in list.lines().take(64) {
        let word = line.split_ascii_whitespace().next().unwrap_or_default();
        let address = u64::from_str_radix(word, 16).unwrap_or_default();
        let _ = history.frame(address.wrapping_add(1), Default::default());
    }
}
