//! Programs with options that are off, in running processes. Options that are on are refused by the name of what they need.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
#[path = "../common/in_kernel.rs"]
mod in_kernel;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{self, Probes},
    translate::{Instruction, without_dead_code},
};
use common::{Binary, Target, attach_at_entry};
use in_kernel::InKernel;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapInfo};

/// Values of options, by name.
type Options<'a> = &'a [(&'a str, &'a [u8])];

const STEP: u64 = 0x1_0000_0001;
/// The sum of the first three.
const SUM: u64 = STEP + 6;

fn load(constants: Options<'_>) -> LoadedObject {
    let object = compile::bpf("tests/options/options.bpf.c");
    let choice = Choice {
        programs: &[],
        constants,
    };
    LoadedObject::from_bytes("options", &object, &choice).unwrap()
}

fn open(constants: Options<'_>) -> Probes {
    Probes::new(load(constants)).unwrap()
}

fn serve() -> (Binary, Target) {
    let binary = Binary::compile("serve.c", &[]);
    let process = binary.start(&["2", "1000"]);
    (binary, process)
}

/// The global variables: calls, steps, sum.
fn all(values: &[u8]) -> [u64; 3] {
    [0, 1, 2].map(|index| u64::from_ne_bytes(values[8 * index..][..8].try_into().unwrap()))
}

/// Counts the calls of a process by a program. Returns how many it ran in, and what it left.
fn count(probes: &mut Probes, program: &str) -> probes::Result<(u64, [u64; 3])> {
    let (_binary, mut process) = serve();
    let attached = attach_at_entry(probes, process.pid(), program, "handle")?;
    let calls = process.go();
    let counts = probes.detach(attached)?.entry;
    assert_eq!(counts.hits + counts.missed, calls);
    let values = probes.map(".bss")?.get(&[0; 4])?.unwrap();
    Ok((counts.hits, all(&values)))
}

/// The same by the kernel.
fn count_in_kernel(program: &str) -> (u64, [u64; 3]) {
    let (binary, mut process) = serve();
    let object = compile::bpf("tests/options/options.bpf.c");
    let kernel = InKernel::attach(&object, &[program], 0, (&binary, &process));
    let calls = process.go();
    (calls, all(&kernel.value(".bss", 0)))
}

#[test]
fn an_option_that_is_off_needs_nothing() {
    let (hits, left) = count(&mut open(&[]), "on_filtered").unwrap();
    assert!(hits > 0);
    assert_eq!(left, [hits, 0, 0]);
}

#[test]
fn an_option_that_is_on_is_refused_by_name() {
    let on: Options<'_> = &[("filter_cg", &[1])];
    let error = count(&mut open(on), "on_filtered").unwrap_err().to_string();
    assert_eq!(
        error,
        "on_filtered can't run in user space: the map cgroup_map is of a type that is not supported in user space: \
         cgroup_array\n  use a kernel uprobe for it"
    );
}

/// Nothing says that it stays off.
#[test]
fn an_option_that_is_not_constant_is_refused() {
    let error = count(&mut open(&[]), "on_filtered_by_data").unwrap_err();
    assert!(error.to_string().contains("the map cgroup_map"), "{error}");
}

#[test]
fn functions_and_callbacks_of_options_that_are_off_need_nothing() {
    for program in ["on_options", "on_loop"] {
        let (hits, left) = count(&mut open(&[]), program).unwrap();
        assert!(hits > 0);
        let (calls, in_kernel) = count_in_kernel(program);
        let each = match program {
            "on_options" => [1, STEP, 0],
            _ => [0, 0, SUM],
        };
        assert_eq!(left, each.map(|one| one * hits), "{program}");
        assert_eq!(in_kernel, each.map(|one| one * calls), "{program}");
    }
}

#[test]
fn other_modes_are_refused_by_what_they_need() {
    let cases: [(&str, &str, Options<'_>, &str); 5] = [
        (
            "records",
            "on_options",
            &[("writes_records", &[1])],
            "the map records",
        ),
        (
            "callback",
            "on_options",
            &[("mode", &[2, 0, 0, 0])],
            "the map waiting",
        ),
        (
            "default",
            "on_options",
            &[("mode", &[0, 0, 0, 0])],
            "the map waiting",
        ),
        (
            "kernel functions",
            "on_options",
            &[("mode", &[2, 0, 0, 0]), ("writes_records", &[1])],
            "kernel functions",
        ),
        (
            "loop",
            "on_loop",
            &[("rounds", &[4, 0, 0, 0])],
            "the map waiting",
        ),
    ];
    for (name, program, constants, expected) in cases {
        let error = count(&mut open(constants), program).unwrap_err();
        assert!(error.to_string().contains(expected), "{name}: {error}");
    }
}

/// The object says so too: what its programs need is what is left of them.
#[test]
fn maps_of_dead_code_are_not_used() {
    let uses = |constants: Options<'_>, program: &str| -> Vec<String> {
        let object = load(constants);
        let mut programs = object.programs().iter();
        let program = programs.find(|one| one.name == program).unwrap();
        let used = object.maps().iter().filter(|map| program.uses(map));
        used.map(|map| map.name.rsplit('.').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(uses(&[], "on_filtered"), ["rodata", "bss"]);
    let on: Options<'_> = &[("filter_cg", &[1])];
    assert_eq!(uses(on, "on_filtered"), ["cgroup_map", "rodata", "bss"]);
    assert_eq!(uses(&[], "on_options"), ["rodata", "bss"]);
}

#[test]
fn only_frozen_values_are_constants() {
    let object = load(&[("mode", &[9, 0, 0, 0])]);
    let constants = |end: &str| {
        let mut maps = object.maps().iter();
        maps.find(|map| map.name.ends_with(end))
            .unwrap()
            .constants()
    };
    let read_only = constants(".rodata").expect("libbpf freezes it");
    assert!(read_only.windows(4).any(|bytes| bytes == [9, 0, 0, 0]));
    for other in [".bss", "cgroup_map", "waiting", "settings", "counts"] {
        assert_eq!(constants(other), None, "{other}");
    }
    let kernels = |end: &str| {
        let mut maps = object.maps().iter();
        let map = maps.find(|map| map.name.ends_with(end)).unwrap();
        let id = MapInfo::new(map.fd()).unwrap().info.id;
        MapHandle::from_map_id(id).unwrap()
    };
    let settings = kernels("settings");
    settings
        .update(&[0; 4], &7_u64.to_ne_bytes(), MapFlags::ANY)
        .unwrap();
    assert_eq!(constants("settings"), None);
    settings.freeze().unwrap();
    assert_eq!(constants("settings"), Some(7_u64.to_ne_bytes().to_vec()));
    kernels("counts").freeze().unwrap();
    assert_eq!(constants("counts"), None);
    // What is left of the programs has nothing more that is dead.
    for program in object.programs() {
        let again = without_dead_code(&program.instructions, &|_| None);
        let is_dead = |one: &&Instruction| one.code == 0x05 && one.offset == 0;
        assert_eq!(
            again.iter().filter(is_dead).count(),
            program.instructions.iter().filter(is_dead).count(),
            "{}",
            program.name
        );
    }
}
