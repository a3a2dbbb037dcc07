//! Functions whose return address stays as it is: what they jump to may not return to it.

use super::{Runtime, Tails, at_return, program};
use crate::common::Binary;
use bpfcost_uprobe::process::Image;

#[test]
fn what_might_throw_or_look_at_its_caller_is_refused() {
    let mut tails = Tails::start(&[]);
    let mut runtime = Runtime::open(tails.process.pid()).unwrap();
    let empty = program::empty(&mut runtime);
    for (name, reason) in [
        ("points", "which may call a function pointer"),
        ("pointed", "which may call a function pointer"),
        ("prints", "which may call those of other files"),
        ("looks", "which may look at its return address"),
        ("parted", "code that jumps back into it"),
        ("framed", "while its own stack frame may be there"),
    ] {
        let function = tails.function(name);
        let error = runtime.attach(&[at_return(&function, empty)]).unwrap_err();
        assert!(error.to_string().contains(reason), "{name}: {error}");
    }
    let qsort = tails.library("qsort");
    let error = runtime.attach(&[at_return(&qsort, empty)]).unwrap_err();
    let reason = "which may call a function pointer";
    assert!(error.to_string().contains(reason), "{error}");
    assert_eq!(tails.call("leaves 100").0, 100);
}

#[test]
fn exceptions_pass_functions_that_are_refused() {
    let binary = Binary::compile_by("g++", &["-O2", "-g0"], "throws.cc");
    let mut process = binary.start(&[]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let empty = program::empty(&mut runtime);
    let image = Image::of_program(process.pid()).unwrap();
    for name in ["calls_pointer", "throws_itself", "rethrows"] {
        let function = image.function(name).unwrap();
        let error = runtime.attach(&[at_return(&function, empty)]).unwrap_err();
        let reason = "it leaves by a jump to another function, which may call";
        assert!(error.to_string().contains(reason), "{name}: {error}");
    }
    assert_eq!(process.go(), 3000);
}
