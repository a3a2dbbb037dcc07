//! A BPF object as a user brings one: compiled by clang, without this program's headers.

use std::{path::PathBuf, process::Command};

use crate::tool::Tool;

const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
SEC("tracepoint/raw_syscalls/sys_enter") int enter(void *context) { return 0; }
SEC("raw_tp/sys_exit") int leave(void *context) { return 0; }
/* When the kernel runs out of memory, which no test of ours makes it do. */
SEC("tracepoint/oom/mark_victim") int never(void *context) { return 0; }
SEC("xdp") int packets(void *context) { return 2; }
SEC("tracepoint/no_such/event") int nowhere(void *context) { return 0; }
"#;

/// Sends each system call to a ring buffer, which it would pin by its name, and to a perf buffer.
const TALKATIVE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct { int (*type)[27]; int (*max_entries)[65536]; int (*pinning)[1]; } bpfcost_ring SEC(".maps");
struct { int (*type)[4]; int (*key_size)[4]; int (*value_size)[4]; } perf SEC(".maps");
static long (*to_ring)(void *, void *, unsigned long, unsigned long) = (void *)130;
static long (*to_perf)(void *, void *, unsigned long, void *, unsigned long) = (void *)25;
SEC("tracepoint/raw_syscalls/sys_enter") int tell(void *context)
{
	long event = 7;
	to_ring(&bpfcost_ring, &event, sizeof(event), 0);
	to_perf(context, &perf, 0xffffffff, &event, sizeof(event));
	return 0;
}
"#;

/// Compiles an object without buffers to `x.bpf.o` in the tool's folder.
pub(crate) fn compiled(tool: &Tool) -> PathBuf {
    compile(tool, "x", SOURCE)
}

/// The same of one with buffers, to `talkative.bpf.o`.
pub(crate) fn talkative(tool: &Tool) -> PathBuf {
    compile(tool, "talkative", TALKATIVE)
}

/// Counts calls of a function of the C library, and tells a ring buffer of each return.
const CALLS: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct { int (*type)[27]; int (*max_entries)[65536]; } ring SEC(".maps");
static long (*to_ring)(void *, void *, unsigned long, unsigned long) = (void *)130;
unsigned long calls;
SEC("uprobe/libc.so.6:write") int enter(void *context)
{
	__sync_fetch_and_add(&calls, 1);
	return 0;
}
SEC("uretprobe/libc.so.6:write") int leave(void *context)
{
	long event = 7;
	to_ring(&ring, &event, sizeof(event), 0);
	return 0;
}
"#;

/// Programs that can't run in a process.
const MISPLACED: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
SEC("uprobe/libnothing.so:write") int nowhere(void *context) { return 0; }
SEC("uprobe/libc.so.6:writte") int misspelt(void *context) { return 0; }
SEC("tracepoint/raw_syscalls/sys_enter") int in_kernel(void *context) { return 0; }
"#;

/// The same of objects with programs at functions, to `calls.bpf.o` and `misplaced.bpf.o`.
pub(crate) fn calls(tool: &Tool) {
    compile(tool, "calls", CALLS);
    compile(tool, "misplaced", MISPLACED);
}

/// Runs where processes end, in the C library of all.
const ENDS: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
SEC("uprobe//lib/x86_64-linux-gnu/libc.so.6:exit") int end(void *context) { return 0; }
"#;

/// The same of an object that counts processes as they end, to `ends.bpf.o`.
pub(crate) fn ends(tool: &Tool) {
    compile(tool, "ends", ENDS);
}

fn compile(tool: &Tool, name: &str, source: &str) -> PathBuf {
    tool.write(&format!("{name}.bpf.c"), source);
    let object = tool.path(&format!("{name}.bpf.o"));
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let done = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .arg(tool.path(&format!("{name}.bpf.c")))
        .arg("-o")
        .arg(&object)
        .status();
    assert!(done.expect("clang runs").success());
    object
}
