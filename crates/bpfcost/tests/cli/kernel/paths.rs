//! Commands that need no archive: help, lists, paths and mistakes.

use super::lab::{Lab, image};

#[test]
fn help() {
    for command in ["", "add", "build", "list", "remove"] {
        let text = Lab::new().answers(&format!("{command} --help")).out;
        insta::assert_snapshot!(format!("help {command}").trim().replace(' ', "_"), text);
    }
}

#[test]
fn an_empty_list_says_how_to_fill_it() {
    let lab = Lab::new();
    assert_eq!(
        lab.answers("list").out,
        "No kernels yet. Add one: bpfcost kernel add trixie (6.12), bookworm (6.1), sid (the newest)
"
    );
    assert_eq!(lab.answers("list --format json").out, "[]\n");
    assert!(
        !lab.tool.path("cache").exists(),
        "looking leaves nothing behind"
    );
}

#[test]
fn the_kernel_of_a_path() {
    let lab = Lab::new();
    lab.write("vmlinuz", image("6.9.0-mine"));
    let said = lab.answers("add vmlinuz");
    assert!(said.out.contains("added 6.9.0-mine"), "{said:?}");
    assert!(
        said.err.contains("notice: 6.9.0-mine has no modules at"),
        "{said:?}"
    );
    assert!(
        lab.answers("add ./vmlinuz")
            .out
            .contains("is already there")
    );
    lab.write("system/boot/vmlinuz-6.1.0-9-amd64", image("6.1.0-9-amd64"));
    let table = lab.answers("list").out;
    assert!(
        table.contains("6.1.0-9-amd64") && table.contains("/boot"),
        "{table}"
    );
    lab.refuses(
        "remove 6.1.0-9-amd64",
        2,
        &["belongs to the system", "kernel list"],
    );
    lab.answers("remove 6.9");
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn paths_that_are_no_kernels() {
    let lab = Lab::new();
    lab.write("notes.txt", "not a kernel");
    let whole = image("6.9.0");
    lab.write("cut", &whole[..700]);
    lab.write("evil", image("../../../6.9"));
    for (path, words) in [
        ("./notes.txt", "does not have the header of one"),
        ("./cut", "truncated"),
        ("./evil", "names no release"),
        ("./", "not a regular file"),
        ("./nothing", "No such file"),
        ("/dev/null", "not a regular file"),
    ] {
        lab.refuses(
            &format!("add {path}"),
            2,
            &[path, "is not a kernel image", words, "bzImage"],
        );
    }
    assert_eq!(lab.kept(), [""; 0]);
}

#[test]
fn words_that_are_neither_suite_nor_path() {
    let lab = Lab::new();
    for word in ["Trixie", "trixie!", "a.b"] {
        lab.refuses(
            &format!("add {word}"),
            2,
            &[word, "bookworm (6.1), trixie (6.12), sid"],
        );
    }
    lab.refuses(
        "add 6.12",
        2,
        &["6.12 is neither", "bpfcost kernel add trixie"],
    );
    lab.refuses("add", 2, &["SUITE|PATH|URL"]);
    lab.refuses("build", 2, &["--frame-pointer"]);
    lab.refuses("remove", 2, &["NAME"]);
    lab.refuses(
        "remove 6.12",
        2,
        &[
            "no kernel 6.12 to remove",
            "there is none yet",
            "kernel list",
        ],
    );
    assert_eq!(lab.kept(), [""; 0]);
}
