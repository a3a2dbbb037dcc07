//! Probes at USDT sites.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;

mod arguments;

use bpfcost_uprobe::process::{Image, Inside, Memory, Probe, Runtime, UsdtSite};
use common::{Binary, Target, program};
use std::process::Command;

const CALLS: u64 = 500;

fn start(flags: &[&str]) -> (Binary, Target) {
    let binary = Binary::compile("inside.c", flags);
    let process = binary.start(&["2", "", "250"]);
    (binary, process)
}

fn semaphore(memory: &Memory, site: &UsdtSite) -> u64 {
    memory.read_u64(site.semaphore.unwrap()).unwrap() & 0xffff
}

#[test]
fn a_site_without_a_semaphore_is_found_and_probed() {
    for flags in [&["-pie"][..], &["-no-pie"], &["-static"]] {
        let (_binary, mut process) = start(flags);
        let image = Image::of_program(process.pid()).unwrap();
        let sites = image.usdt("test", "flags").unwrap();
        assert_eq!(sites.len(), 1);
        assert_eq!(
            (sites[0].semaphore, &*sites[0].arguments),
            (None, "8@%rdi -4@-8(%rsp)")
        );
        let function = image.function_around(sites[0].address).unwrap();
        assert_eq!(function.name, "mixed");
        let mut runtime = Runtime::open(process.pid()).unwrap();
        let inside = Inside {
            offset: sites[0].address - function.address,
            program: program::wild(&mut runtime),
            semaphore: None,
        };
        let probe = Probe {
            function: &function,
            entry: None,
            returns: None,
            inside: &[inside],
        };
        let attachment = runtime.attach(std::slice::from_ref(&probe)).unwrap();
        assert_eq!(process.stop(), (CALLS, 0));
        let hits = runtime.detach(attachment).unwrap()[0];
        assert_eq!(hits.inside.hits + hits.inside.missed, 5 * CALLS);
    }
}

#[test]
fn a_semaphore_is_raised_for_each_site_while_it_is_probed() {
    let (_binary, mut process) = start(&[]);
    let image = Image::of_program(process.pid()).unwrap();
    let sites = image.usdt("test", "armed").unwrap();
    let function = image.function_around(sites[0].address).unwrap();
    assert_eq!(function.name, "armed");
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    let wild = program::wild(&mut runtime);
    let inside: Vec<Inside> = sites
        .iter()
        .map(|site| Inside {
            offset: site.address - function.address,
            program: wild,
            semaphore: site.semaphore,
        })
        .collect();
    let probe = Probe {
        function: &function,
        entry: None,
        returns: None,
        inside: &inside,
    };
    // Another tool's.
    memory.write(sites[0].semaphore.unwrap(), &[3, 0]).unwrap();
    for _ in 0..3 {
        let attachment = runtime.attach(std::slice::from_ref(&probe)).unwrap();
        assert_eq!(semaphore(&memory, &sites[0]), 5);
        assert_eq!(process.stop(), (CALLS, 0));
        let hits = runtime.detach(attachment).unwrap()[0];
        assert_eq!(hits.inside.hits + hits.inside.missed, 2 * CALLS);
        assert_eq!(semaphore(&memory, &sites[0]), 3);
    }
    // It is raised once for all programs of a site, up to the last one's end.
    let first = runtime.attach(std::slice::from_ref(&probe)).unwrap();
    let second = runtime.attach(std::slice::from_ref(&probe)).unwrap();
    assert_eq!(semaphore(&memory, &sites[0]), 5);
    runtime.detach(first).unwrap();
    assert_eq!(semaphore(&memory, &sites[0]), 5);
    runtime.detach(second).unwrap();
    assert_eq!(semaphore(&memory, &sites[0]), 3);
    // Also if the first has none.
    let without: Vec<Inside> = inside
        .iter()
        .map(|one| Inside {
            semaphore: None,
            ..*one
        })
        .collect();
    let without = Probe {
        inside: &without,
        ..probe.clone()
    };
    let first = runtime.attach(&[without]).unwrap();
    assert_eq!(semaphore(&memory, &sites[0]), 3);
    let second = runtime.attach(std::slice::from_ref(&probe)).unwrap();
    assert_eq!(semaphore(&memory, &sites[0]), 5);
    runtime.detach(second).unwrap();
    runtime.detach(first).unwrap();
    assert_eq!(semaphore(&memory, &sites[0]), 3);
    function.check(&memory).unwrap();
}

#[test]
fn what_is_not_there_is_named_with_what_is_near() {
    let (_binary, process) = start(&[]);
    let image = Image::of_program(process.pid()).unwrap();
    let error = image.usdt("test", "amred").unwrap_err().to_string();
    assert!(
        error.ends_with("has no USDT probe test:amred\n  did you mean test:armed?"),
        "{error}"
    );
    let libc = bpfcost_uprobe::process::mappings(process.pid())
        .unwrap()
        .into_iter()
        .find(|mapping| mapping.is_executable() && mapping.name.contains("ld-linux"))
        .unwrap();
    let image = Image::open(process.pid(), libc.name.as_ref()).unwrap();
    assert!(image.usdt("none", "frobnicate").is_err());
}

#[test]
fn without_symbols_a_site_is_found_but_not_its_function() {
    let binary = Binary::compile("inside.c", &[]);
    let status = Command::new("strip").arg(binary.path()).status().unwrap();
    assert!(status.success());
    let process = binary.start(&["1"]);
    let image = Image::of_program(process.pid()).unwrap();
    let site = image.usdt("test", "flags").unwrap().remove(0);
    let error = image.function_around(site.address).unwrap_err().to_string();
    assert!(
        error.contains("covers it, so the branches around it are unknown"),
        "{error}"
    );
}
