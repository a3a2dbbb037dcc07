//! Addresses of functions of running programs.

mod common;

use bpfcost_uprobe::process::{Error, Image, Memory};
use common::{Binary, write_code};
use std::path::Path;

#[test]
fn a_function_is_found_whether_or_not_the_program_can_be_moved() {
    for flags in [&["-pie"][..], &["-no-pie"], &["-static"], &["-static-pie"]] {
        let target = Binary::compile("busy.c", flags);
        let process = target.start(&["1"]);
        let image = Image::of_program(process.pid()).unwrap();
        let function = image.function("work").unwrap();
        function
            .check(&Memory::open(process.pid()).unwrap())
            .unwrap();
        assert!(function.code.len() > 20, "{flags:?}: {function:?}");
        assert!(!function.is_go);
        assert_eq!(function.offset(4).unwrap(), function.address + 4);
        assert!(matches!(
            function.offset(function.code.len() as u64),
            Err(Error::Symbol { .. })
        ));
    }
}

#[test]
fn a_function_of_a_library_is_found_by_the_library() {
    let process = Binary::compile("busy.c", &[]).start(&["1"]);
    let maps = bpfcost_uprobe::process::mappings(process.pid()).unwrap();
    let libc = maps
        .iter()
        .find(|mapping| mapping.is_executable() && mapping.name.contains("libc.so"))
        .unwrap();
    let image = Image::open(process.pid(), Path::new(&libc.name)).unwrap();
    let function = image.function("malloc").unwrap();
    function
        .check(&Memory::open(process.pid()).unwrap())
        .unwrap();
    assert!(libc.contains(function.address));
}

#[test]
fn memory_that_is_not_the_files_is_refused() {
    let process = Binary::compile("busy.c", &[]).start(&["0"]);
    let function = Image::of_program(process.pid())
        .unwrap()
        .function("work")
        .unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    write_code(&process, function.address + 3, &[0xcc]);
    let error = function.check(&memory).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Changed {
                offset: 3,
                found: 0xcc,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn what_is_not_there_is_named_with_what_is_near() {
    let target = Binary::compile("busy.c", &[]);
    let process = target.start(&["1"]);
    let image = Image::of_program(process.pid()).unwrap();
    let error = image.function("scalde").unwrap_err().to_string();
    assert!(
        error.contains("has no function scalde\n  did you mean scaled?"),
        "{error}"
    );

    let error = Image::open(process.pid(), Path::new("/bin/true")).unwrap_err();
    assert!(matches!(error, Error::NotMapped { .. }), "{error}");

    // The kernel's largest process ID is 2^22.
    let error = Image::of_program(1 << 23).unwrap_err();
    assert!(matches!(error, Error::NoProcess { .. }), "{error}");
}

#[test]
fn a_file_that_was_replaced_is_no_longer_the_programs() {
    let target = Binary::compile("busy.c", &[]);
    let process = target.start(&["1"]);
    let other = Binary::compile("busy.c", &["-O1"]);
    std::fs::remove_file(target.path()).unwrap();
    std::fs::copy(other.path(), target.path()).unwrap();
    let error = Image::open(process.pid(), &target.path()).unwrap_err();
    assert!(matches!(error, Error::Replaced { .. }), "{error}");
    // The process itself still has the old one.
    let function = Image::of_program(process.pid())
        .unwrap()
        .function("work")
        .unwrap();
    function
        .check(&Memory::open(process.pid()).unwrap())
        .unwrap();
}

#[test]
fn two_functions_of_one_name_are_ambiguous() {
    let other = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/targets/ambiguous_other.c"
    );
    let process = Binary::compile("ambiguous.c", &[other]).start(&[]);
    let error = Image::of_program(process.pid())
        .unwrap()
        .function("twice")
        .unwrap_err();
    assert!(
        matches!(&error, Error::Ambiguous { addresses, .. } if addresses.len() == 2),
        "{error}"
    );
}
