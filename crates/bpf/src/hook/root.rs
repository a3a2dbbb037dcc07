//! Kernel functions by which hooks reach their programs. Names are those of Linux 6.1 to 7.2.

/// The beginning of a hook's dispatch, as a trace of the kernel's instructions shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// A call or jump from the first 16 bytes of the function.
    Entry,
    /// A return trampoline: the function returned to it.
    Return,
    /// Either of them: the program runs at both.
    EntryAndReturn,
    /// A whole visit to the kernel from user mode.
    Visit,
    /// The caller of the program, from the call of that on: the code that the kernel makes for a member of a struct.
    Caller,
    /// The innermost frame of a function whose name begins so, and those directly around it that do too.
    Functions(&'static [&'static str]),
}

impl Root {
    /// With one program, a static call leads from the tracepoint directly to the third of these. Perf has functions of its
    /// own for system calls.
    pub(super) const TRACEPOINT: Root = Root::Functions(&[
        "__traceiter_",
        "__SCT__tp_func_",
        "__bpf_trace_",
        "perf_trace_",
        "perf_syscall_enter",
        "perf_syscall_exit",
    ]);

    /// Software events come through `___perf_sw_event`, clocks through a timer (`perf_swevent_hrtimer`). The handler is
    /// inlined since 6.11.
    pub(super) const PERF_EVENT: Root = Root::Functions(&[
        "bpf_overflow_handler",
        "__perf_event_overflow",
        "perf_event_overflow",
        "perf_swevent_",
        "do_perf_sw_event",
        "__perf_sw_event",
        "___perf_sw_event",
    ]);

    /// For each element; what walks the elements (`bpf_seq_read`, `task_seq_show`, …) is around it.
    pub(super) const ITER: Root = Root::Functions(&["bpf_iter_run_prog"]);

    pub(super) const CGROUP: Root =
        Root::Functions(&["__cgroup_bpf_run_", "__cgroup_bpf_check_dev_permission"]);

    /// Functions since Linux 6.6; where they are not, the hook is refused.
    pub(super) const SK_LOOKUP: Root =
        Root::Functions(&["inet_lookup_run_sk_lookup", "inet6_lookup_run_sk_lookup"]);

    /// Behind a driver that does not run such programs itself, as that of the loopback device. What makes room for them in
    /// the packet is around it.
    pub(super) const XDP: Root = Root::Functions(&["bpf_prog_run_generic_xdp"]);

    pub(super) const NETFILTER: Root = Root::Functions(&["nf_hook_run_bpf"]);

    /// Returns true if a function of that name is part of the dispatch.
    pub fn has_function(self, name: &str) -> bool {
        let Root::Functions(beginnings) = self else {
            return false;
        };
        beginnings.iter().any(|begin| name.starts_with(begin))
    }
}

#[cfg(test)]
mod tests {
    use crate::hook::HookKind;

    #[test]
    fn functions_are_known_by_their_beginnings() {
        for (kind, name) in [
            (HookKind::Tracepoint, "perf_trace_sched_switch"),
            (HookKind::TpBtf, "__bpf_trace_sched_switch"),
            (HookKind::PerfEvent, "perf_swevent_hrtimer"),
            (HookKind::Cgroup, "__cgroup_bpf_run_filter_sock_addr"),
            (HookKind::SkLookup, "inet6_lookup_run_sk_lookup"),
        ] {
            assert!(kind.root().has_function(name), "{name}");
        }
        assert!(!HookKind::Iter.root().has_function("bpf_seq_read"));
        assert!(!HookKind::Kprobe.root().has_function("tcp_connect"));
    }
}
