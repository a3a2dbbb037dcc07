//! Hooks without privilege: which there are, and which belong together.

use bpfcost_bpf::hook::{Hook, HookKind, companions};

use crate::lab::{hook, hooks};

fn names(hooks: &[Hook]) -> Vec<&str> {
    hooks.iter().map(|hook| hook.program.as_str()).collect()
}

#[test]
fn all_programs_at_hooks_are_listed() {
    let hooks = hooks();
    assert_eq!(hooks.len(), 35, "{:?}", names(&hooks));
    assert!(!names(&hooks).contains(&"looped"));
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
