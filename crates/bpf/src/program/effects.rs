//! Helpers with effects that a loop of a million runs must not have by accident, and those that not even a few runs may
//! have.

use std::collections::BTreeSet;

use bpfcost_uprobe::object::reached_code;
use libbpf_rs::libbpf_sys::{self as sys, bpf_insn};

use super::{code, file::ObjectFile, form, settings::Settings};

const CLONE_REDIRECT: (u32, &str) = (
    sys::BPF_FUNC_clone_redirect,
    "bpf_clone_redirect, which sends packets",
);
const SEND_SIGNAL: (u32, &str) = (
    sys::BPF_FUNC_send_signal,
    "bpf_send_signal, which signals processes",
);
const SEND_SIGNAL_THREAD: (u32, &str) = (
    sys::BPF_FUNC_send_signal_thread,
    "bpf_send_signal_thread, which signals threads",
);
const WRITE_USER: (u32, &str) = (
    sys::BPF_FUNC_probe_write_user,
    "bpf_probe_write_user, which writes to processes",
);

/// Helpers by number, and their effect.
const EFFECTS: [(u32, &str); 9] = [
    CLONE_REDIRECT,
    SEND_SIGNAL,
    SEND_SIGNAL_THREAD,
    WRITE_USER,
    (
        sys::BPF_FUNC_trace_printk,
        "bpf_trace_printk, which writes to the kernel's trace",
    ),
    (
        sys::BPF_FUNC_trace_vprintk,
        "bpf_trace_vprintk, which writes to the kernel's trace",
    ),
    (
        sys::BPF_FUNC_perf_event_output,
        "bpf_perf_event_output, which fails without a reader",
    ),
    (
        sys::BPF_FUNC_skb_output,
        "bpf_skb_output, which fails without a reader",
    ),
    (
        sys::BPF_FUNC_xdp_output,
        "bpf_xdp_output, which fails without a reader",
    ),
];

/// The same of programs at hooks: few events occur, and buffers are read.
const EFFECTS_AT_HOOKS: [(u32, &str); 5] = [
    CLONE_REDIRECT,
    SEND_SIGNAL,
    SEND_SIGNAL_THREAD,
    WRITE_USER,
    (
        sys::BPF_FUNC_override_return,
        "bpf_override_return, which answers in a function's stead",
    ),
];

/// The function of the kernel that throws an exception.
const THROW: &str = "bpf_throw";

/// Helpers that need room in a ring buffer.
const RING_WRITERS: [u32; 3] = [
    sys::BPF_FUNC_ringbuf_output,
    sys::BPF_FUNC_ringbuf_reserve,
    sys::BPF_FUNC_ringbuf_reserve_dynptr,
];

/// Helpers that a run in a loop must never call, and why.
const NEVER: [(u32, &str); 5] = [
    (
        sys::BPF_FUNC_map_push_elem,
        "it pushes to a queue, a stack or a Bloom filter, which is full after some of the runs: the others would do \
         something else",
    ),
    (
        sys::BPF_FUNC_skb_set_tstamp,
        "it sets what kind of time a packet has (bpf_skb_set_tstamp), which can't be undone",
    ),
    (
        sys::BPF_FUNC_sys_close,
        "it calls bpf_sys_close, which closes files of the process that runs it",
    ),
    (
        sys::BPF_FUNC_sys_bpf,
        "it calls bpf_sys_bpf, which makes maps and programs for the process that runs it",
    ),
    (
        sys::BPF_FUNC_btf_find_by_name_kind,
        "it calls bpf_btf_find_by_name_kind, which opens files in the process that runs it",
    ),
];

/// Returns true if a program writes lines to the kernel's trace.
pub(super) fn writes_lines(instructions: &[bpf_insn]) -> bool {
    let lines = [sys::BPF_FUNC_trace_printk, sys::BPF_FUNC_trace_vprintk];
    let mut called = instructions.iter().filter_map(code::helper);
    called.any(|helper| lines.contains(&helper))
}

/// The effects of a program's instructions, each once.
pub(super) fn effects(instructions: &[bpf_insn]) -> Vec<&'static str> {
    called(&EFFECTS, instructions)
}

/// The words of those helpers of a list that instructions call.
fn called(list: &[(u32, &'static str)], instructions: &[bpf_insn]) -> Vec<&'static str> {
    let called: Vec<u32> = instructions.iter().filter_map(code::helper).collect();
    let is_called =
        |(helper, effect): &(u32, &'static str)| called.contains(helper).then_some(*effect);
    list.iter().filter_map(is_called).collect()
}

/// The reason not to attach a program with effects beyond its maps, buffers and lines of text, unless the settings allow
/// them. `own` has its main function; those that this calls are read from the file.
pub(crate) fn effects_at_hook(
    file: &ObjectFile,
    name: &str,
    own: &[bpf_insn],
    settings: &Settings,
) -> Option<String> {
    let mut instructions = own.to_vec();
    let reached = reached_code(file.bytes(), name);
    instructions.extend(form::instructions(&reached.functions));
    let effects = called(&EFFECTS_AT_HOOKS, &instructions);
    let is_forbidden = !effects.is_empty() && !settings.allow_effects;
    is_forbidden.then(|| {
        format!(
            "{name} calls {}\n  Each event at its hook would do it. To measure it all the same: --allow-effects",
            effects.join("; ")
        )
    })
}

/// The reason not to run a program with these effects, unless the settings allow them.
pub(super) fn forbidden(name: &str, effects: &[&str], settings: &Settings) -> Option<String> {
    let is_forbidden = !effects.is_empty() && !settings.allow_effects;
    is_forbidden.then(|| {
        format!(
            "{name} calls {}\n  Each of millions of runs would do it. To measure it all the same: --allow-effects",
            effects.join("; ")
        )
    })
}

/// The reason that code can't be run in a loop, if any: known before the kernel is asked. `externs`: what it names.
pub(super) fn unspliceable(
    instructions: &[bpf_insn],
    externs: &BTreeSet<String>,
) -> Option<&'static str> {
    let calls = |number| {
        instructions
            .iter()
            .any(|one| code::helper(one) == Some(number))
    };
    if let Some((_, why)) = NEVER.into_iter().find(|(helper, _)| calls(*helper)) {
        return Some(why);
    }
    if RING_WRITERS.into_iter().any(calls) {
        return Some(
            "it writes to a ring buffer, which is full after some of the runs: the others would do something else",
        );
    }
    externs
        .contains(THROW)
        .then_some("it may throw an exception, which would end the loop too")
}

/// The reason that loaded instructions can't be run in a loop, if any: libbpf has made out what they call.
pub(super) fn unspliceable_loaded(instructions: &[bpf_insn]) -> Option<&'static str> {
    let of_module = |one: &bpf_insn| code::is_kernel_function(one) && one.off != 0;
    let calls_module = instructions.iter().any(of_module);
    calls_module.then_some("it calls functions of kernel modules")
}
