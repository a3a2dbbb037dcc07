//! A program that can't be run in a loop is refused before anything is loaded, in a dry run too.

use super::compile;
use crate::tool::Tool;

const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct { int (*type)[27]; int (*max_entries)[4096]; } ring SEC(".maps");
struct { int (*type)[22]; int (*max_entries)[8]; int (*value_size)[4]; } queue SEC(".maps");
static long (*output)(void *map, void *data, long bytes, long flags) = (void *)130;
static long (*push)(void *map, const void *value, long flags) = (void *)87;
static long (*print)(const char *text, unsigned int size, ...) = (void *)6;
static __attribute__((noinline)) int report(int value) { return output(&ring, &value, 4, 0); }
SEC("xdp") int reports(void *context) { report(1); return 2; }
SEC("xdp") int pushes(void *context) { int value = 1; push(&queue, &value, 0); return 2; }
SEC("xdp") int prints(void *context) { char text[] = "x"; print(text, 2); return 2; }
SEC("xdp/devmap") int redirected(void *context) { return 2; }
SEC("iter/task") int iterates(void *context) { return 0; }
SEC("xdp") int passes(void *context) { return 2; }
"#;

#[test]
fn what_cannot_be_looped_is_refused_in_a_dry_run() {
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    for (program, says) in [
        ("reports", "ring buffer"),
        ("pushes", "pushes to a queue"),
        ("prints", "--allow-effects"),
        ("redirected", "redirected through a map (xdp/devmap)"),
        ("iterates", "bpftool iter pin"),
    ] {
        let said = tool.says(&format!("program x.bpf.o --dry-run --program {program}"));
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(says), "{said:?}");
    }
    // The others of the object are measured.
    let said = tool.says("program x.bpf.o --dry-run");
    assert_eq!(said.code, Some(0), "{said:?}");
    for says in ["not measured", "ring buffer", "--allow-effects"] {
        assert!(said.err.contains(says), "{said:?}");
    }
    assert!(said.out.contains("passes/udp"), "{said:?}");
    let allowed = tool.says("program x.bpf.o --dry-run --program prints --allow-effects");
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
}

const HOOKED: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
SEC("kprobe/vfs_open") int opens(void *context) { return 0; }
SEC("tracepoint/sched/sched_switch") int switches(void *context) { return 0; }
SEC("kprobe/dummy_open") int named_by_loader(void *context) { return 0; }
"#;

/// Programs at hooks need a guest that counts; mistakes are told before one boots.
#[test]
fn programs_at_hooks_are_for_exact_targets() {
    let tool = Tool::new();
    compile(&tool, "x", HOOKED);
    for (line, says) in [
        ("", "at their hooks: --on exact:6.12"),
        ("--program opens", "overhead x.bpf.o:opens -- COMMAND"),
        (
            "--program opens --on vm:6.12",
            "--program opens --on exact:6.12",
        ),
        ("--on exact:6.12 --at opens", "write PROGRAM=HOOK"),
        (
            "--on exact:6.12 --stimulus opne",
            "no stimulus of the menu (did you mean open?)",
        ),
        (
            "--on exact:6.12 --stimulus no-such-program",
            "no-such-program is not installed here",
        ),
        (
            "--on exact:6.12 --stimulus open --stimulus open",
            "two of them are called open",
        ),
        (
            "--on exact:6.12 --svg none/x.svg",
            "there is no folder none",
        ),
        (
            "--on exact:6.12 --at closes=vfs_open",
            "opens, switches, named_by_loader",
        ),
        (
            "--on exact:6.12 --at switches=sched_switch",
            "A tracepoint is at CATEGORY:NAME",
        ),
        ("--on exact:6.12 --input builtin:udp", "--input is for"),
    ] {
        let said = tool.says(&format!("program x.bpf.o --dry-run {line}"));
        assert_eq!(said.code, Some(2), "{line}: {said:?}");
        assert!(said.err.contains(says), "{line}: {said:?}");
    }
    compile(&tool, "x", SOURCE);
    let said = tool.says("program x.bpf.o --dry-run --program passes --stimulus open");
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--stimulus is for programs"), "{said:?}");
    let said = tool.says("program x.bpf.o --dry-run --program passes --svg x.svg");
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--svg is for programs"), "{said:?}");
}
