//! Programs attached at their hooks, and their runs.

use std::{net::UdpSocket, path::Path};

use bpfcost_bpf::{
    hook::{Hook, HookedObject},
    program::Settings,
    stats::StatsOn,
};

use crate::{
    lab::{hook, object, of_this_process},
    require,
};

/// Calls of each event.
const CALLS: u64 = 100;

/// Marks a place for a uprobe.
#[allow(unsafe_code, reason = "a uprobe finds it by its name")]
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn hook_test_marker(number: u64) -> u64 {
    std::hint::black_box(number) + 1
}

fn load(hooks: &[Hook]) -> HookedObject {
    let loaded = HookedObject::load(object(), &hooks[0], hooks, &of_this_process());
    loaded.unwrap_or_else(|error| panic!("{error}"))
}

/// Attaches a program while `events` makes events, and returns its runs.
fn runs(hook: Hook, events: impl FnOnce(&HookedObject)) -> u64 {
    let _stats = StatsOn::start().expect("bpf_stats");
    let mut loaded = load(&[hook]);
    loaded.attach().unwrap_or_else(|error| panic!("{error}"));
    events(&loaded);
    loaded.detach();
    loaded.runs().expect("runs").into_values().sum()
}

/// Returns true if this kernel has these hooks. Where it should have one, the tests of features say so.
fn has(hooks: &[Hook]) -> bool {
    require::host()
        && hooks
            .iter()
            .all(|hook| match hook.absent().expect("an answer") {
                Some(words) => {
                    require::skip_as("features", words);
                    false
                }
                None => true,
            })
}

fn call() {
    for _ in 0..CALLS {
        let _ = rustix::process::getppid();
        let _ = rustix::process::getpriority_process(None);
    }
}

#[test]
fn entry_and_exit_run_once_for_each_event() {
    let hooks = [hook("enters"), hook("exits")];
    if !has(&hooks) {
        return;
    }
    let _stats = StatsOn::start().expect("bpf_stats");
    let mut loaded = load(&hooks);
    loaded.attach().expect("attaching");
    for _ in 0..10 {
        call();
        loaded.drain().expect("buffers");
    }
    loaded.detach();
    let first = loaded.runs().expect("runs");
    assert!(first["enters"] >= 10 * CALLS, "{first:?}");
    assert!(first["exits"] >= 10 * CALLS, "{first:?}");
    // No pin is left, and detached programs run no more.
    assert!(!Path::new("/sys/fs/bpf/starts").exists());
    call();
    assert_eq!(loaded.runs().expect("runs"), first);
    loaded.attach().expect("attaching again");
    call();
    assert!(loaded.runs().expect("runs")["enters"] >= first["enters"] + CALLS);
}

#[test]
fn machine_code_is_named_by_the_kernel() {
    let hooks = [hook("raw")];
    if !has(&hooks) {
        return;
    }
    let loaded = load(&hooks);
    let code = loaded.code("raw").expect("addresses");
    assert_eq!(code.functions.len(), 2, "the program and its function");
    let main = &code.functions[0];
    let symbols = bpfcost_bpf::unwind::KernelSymbols::read().expect("symbols");
    let (name, start, _) = symbols.containing(main.start).expect("a symbol");
    assert!(
        name.starts_with("bpf_prog_") && name.ends_with("_raw"),
        "{name}"
    );
    assert!(start <= main.start && main.start < main.end);
    let figures = loaded.figures("raw").expect("figures");
    assert!(
        figures.processed > 4 && figures.jited_bytes > 0,
        "{figures:?}"
    );
    assert!(loaded.code("enters").is_err());
}

#[test]
fn programs_run_at_hooks_of_each_kind() {
    let paged = hook("sampled").at("page-faults").expect("an event");
    let typed = [hook("raw"), hook("typed")];
    for hook in typed {
        if has(std::slice::from_ref(&hook)) {
            let name = hook.program.clone();
            assert!(runs(hook, |_| call()) >= CALLS, "{name}");
        }
    }
    let mark = |_: &HookedObject| {
        let sum: u64 = (0..CALLS).map(|number| hook_test_marker(number)).sum();
        assert!(sum > CALLS);
    };
    let marked = hook("marked")
        .at("/proc/self/exe:hook_test_marker")
        .expect("a place");
    if has(std::slice::from_ref(&marked)) {
        assert_eq!(runs(marked, mark), CALLS);
        let returns = hook("returns")
            .at("/proc/self/exe:hook_test_marker")
            .expect("a place");
        assert_eq!(runs(returns, mark), CALLS);
    }
    // The marker is in the driver of uprobes, which does not run here.
    if has(&[hook("at_usdt")]) {
        assert_eq!(runs(hook("at_usdt"), |_| ()), 0);
    }
    for program in ["at_uprobe_multi", "at_uretprobe_multi"] {
        if has(&[hook(program)]) {
            assert_eq!(runs(hook(program), mark), CALLS, "{program}");
        }
    }
    if has(std::slice::from_ref(&paged)) {
        let touch = |_: &HookedObject| drop(std::hint::black_box(vec![1u8; 64 << 20]));
        assert!(runs(paged, touch) > 0);
    }
    let sockets = |_: &HookedObject| {
        (0..CALLS).for_each(|_| drop(UdpSocket::bind("127.0.0.1:0").expect("a socket")));
    };
    if has(&[hook("makes_socket")]) {
        assert!(runs(hook("makes_socket"), sockets) >= CALLS);
    }
    if has(&[hook("each_task")]) {
        let read = |loaded: &HookedObject| {
            loaded.read_iterators().expect("an iterator");
        };
        assert!(runs(hook("each_task"), read) > 1);
    }
}

#[test]
fn functions_and_system_calls_have_hooks() {
    for program in [
        "at_kprobe",
        "inside_kprobe",
        "at_kretprobe",
        "at_kprobe_multi",
        "at_kretprobe_multi",
        "at_kprobe_session",
        "at_ksyscall",
        "at_kretsyscall",
        "at_fentry",
        "at_fexit",
        "at_alias",
    ] {
        if has(&[hook(program)]) {
            assert!(runs(hook(program), |_| call()) >= CALLS, "{program}");
        }
    }
    let named = hook("at_fentry_dummy")
        .at("__x64_sys_getpriority")
        .expect("a function");
    if has(std::slice::from_ref(&named)) {
        assert!(runs(named, |_| call()) >= CALLS);
    }
    for program in ["at_lsm", "at_fmod_ret"] {
        if has(&[hook(program)]) {
            let socket = |_: &HookedObject| drop(UdpSocket::bind("127.0.0.1:0").expect("a socket"));
            assert!(runs(hook(program), socket) > 0, "{program}");
        }
    }
}

#[test]
fn companions_that_are_rejected_are_left_out() {
    let chosen = hook("enters");
    if !has(std::slice::from_ref(&chosen)) {
        return;
    }
    let others = ["enters", "exits", "signals", "is_rejected", "at_no_event"].map(hook);
    let loaded = HookedObject::load(object(), &chosen, &others, &of_this_process());
    let mut loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    loaded.attach().unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<&str> = loaded
        .hooks()
        .iter()
        .map(|one| one.program.as_str())
        .collect();
    assert_eq!(names, ["enters", "exits"]);
    let left_out: Vec<&str> = loaded
        .left_out()
        .iter()
        .map(|(one, _)| one.program.as_str())
        .collect();
    assert_eq!(left_out, ["signals", "at_no_event", "is_rejected"]);
    assert!(
        loaded.left_out()[2]
            .1
            .contains("verifier rejected is_rejected")
    );
    let alone = HookedObject::load(object(), &hook("is_rejected"), &others, &of_this_process());
    let error = alone.expect_err("it is rejected").to_string();
    assert!(error.contains("verifier rejected is_rejected"), "{error}");
}

#[test]
fn lookups_and_packets_have_hooks() {
    let filters = hook("filters").at("ipv4:output").expect("a hook");
    let sends = |_: &HookedObject| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for _ in 0..CALLS {
            let _ = socket.send_to(b"x", "127.0.0.1:9");
        }
    };
    for hook in [filters, hook("looks_up")] {
        if has(std::slice::from_ref(&hook)) {
            let name = hook.program.clone();
            assert!(runs(hook, sends) >= CALLS, "{name}");
        }
    }
}

#[test]
fn refusals_name_the_program_and_the_reason() {
    if !require::host() {
        return;
    }
    let refusal = |hook: Hook| {
        let together = [hook];
        let loaded = HookedObject::load(object(), &together[0], &together, &Settings::default());
        let attached = loaded.and_then(|mut loaded| loaded.attach());
        attached.expect_err("it is refused").to_string()
    };
    for (program, says) in [
        (
            "signals",
            &["signals calls bpf_send_signal", "--allow-effects"][..],
        ),
        ("overrides", &["bpf_override_return", "--allow-effects"]),
        (
            "at_none",
            &["at_none cannot be attached at fentry no_such_function"],
        ),
        (
            "at_no_event",
            &[
                "at_no_event cannot be attached",
                "no tracepoint events/sched/no_such_event",
            ],
        ),
        (
            "at_dummy",
            &["at_dummy cannot be attached", "--at at_dummy=FUNCTION"],
        ),
    ] {
        let error = refusal(hook(program));
        for says in says {
            assert!(error.contains(says), "{program}: {error}");
        }
        assert!(error.lines().count() < 12, "{error}");
    }
}
