//! Compiled objects as people write them: loaded by the kernel, translated, and run here.

#![allow(unsafe_code, reason = "runs machine code")]

#[path = "../translate/machine.rs"]
mod machine;
#[path = "../../../bpf/tests/require/mod.rs"]
mod require;

use std::{path::PathBuf, process::Command};

use bpfcost_uprobe::{
    object::{Choice, Error, LoadedObject, Pages},
    translate::{
        self, ArrayPlace, Backend as _, HelperTable, MapLayout, MapPlace, ProbeContext, Translator,
        helpers::{Blob, Environment, MapDescriptor},
    },
};
use libbpf_rs::MapType;
use machine::Machine;

/// Compiles `tests/object/NAME.bpf.c`.
fn compile(name: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let object = folder.path().join("object.o");
    let source =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/object/{name}.bpf.c"));
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang-19".into());
    let status = Command::new(clang)
        .args(["-target", "bpf", "-mcpu=v4", "-O2", "-g", "-Wall", "-c"])
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status()
        .expect("clang starts; scripts/setup.sh test installs it");
    assert!(status.success(), "{name} does not compile");
    std::fs::read(object).expect("the object was just written")
}

/// The arrays of an object where the kernel has them, mapped into this process.
struct Layout<'a> {
    object: &'a LoadedObject,
    pages: Vec<(i32, Pages, Box<MapDescriptor>)>,
}

impl<'a> Layout<'a> {
    fn new(object: &'a LoadedObject) -> Self {
        use std::os::fd::AsRawFd as _;
        let arrays = object.maps().iter().filter(|map| map.is_array());
        let pages = arrays.map(|map| {
            let pages = map.pages().expect("arrays can be mapped");
            let place = ArrayPlace {
                values: pages.address().as_ptr() as u64,
                value_size: map.value_size,
                entries: map.entries,
            };
            let descriptor = Box::new(MapDescriptor::array(place));
            (map.fd().as_raw_fd(), pages, descriptor)
        });
        Layout {
            object,
            pages: pages.collect(),
        }
    }

    /// A word of an array or a section.
    fn word(&self, map: &str, index: usize) -> u64 {
        use std::os::fd::AsRawFd as _;
        let map = self
            .object
            .maps()
            .iter()
            .find(|one| one.name.ends_with(map));
        let fd = map.expect("the object has it").fd().as_raw_fd();
        let (_, pages, _) = self
            .pages
            .iter()
            .find(|(one, ..)| *one == fd)
            .expect("an array");
        // SAFETY: the maps of the test are larger.
        unsafe { pages.address().cast::<u64>().add(index).read_volatile() }
    }
}

impl MapLayout for Layout<'_> {
    fn place(&self, fd: i32) -> translate::Result<MapPlace> {
        let map = self
            .object
            .map(fd)
            .expect("instructions name maps of their object");
        let Some((_, pages, descriptor)) = self.pages.iter().find(|(one, ..)| *one == fd) else {
            return Err(translate::Error::UnsupportedMap {
                map: map.name.clone(),
                kind: format!("{:?}", map.kind),
            });
        };
        Ok(MapPlace {
            handle: &raw const **descriptor as u64,
            array: Some(ArrayPlace {
                values: pages.address().as_ptr() as u64,
                value_size: map.value_size,
                entries: map.entries,
            }),
            arena: None,
        })
    }
}

/// Runs a program of an object once on a context.
fn run(
    object: &LoadedObject,
    layout: &Layout<'_>,
    name: &str,
    context: &ProbeContext,
) -> translate::Result<u64> {
    let program = object.programs().iter().find(|one| one.name == name);
    let program = program.expect("the object has the program");
    let mut machine = Machine::new().expect("memory can be had");
    let blob = Blob::at(machine.helpers(), Environment::default());
    machine.put_helpers(&blob.bytes);
    let code = Translator::of_this_machine().translate(
        &program.program(),
        machine.address(),
        &blob.helpers,
        layout,
    )?;
    machine.put(&code.bytes);
    let words = context
        .registers
        .iter()
        .chain([&context.function, &context.cookie]);
    let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    let outcome = machine.run(&mut bytes, true);
    assert!(
        outcome.kept_registers,
        "{name} changed a register that it must keep"
    );
    assert!(
        outcome.stack_bytes <= code.stack_bytes as usize,
        "{name} took more stack than it said"
    );
    Ok(outcome.result & 0xffff_ffff)
}

/// Offsets in `struct pt_regs`.
const AX: usize = 10;
const SI: usize = 13;
const DI: usize = 14;

#[test]
fn programs_run_on_the_kernels_arrays() {
    if !require::host() {
        return;
    }
    let object = LoadedObject::from_bytes("probe", &compile("probe"), &Choice::default())
        .expect("the kernel accepts it");
    let sections: Vec<&str> = object
        .programs()
        .iter()
        .map(|one| one.section.as_str())
        .collect();
    assert_eq!(
        sections,
        [
            "uprobe//proc/self/exe:main",
            "uretprobe//proc/self/exe:main",
            "usdt//proc/self/exe:provider:probe",
            "uprobe",
            "uprobe"
        ]
    );
    let layout = Layout::new(&object);
    let mut context = ProbeContext::default();
    for (argument, result) in [(1, 31 + 9), (1, 31 + 9), (2, 62 + 9), (3, 93 + 9)] {
        context.registers[DI] = argument;
        context.registers[SI] = 9;
        assert_eq!(run(&object, &layout, "on_entry", &context), Ok(result));
    }
    // The fourth key is beyond the array.
    assert_eq!(
        [0, 1, 2].map(|index| layout.word("counters", index)),
        [0, 14, 7]
    );
    assert_eq!(layout.word(".data", 0), 9);
    context.registers[AX] = 77;
    assert_eq!(run(&object, &layout, "on_return", &context), Ok(77));
    context.function = 0x1234;
    context.cookie = 40;
    assert_eq!(run(&object, &layout, "on_usdt", &context), Ok(0x1234));
    assert_eq!(run(&object, &layout, "on_usdt", &context), Ok(0x1234));
    assert_eq!(layout.word(".bss", 0), 80);
    assert_eq!(run(&object, &layout, "on_loop", &context), Ok(49 * 50 / 2));
    // The kernel sees what was written here.
    let map = object
        .maps()
        .iter()
        .find(|map| map.name == "counters")
        .expect("it is there");
    let kernels = libbpf_rs::MapHandle::from_map_id(id_of(map)).expect("the map has an id");
    use libbpf_rs::MapCore as _;
    let value = kernels.lookup(&1u32.to_le_bytes(), libbpf_rs::MapFlags::ANY);
    assert_eq!(
        value.expect("it can be read"),
        Some(14u64.to_le_bytes().to_vec())
    );
}

fn id_of(map: &bpfcost_uprobe::object::LoadedMap) -> u32 {
    libbpf_rs::MapInfo::new(map.fd())
        .expect("the kernel knows it")
        .info
        .id
}

#[test]
fn maps_and_helpers_that_are_not_supported_are_named() {
    if !require::host() {
        return;
    }
    let object = LoadedObject::from_bytes("probe", &compile("probe"), &Choice::default())
        .expect("the kernel accepts it");
    let table = object
        .maps()
        .iter()
        .find(|map| map.name == "table")
        .expect("it is there");
    assert_eq!(table.kind, MapType::Hash);
    assert!(
        table
            .pages()
            .expect_err("no array")
            .to_string()
            .starts_with("the map table can't be mapped")
    );
    let layout = Layout::new(&object);
    let error = run(&object, &layout, "on_table", &ProbeContext::default());
    assert_eq!(
        error.expect_err("hashes are not there yet").to_string(),
        "the map table is of a type that is not supported in user space: Hash"
    );
    // Without helpers, the loops that need none still run; a lookup by a call does not.
    let helper = bpfcost_uprobe::translate::Instruction {
        code: 0x85,
        immediate: 35,
        ..Default::default()
    };
    let exit = bpfcost_uprobe::translate::Instruction {
        code: 0x95,
        ..Default::default()
    };
    let program = translate::Program {
        instructions: &[helper, exit],
        fd: -1,
    };
    let error = Translator::of_this_machine().translate(&program, 0, &HelperTable::new(), &layout);
    assert_eq!(
        error.expect_err("an unknown helper").to_string(),
        "instruction 0: the helper bpf_get_current_task is not supported in user space"
    );
}

#[test]
fn a_rejected_program_is_named_with_the_reason() {
    if !require::host() {
        return;
    }
    let error = LoadedObject::from_bytes("wrong", &compile("wrong"), &Choice::default())
        .expect_err("no verifier accepts it");
    let Error::Rejected { program, log, .. } = &error else {
        panic!("another error: {error}");
    };
    assert_eq!(program, "on_null");
    assert!(
        log.contains("return *(volatile int *)8"),
        "no source line: {log}"
    );
    assert!(log.contains("invalid mem access"), "no reason: {log}");
    assert!(log.lines().count() <= 4, "not shortened: {log}");
}

#[test]
fn what_is_no_object_is_an_error() {
    let error = LoadedObject::from_bytes("text", b"#!/bin/sh\n", &Choice::default())
        .expect_err("no object");
    assert!(
        error.to_string().starts_with("text can't be opened"),
        "{error}"
    );
    let error = LoadedObject::open("/nonexistent/probe.o".as_ref()).expect_err("no file");
    assert!(
        error
            .to_string()
            .starts_with("/nonexistent/probe.o can't be opened"),
        "{error}"
    );
}
