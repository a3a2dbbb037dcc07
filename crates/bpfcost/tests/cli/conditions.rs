//! The scripts that set what tests need of the machine, and that plant the contrary: each puts back what was there. Here
//! folders of the test stand in for the machine's settings, in a mount namespace of the shell's own.

use std::path::Path;

use crate::{
    require,
    tool::{Tool, said},
};

const SETUP: &str = r#"
mkdir -p kernel net debug trace/events/bpf_trace/bpf_trace_printk
printk=trace/events/bpf_trace/bpf_trace_printk/enable
echo 1 >kernel/bpf_stats_enabled
echo 2 >kernel/kptr_restrict
echo 2 >kernel/perf_event_paranoid
echo 0 >net/bpf_jit_harden
echo 1 >$printk
touch trace/events/header_page
mount --bind kernel /proc/sys/kernel
mount --bind net /proc/sys/net/core
[ ! -d /proc/sys/debug ] || mount --bind debug /proc/sys/debug
echo 0 >expedited
mount --bind expedited /sys/kernel/rcu_expedited
[ -d /sys/kernel/tracing ] || exit 99
mount --bind trace /sys/kernel/tracing
show() { cat $AT/kernel/* $AT/net/* $AT/$printk $AT/expedited | tr '\n' ' '; }
"#;

/// Output of the shell after the setup, with `$SCRIPTS` and `$AT`, its folder; its exit code too.
fn shell(script: &str) -> Option<(String, Option<i32>)> {
    if !require::host() {
        return None;
    }
    let tool = Tool::new();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let mut shell = tool.wrapped("unshare", "--mount --propagation private bash -c");
    shell
        .arg(format!("{SETUP}{script}"))
        .env("SCRIPTS", scripts)
        .env("AT", tool.path(""));
    let said = said(&shell.output().expect("unshare runs"));
    if said.code == Some(99) {
        require::skip("this kernel has no tracefs");
        return None;
    }
    println!("{said:?}");
    Some((said.out, said.code))
}

#[test]
fn a_test_gets_what_it_needs_and_the_machine_is_as_before() {
    let script = r#"
show; export AT printk; export -f show
$SCRIPTS/conditions.sh bash -c 'show; exit 7'; echo "code $?"
show
"#;
    let Some((out, code)) = shell(script) else {
        return;
    };
    assert_eq!(out, "1 2 2 0 1 0 0 0 2 0 0 1 code 7\n1 2 2 0 1 0 ");
    assert_eq!(code, Some(0));
}

#[test]
fn what_is_planted_is_put_back_and_a_test_that_changes_it_fails() {
    let script = r#"
export AT printk; export -f show
$SCRIPTS/plant.sh bash -c 'show'; echo "code $?"
$SCRIPTS/plant.sh $SCRIPTS/conditions.sh bash -c 'show'; echo "code $?"
show
$SCRIPTS/plant.sh bash -c 'echo 0 >$AT/kernel/kptr_restrict'; echo "code $?"
show
"#;
    let Some((out, code)) = shell(script) else {
        return;
    };
    let expected = "1 2 4 2 1 0 code 0\n0 0 4 0 0 1 code 0\n1 2 2 0 1 0 code 1\n1 2 2 0 1 0 ";
    assert_eq!(out, expected);
    assert_eq!(code, Some(0));
}
