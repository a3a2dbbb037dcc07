//! Kernel stacks without the helper: on three kernels each stack is the helper's, and taking it costs a fraction of
//! the helper's instructions.

use bpfcost_record::{Record, Status};

use crate::{kept, require, tool::Tool, visit::says};

/// Cases that each kernel counts: of the shortest stack and of the whole one.
pub(crate) const CASES: [&str; 5] = [
    "none/raw_tp",
    "count/8",
    "count/32",
    "get_stack/8",
    "get_stack/32",
];

/// Cases that some count too: other ways to attach.
pub(crate) const AT_FUNCTIONS: [&str; 6] = [
    "none/kprobe",
    "count@kprobe/32",
    "get_stack@kprobe/32",
    "none/fentry",
    "count@fentry/32",
    "get_stack@fentry/32",
];

/// Addresses in a ring buffer.
const IN_RING: [&str; 2] = ["frames+ring/8", "frames+ring/32"];

pub(crate) fn record(line: &str, cases: &[&str]) -> Record {
    let tool = Tool::new();
    let globs: String = cases.iter().map(|glob| format!(" --case {glob}")).collect();
    let said = says(&tool, &format!("{line}{globs} --quick"), "{}");
    assert_eq!(said.code, Some(0), "{said:?}");
    kept::record(&tool)
}

fn net(record: &Record, name: &str) -> f64 {
    let case = record.case(name).expect("a case");
    assert_eq!(case.status, Status::Ok, "{name}: {:?}", case.problems);
    let net = case.net.as_ref().and_then(|net| net.value);
    net.expect("a net count")
}

/// Share of one case in another's instructions. Every case is proved: its stack is the one that the helper takes of
/// the same event.
pub(crate) fn share(record: &Record, by: &str, of: &str) -> f64 {
    net(record, by) / net(record, of)
}

#[track_caller]
pub(crate) fn costs_less(record: &Record, most: f64) {
    for depth in ["8", "32"] {
        let share = share(
            record,
            &format!("count/{depth}"),
            &format!("get_stack/{depth}"),
        );
        assert!(share <= most, "depth {depth}: {share}");
    }
}

#[test]
fn a_stack_on_linux_6_12_costs_a_tenth_of_the_helper() {
    if !require::version("6.12", "trixie") {
        return;
    }
    let record = record(
        "run stack --on exact:6.12",
        &[&CASES[..], &AT_FUNCTIONS, &IN_RING].concat(),
    );
    costs_less(&record, 0.10);
    for depth in ["8", "32"] {
        let share = share(
            &record,
            &format!("frames+ring/{depth}"),
            &format!("get_stack/{depth}"),
        );
        assert!(share <= 0.16, "depth {depth}: {share}");
    }
    for attach in ["kprobe", "fentry"] {
        let (count, helper) = (
            format!("count@{attach}/32"),
            format!("get_stack@{attach}/32"),
        );
        let share = share(&record, &count, &helper);
        assert!(share <= 0.13, "{attach}: {share}");
    }
}

/// Loads there are calls of a helper, for there is no bpf_rdonly_cast.
#[test]
fn a_stack_on_linux_6_1_costs_less_than_a_third() {
    if require::version("6.1", "bookworm") {
        costs_less(&record("run stack --on exact:6.1", &CASES), 0.3);
    }
}

/// The ORC tables there have other numbers of registers.
#[test]
fn a_stack_on_the_newest_linux_costs_a_tenth_of_the_helper() {
    if require::version("sid", "sid") {
        costs_less(&record("run stack --on exact:sid", &CASES), 0.10);
    }
}
