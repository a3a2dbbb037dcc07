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

/// Compiles it to `x.bpf.o` in the tool's folder.
pub(crate) fn compiled(tool: &Tool) -> PathBuf {
    tool.write("x.bpf.c", SOURCE);
    let object = tool.path("x.bpf.o");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let done = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .arg(tool.path("x.bpf.c"))
        .arg("-o")
        .arg(&object)
        .status();
    assert!(done.expect("clang runs").success());
    object
}
