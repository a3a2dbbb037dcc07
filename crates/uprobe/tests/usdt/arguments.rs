//! Arguments of USDT sites: what libbpf's functions find in user space is what they find in the kernel.

use super::{
    common::{Binary, Target},
    compile,
};
use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Place, Probes},
    process::{Function, Image},
};
use libbpf_rs::{MapCore as _, MapFlags, ObjectBuilder, UsdtOpts};

const CALLS: u64 = 300;
/// Counts by the cookie.
const SITES: [&str; 6] = [
    "registers",
    "memory",
    "indexed",
    "constants",
    "none",
    "nowhere",
];
/// Words of a site's result: runs, count, and three of each argument.
const RESULT: usize = 2 + 3 * 12;

fn words(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

fn in_kernel(object: &[u8], binary: &Binary, process: &mut Target) -> Vec<u64> {
    let open = ObjectBuilder::default().open_memory(object).unwrap();
    let object = open.load().unwrap();
    let program = object.progs_mut().next().unwrap();
    let attach = |(cookie, name): (usize, &&str)| {
        let options = UsdtOpts {
            cookie: cookie as u64,
            ..UsdtOpts::default()
        };
        let (pid, path) = (process.pid(), binary.path());
        program.attach_usdt_with_opts(pid, path, "test", name, options)
    };
    let links: Vec<_> = SITES.iter().enumerate().map(attach).collect();
    assert!(links.iter().all(Result::is_ok), "{links:?}");
    assert_eq!(process.stop(), (CALLS, 0));
    drop(links);
    let is_it = |map: &libbpf_rs::Map<'_>| map.name().to_string_lossy().ends_with(".bss");
    let map = object.maps().find(is_it).unwrap();
    words(&map.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap())
}

fn in_process(object: &[u8], process: &mut Target) -> Vec<u64> {
    let object = LoadedObject::from_bytes("arguments", object, &Choice::default()).unwrap();
    let mut probes = Probes::new(object).unwrap();
    let image = Image::of_program(process.pid()).unwrap();
    let mut place = |(cookie, name): (usize, &&str)| {
        let site = image.usdt("test", name).unwrap().remove(0);
        let function = image.function_around(site.address).unwrap();
        let at = At::Inside {
            offset: site.address - function.address,
            semaphore: site.semaphore,
        };
        let cookie = probes.usdt_cookie("on_site", &site, cookie as u64);
        (function, at, cookie.unwrap())
    };
    let places: Vec<(Function, At, u64)> = SITES.iter().enumerate().map(&mut place).collect();
    let places: Vec<Place<'_>> = places
        .iter()
        .map(|(function, at, cookie)| Place {
            program: "on_site",
            function,
            at: *at,
            cookie: *cookie,
        })
        .collect();
    let attached = probes.attach(process.pid(), &places).unwrap();
    assert_eq!(process.stop(), (CALLS, 0));
    let hits = probes.detach(attached).unwrap().inside;
    assert_eq!((hits.hits, hits.missed), (CALLS * SITES.len() as u64, 0));
    words(&probes.map(".bss").unwrap().get(&[0; 4]).unwrap().unwrap())
}

#[test]
fn arguments_are_those_that_the_kernels_probe_finds() {
    let object = compile::bpf("tests/usdt/arguments.bpf.c");
    let binary = Binary::compile("arguments.c", &["-no-pie"]);
    let mut processes = [(); 2].map(|()| binary.start(&[&CALLS.to_string()]));
    let kernel = in_kernel(&object, &binary, &mut processes[0]);
    let user = in_process(&object, &mut processes[1]);
    for (index, name) in SITES.iter().enumerate() {
        let of = |results: &[u64]| results[RESULT * index..][..RESULT].to_vec();
        let (kernel, user) = (of(&kernel), of(&user));
        assert_eq!(user[0], CALLS, "{name}");
        assert_eq!(user, kernel, "{name}");
    }
}

#[test]
fn registers_and_the_page_of_the_stack_are_read_without_a_system_call() {
    let object = compile::bpf("tests/usdt/arguments.bpf.c");
    let binary = Binary::compile("arguments.c", &[]);
    let results = in_process(&object, &mut binary.start(&[&CALLS.to_string(), "f"]));
    // Those of `memory` on the stack; `indexed` has but one there, the last.
    for (name, arguments) in [("registers", 0..12), ("memory", 0..7), ("indexed", 4..5)] {
        let index = SITES.iter().position(|site| *site == name).unwrap();
        let errors = &results[RESULT * index..][14..26];
        assert!(
            errors[arguments].iter().all(|&error| error == 0),
            "{name}: {errors:?}"
        );
    }
}
