//! Hooks without privilege: which there are, and which belong together.

use bpfcost_bpf::hook::{Hook, HookKind, companions};

use crate::lab::{compiled, hook, hooks};

fn names(hooks: &[Hook]) -> Vec<&str> {
    hooks.iter().map(|hook| hook.program.as_str()).collect()
}

#[test]
fn all_programs_at_hooks_are_listed() {
    let hooks = hooks();
    assert_eq!(hooks.len(), 36, "{:?}", names(&hooks));
    // It runs in a loop unless a hook is named for it.
    assert_eq!(hook("looped").target, None);
    let enters = hook("enters");
    assert_eq!(enters.kind, HookKind::Tracepoint);
    assert_eq!(enters.target.as_deref(), Some("syscalls:sys_enter_getppid"));
    assert!(!enters.optional && hook("raw_for_others").optional);
    assert_eq!(hook("at_dummy").target, None);
}

#[test]
fn companions_are_attached_too_and_alternatives_are_not() {
    let all = hooks();
    let of_enters = companions(&all, &hook("enters"));
    let of_enters = names(&of_enters);
    for program in ["enters", "exits", "raw", "marked", "makes_socket"] {
        assert!(of_enters.contains(&program), "{program}");
    }
    for program in [
        "typed",
        "raw_for_others",
        "at_dummy",
        "at_none",
        "sampled",
        "at_fentry",
        "looped",
    ] {
        assert!(!of_enters.contains(&program), "{program}");
    }
    let of_typed = companions(&all, &hook("typed"));
    assert!(names(&of_typed).contains(&"exits"));
    assert!(!names(&of_typed).contains(&"raw"));
}

#[test]
fn what_has_no_hook_here_says_why() {
    let absent = |hook: Hook| hook.absent().expect("an answer").unwrap_or_default();
    for (program, says) in [
        ("at_dummy", "--at at_dummy=FUNCTION"),
        ("returns", "--at returns=PATH:FUNCTION"),
        ("sampled", "--at sampled=EVENT (page-faults"),
        ("filters", "--at filters=FAMILY:HOOK"),
    ] {
        let words = absent(hook(program));
        assert!(words.contains(says), "{program}: {words}");
    }
}

#[test]
fn programs_in_structs_have_the_names_of_members() {
    let hooks = compiled("structs.bpf.c").hooks().expect("hooks");
    let places = hooks.iter().map(Hook::to_string);
    let places: Vec<String> = places.collect();
    assert_eq!(
        places,
        [
            "struct_ops sched_ext_ops.running",
            // The first of two.
            "struct_ops tcp_congestion_ops.ssthresh",
            "struct_ops"
        ]
    );
    // Ours were built without sched_ext; others may have it.
    if let Some(words) = hooks[0].absent().expect("an answer") {
        assert!(words.contains("CONFIG_SCHED_CLASS_EXT"), "{words}");
    }
    assert_eq!(
        hooks[1].absent().expect("an answer"),
        None,
        "TCP is everywhere"
    );
    let words = hooks[2].absent().expect("an answer").unwrap_or_default();
    assert_eq!(words, "no struct of the object has it");
    let moved = hooks[0].at("tcp_congestion_ops.ssthresh");
    let error = moved.expect_err("it is where it is").to_string();
    assert!(error.contains("and nowhere else"), "{error}");
    assert_eq!(companions(&hooks, &hooks[1]).len(), 2, "{places:?}");
}
