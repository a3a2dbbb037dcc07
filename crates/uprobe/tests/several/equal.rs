//! The same object, in the kernel and in user space, over the same calls: all that its maps hold is the same, but for
//! times and threads.

use super::{
    common::{Binary, Target, until_restored},
    compile,
    object::{Kind, PLACES, attach, open},
};
use bpfcost_uprobe::probes::Probes;
use libbpf_rs::{
    Map, MapCore as _, MapFlags, MapType, Object, ObjectBuilder, RingBufferBuilder, UprobeOpts,
    UsdtOpts,
};
use std::{cell::RefCell, collections::BTreeMap, time::Duration};

const CALLS: u64 = 700;
/// The first bytes of an event, which say when it was and in which thread.
const OWN: usize = 16;
/// libbpf's own map where the kernel has no cookies.
const UNUSED: &str = "__bpf_usdt_ip_t";

/// Keys and values, by the map; records of rings are values without a key.
type Contents = BTreeMap<String, Vec<(Vec<u8>, Vec<u8>)>>;

/// The sum of the values of all CPUs, or of all threads, word by word.
fn sum(values: &[Vec<u8>]) -> Vec<u8> {
    let mut sum = vec![0_u64; values[0].len() / 8];
    for value in values {
        for (sum, word) in sum.iter_mut().zip(value.chunks_exact(8)) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(word.try_into().unwrap()));
        }
    }
    sum.into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// An event without its time and its thread, which have to be there: the process's number, of its only thread.
fn without_own(event: &[u8], pid: i32) -> Vec<u8> {
    let word = |index: usize| u64::from_ne_bytes(event[8 * index..][..8].try_into().unwrap());
    if event.iter().any(|&byte| byte != 0) {
        assert_ne!(word(0), 0);
        assert_eq!(word(1) >> 32, pid as u64);
    }
    event[OWN..].to_vec()
}

fn keys(entries: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..entries).map(|index| index.to_ne_bytes().to_vec())
}

fn section(name: &str) -> &str {
    name.find('.').map_or(name, |dot| &name[dot..])
}

fn map_in_kernel(map: &Map<'_>, pid: i32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let get = |key: &[u8]| map.lookup(key, MapFlags::ANY).unwrap().unwrap();
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = match map.map_type() {
        MapType::Array => keys(map.max_entries())
            .map(|key| (key.clone(), get(&key)))
            .collect(),
        MapType::PercpuArray => keys(map.max_entries())
            .map(|key| {
                let values = map.lookup_percpu(&key, MapFlags::ANY).unwrap().unwrap();
                (key, sum(&values))
            })
            .collect(),
        MapType::Hash => map.keys().map(|key| (key.clone(), get(&key))).collect(),
        MapType::RingBuf => {
            let records = RefCell::new(Vec::new());
            let mut builder = RingBufferBuilder::new();
            let take = |record: &[u8]| {
                let event = without_own(record, pid);
                records.borrow_mut().push((Vec::new(), event));
                0
            };
            builder.add(map, take).unwrap();
            builder.build().unwrap().poll(Duration::ZERO).unwrap();
            return records.take();
        }
        other => panic!("{other:?}"),
    };
    all.sort();
    all
}

fn in_kernel(object: &[u8], binary: &Binary, process: &mut Target) -> Contents {
    let open = ObjectBuilder::default().open_memory(object).unwrap();
    let object: Object = open.load().unwrap();
    let pid = process.pid();
    let mut links = Vec::new();
    for (cookie, (name, kind)) in PLACES.iter().enumerate() {
        let program = object
            .progs_mut()
            .find(|program| program.name() == *name)
            .unwrap();
        let cookie = cookie as u64;
        let link = match kind {
            Kind::Entry | Kind::Return => {
                let options = UprobeOpts {
                    cookie,
                    retprobe: *kind == Kind::Return,
                    func_name: Some("step".to_owned()),
                    ..UprobeOpts::default()
                };
                program.attach_uprobe_with_opts(pid, binary.path(), 0, options)
            }
            Kind::Usdt(site) => {
                let options = UsdtOpts {
                    cookie,
                    ..UsdtOpts::default()
                };
                program.attach_usdt_with_opts(pid, binary.path(), "test", site, options)
            }
        };
        links.push(link.unwrap());
    }
    assert_eq!(process.stop(), (CALLS, 0));
    drop(links);
    until_restored(process, "step");
    let maps = object.maps();
    maps.map(|map| {
        let name = map.name().to_string_lossy().into_owned();
        (section(&name).to_owned(), map_in_kernel(&map, pid))
    })
    .collect()
}

fn in_process(object: &[u8], process: &mut Target) -> Contents {
    let mut probes = open(object);
    let attached = attach(&mut probes, process, PLACES);
    assert_eq!(process.stop(), (CALLS, 0));
    for counts in probes.counts(&attached) {
        assert_eq!((counts.hits, counts.missed), (CALLS, 0));
    }
    probes.detach(attached).unwrap();
    let maps = probes.object().maps().iter();
    let maps: Vec<_> = maps
        .map(|map| (map.name.clone(), map.kind, map.entries))
        .collect();
    let mut all = Contents::new();
    for (name, kind, entries) in maps {
        let contents = map_in_process(&mut probes, &name, kind, entries);
        all.insert(section(&name).to_owned(), contents);
    }
    all
}

fn map_in_process(
    probes: &mut Probes,
    name: &str,
    kind: MapType,
    entries: u32,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    if kind == MapType::RingBuf {
        let mut records = Vec::new();
        let take = |pid, record: &[u8]| records.push((Vec::new(), without_own(record, pid)));
        probes.consume(name, take).unwrap();
        return records;
    }
    let map = probes.map(name).unwrap();
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = match kind {
        MapType::Array => keys(entries)
            .map(|key| (key.clone(), map.get(&key).unwrap().unwrap()))
            .collect(),
        MapType::PercpuArray => keys(entries)
            .zip(0..)
            .map(|(key, index)| (key, sum(&map.of_threads(index).unwrap())))
            .collect(),
        MapType::Hash => map.entries().unwrap(),
        other => panic!("{other:?}"),
    };
    all.sort();
    all
}

#[test]
fn maps_and_records_are_those_that_the_kernels_probes_leave() {
    let object = compile::bpf("tests/several/steps.bpf.c");
    // At the same addresses in both processes.
    let binary = Binary::compile("steps.c", &["-no-pie"]);
    let mut process = binary.start(&["1", &CALLS.to_string()]);
    let mut kernel = in_kernel(&object, &binary, &mut process);
    let mut user = in_process(&object, &mut process);
    for all in [&mut kernel, &mut user] {
        all.retain(|name, _| !name.starts_with(UNUSED));
        let last = all.get_mut("last_events").unwrap();
        for (_, event) in last {
            *event = without_own(event, process.pid());
        }
    }
    let names = |all: &Contents| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&user), names(&kernel));
    for (name, contents) in &kernel {
        assert_eq!(user[name].len(), contents.len(), "{name}");
        let mut pairs = user[name].iter().zip(contents);
        let different = pairs.find(|(user, kernel)| user != kernel);
        assert_eq!(different, None, "{name}");
    }
    assert_eq!(kernel["events"].len() as u64, CALLS * PLACES.len() as u64);
    assert!(kernel["by_value"].len() > 1000);
}
