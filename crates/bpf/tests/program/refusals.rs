//! Refusals of what can't be run in a loop: each says why, and what to do instead.

use std::path::Path;

use bpfcost_bpf::{
    Error, current_cpu,
    program::{NativeProgram, ObjectFile, Settings},
};

use crate::{
    lab::{object, packet},
    require,
};

fn refusal(object: &ObjectFile, program: &str) -> String {
    let native = match NativeProgram::load(object, program, &Settings::default()) {
        Err(error) => return error.to_string(),
        Ok(native) => native,
    };
    let oracle = match native.oracle(current_cpu(), &packet()) {
        Err(error) => return error.to_string(),
        Ok(oracle) => oracle,
    };
    let form = object.program(program).expect("it is there").form;
    let changes = native.change(form, current_cpu(), &packet(), &oracle);
    changes.expect_err("it is refused").to_string()
}

#[test]
fn programs_that_cannot_be_looped_say_why() {
    if !require::host() {
        return;
    }
    let object = object("xdp.bpf.c");
    for (program, says) in [
        ("prints", &["bpf_trace_printk", "--allow-effects"][..]),
        ("reports", &["ring buffer", "is full"]),
        ("pushes", &["queue", "is full"]),
        ("throws", &["exception"]),
        ("deep_calls", &["combined stack size", "512 bytes"]),
        (
            "is_rejected",
            &["rejected is_rejected:", "invalid access to packet"],
        ),
        ("at_kprobe", &["kprobe", "bpfcost overhead", ":at_kprobe"]),
        ("at_connection", &["TCP connection", "overhead 'LOADER'"]),
        ("nothing", &["no program nothing", "pass_frags"]),
    ] {
        let error = refusal(&object, program);
        for says in says {
            assert!(error.contains(says), "{program}: {error}");
        }
        assert!(error.lines().count() < 12, "{program}: {error}");
    }
    let allowing = Settings {
        allow_effects: true,
        ..Settings::default()
    };
    let allowed = NativeProgram::load(&object, "prints", &allowing);
    assert!(allowed.is_ok(), "{allowed:?}");
}

#[test]
fn what_cannot_be_undone_is_refused() {
    if !require::host() {
        return;
    }
    let (skb, context) = (object("skb.bpf.c"), object("context.bpf.c"));
    let slots = object("slots.bpf.c");
    for (object, program, says) in [
        (&slots, "again", "so many tail calls"),
        (&skb, "set_kind_of_time", "can't be undone"),
        (&context, "closes", "bpf_sys_close"),
        (&context, "makes_map", "bpf_sys_bpf"),
        (&context, "finds_type", "bpf_btf_find_by_name_kind"),
    ] {
        let error = refusal(object, program);
        assert!(error.contains(says), "{program}: {error}");
    }
}

#[test]
fn files_that_are_no_objects_say_so() {
    let none = ObjectFile::read(Path::new("none.bpf.o")).expect_err("no file");
    assert!(none.to_string().contains("cannot read it"), "{none}");
    let text = ObjectFile::new(Path::new("a.bpf.o"), b"text".to_vec());
    let error = text.programs().expect_err("no object");
    assert!(
        matches!(error, Error::UserObject { is_input: true, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("not a BPF object"), "{error}");
}

/// `packets_by_length` is to be pinned, and is not.
#[test]
fn no_map_is_pinned() {
    if !require::host() {
        return;
    }
    let native = NativeProgram::load(&object("xdp.bpf.c"), "count", &Settings::default());
    native.expect("it loads");
    assert!(!Path::new("/sys/fs/bpf/packets_by_length").exists());
}
