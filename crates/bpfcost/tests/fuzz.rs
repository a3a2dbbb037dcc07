//! Every parser on the seeds of `fuzz/`, whole and damaged in a few hundred ways that are the same in each run: none
//! may panic. `make fuzz` goes on from there.

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use bpfcost::fuzz::TARGETS;
use rand::{RngExt as _, SeedableRng as _, seq::IndexedRandom as _};
use rand_pcg::Pcg32;

/// Bytes that a parser is given in all: large seeds are damaged less often.
const BYTES: usize = 1 << 21;
/// The fewest and the most damaged forms of a seed.
const FORMS: std::ops::RangeInclusive<usize> = 20..=3000;
/// Numbers in text at which types end.
const LIMITS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e308",
    "-1e308",
    "1e-320",
    "null",
];

/// Records of other forms: counts, workloads.
const RECORDS: [&[u8]; 3] = [
    include_bytes!("records_before/xdp-lb-exact.json"),
    include_bytes!("records_before/redis.json"),
    include_bytes!("records_before/kretprobe.json"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The files of a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| {
        panic!("{}: {error}", folder.display());
    });
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}

/// A damaged form of a seed, by one to four changes.
fn damaged(random: &mut Pcg32, seeds: &[Vec<u8>], seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..random.random_range(1..=4) {
        change(random, seeds, &mut bytes);
    }
    bytes
}

fn change(random: &mut Pcg32, seeds: &[Vec<u8>], bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.push(random.random());
        return;
    }
    let at = random.random_range(0..bytes.len());
    let end = random.random_range(at..=bytes.len().min(at + 64));
    match random.random_range(0..9) {
        0 => bytes[at] ^= 1 << random.random_range(0..8),
        1 => bytes[at] = random.random(),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let twice = bytes[at..end].to_vec();
            bytes.splice(at..at, twice);
        }
        // The beginning of one and the end of another.
        5 => {
            let other = seeds.choose(random).expect("a seed");
            let from = random.random_range(0..=other.len());
            bytes.truncate(at);
            bytes.extend(&other[from..]);
        }
        // A number of 1 to 8 bytes at its limits.
        6 => {
            let size = 1 << random.random_range(0..4);
            let byte = *[0, 0x7f, 0x80, 0xff].choose(random).expect("a byte");
            let end = bytes.len().min(at + size);
            bytes[at..end].fill(byte);
        }
        // A number of a text.
        _ => {
            let is_digit = |byte: &u8| byte.is_ascii_digit() || b".-".contains(byte);
            let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit) else {
                return;
            };
            let start = at + start;
            let length = bytes[start..].iter().take_while(|byte| is_digit(byte));
            let end = start + length.count();
            let limit = LIMITS.choose(random).expect("a limit");
            bytes.splice(start..end, limit.bytes());
        }
    }
}

/// A parser does not panic on these bytes. If it does, they are written to a file.
fn check(name: &str, parse: fn(&[u8]), bytes: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| parse(bytes))).is_ok() {
        return;
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
    fs::write(&file, bytes).expect("it can be written");
    panic!(
        "the parser {name} panics on these {} bytes, which are in {}: {}",
        bytes.len(),
        file.display(),
        bytes.get(..400).unwrap_or(bytes).escape_ascii()
    );
}

/// Runs a parser on its seeds, and on damaged forms of each.
fn survives(name: &str) {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, parse) = found.expect("a parser of that name");
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for file in files(&folder().join("seeds").join(name)) {
        seeds.push(fs::read(&file).expect("a seed"));
    }
    assert!(!seeds.is_empty(), "{name} has no seeds");
    if name == "record" {
        seeds.extend(RECORDS.map(<[u8]>::to_vec));
    }
    check(name, *parse, &[]);
    let mut random = Pcg32::seed_from_u64(1);
    for seed in &seeds {
        check(name, *parse, seed);
        let forms = BYTES / seeds.len() / seed.len().max(1);
        for _ in 0..forms.clamp(*FORMS.start(), *FORMS.end()) {
            check(name, *parse, &damaged(&mut random, &seeds, seed));
        }
    }
}

/// A test for each parser: one that never ends is named.
macro_rules! survive {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                survives($name);
            }
        )*

        const TESTED: &[&str] = &[$($name),*];
    };
}

survive! {
    access_log: "access-log",
    deb: "deb",
    elf: "elf",
    iperf3: "iperf3",
    journal: "journal",
    kallsyms: "kallsyms",
    load: "load",
    map: "map",
    openpgp: "openpgp",
    orc: "orc",
    pcap: "pcap",
    record: "record",
    redis_benchmark: "redis-benchmark",
    response: "response",
    text: "text",
    usdt: "usdt",
    workload: "workload",
    wrk: "wrk",
}

#[test]
fn each_parser_has_a_test_a_target_of_cargo_fuzz_and_seeds() {
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let tested = TESTED.iter().map(|name| (*name).to_owned()).collect();
    let names = |folder: &str| -> BTreeSet<String> {
        let files = files(&self::folder().join(folder));
        let stems = files.iter().filter_map(|file| file.file_stem());
        stems
            .map(|stem| stem.to_string_lossy().into_owned())
            .collect()
    };
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let programs = manifest["bin"].as_array().expect("programs").iter();
    let programs: BTreeSet<String> = programs
        .map(|program| program["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(known, tested);
    assert_eq!(known, programs);
    assert_eq!(known, names("fuzz_targets"));
    assert_eq!(known, names("seeds"));
}

#[test]
fn seeds_are_what_this_version_writes() {
    for file in files(&folder().join("seeds/record")) {
        assert!(bpfcost_record::load(&file).is_ok(), "{}", file.display());
    }
    for file in files(&folder().join("seeds/journal")) {
        let read = bpfcost_record::read_journal(&file);
        let read = read.unwrap_or_else(|error| {
            panic!("{}: {error}\n  Write its version anew", file.display());
        });
        assert!(read.measured.cases.iter().any(|case| case.ops > 0));
    }
}
