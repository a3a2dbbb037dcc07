//! A person's own programs in guests: the object travels with the plan, and two boots count the same.

use std::process::Command;

use crate::{
    kept::valid_record,
    require,
    tool::Tool,
    visit::{assert_nothing_left, says},
};

const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
unsigned long runs;
static long (*adjust_head)(void *context, int bytes) = (void *)44;
static long (*adjust_room)(void *skb, int bytes, unsigned int mode, unsigned long flags) = (void *)50;
SEC("xdp") int counts(void *context) { runs++; return 2; }
SEC("xdp") int pushes(void *context) { return adjust_head(context, -20) ? 0 : 3; }
SEC("tc") int encapsulates(void *skb) { return adjust_room(skb, 20, 1, 0) ? 2 : 0; }
"#;

/// The counts of a run in a guest of its own, by case.
fn counts(kernel: &str) -> Vec<(String, f64)> {
    let tool = Tool::new();
    tool.write("x.c", SOURCE);
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let done = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .args([tool.path("x.c"), "-o".into(), tool.path("x.bpf.o")])
        .status();
    assert!(done.expect("clang runs").success());
    let said = says(
        &tool,
        &format!("program x.bpf.o --on exact:{kernel} --quick"),
        "{}",
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("Verification and memory"), "{}", said.out);
    assert_nothing_left(&tool);
    let record = valid_record(&tool);
    let count = |case: &bpfcost::record::CaseRecord| {
        let raw = case.raw.as_ref().expect("a count");
        (case.name.clone(), raw.value)
    };
    record.cases.iter().map(count).collect()
}

#[test]
fn a_program_counts_the_same_in_two_boots() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let first = counts(kernel);
    assert_eq!(first.len(), 3 + 3 + 2);
    assert_eq!(counts(kernel), first);
}
