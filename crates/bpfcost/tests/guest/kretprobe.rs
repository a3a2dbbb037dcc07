//! Probes on a call that many threads are in at once: who is missed, on a kernel with a list of records and
//! on one with a ring for each CPU; and no verdict on speed where it is emulated.

use bpfcost_record::{CaseRecord, Record, Status};

use crate::{
    features,
    kept::record,
    require,
    tool::Tool,
    visit::{says, says_of_epochs},
};

/// Every way to attach, and instances that are too few, and enough.
const CASES: [&str; 2] = ["kprobe/1", "*/sleep*"];

fn measured(kernel: &str) -> Record {
    let tool = Tool::new();
    let globs: String = CASES.iter().map(|glob| format!(" --case {glob}")).collect();
    let line = format!("run kretprobe{globs} --on vm:{kernel} --quick");
    let said = says_of_epochs(&tool, &line, 2);
    let record = record(&tool);
    if record.machine.emulates_time() {
        assert!(said.out.contains("does not show speed"), "{said:?}");
        assert!(record.comparisons.is_empty());
        let codes: Vec<&str> = record
            .warnings
            .iter()
            .map(|one| one.code.as_str())
            .collect();
        assert!(codes.contains(&"no-verdict"), "{codes:?}");
    }
    record
}

/// The share of the calls that each trial missed.
fn missed(case: &CaseRecord) -> Vec<f64> {
    case.secondary
        .get("missed")
        .map_or_else(Vec::new, |missed| missed.concat())
}

/// Every case that the kernel can have valid, which is the proof that hits and misses are all calls; and misses
/// as instances allow.
#[track_caller]
fn accounts_for_all_calls(record: &Record, lacks: Option<&str>) {
    let factor = |case: &CaseRecord, name: &str| case.factors.get(name).cloned();
    let cpus = record.asked.cpus.len() as f64;
    let mut with_misses = 0;
    for case in &record.cases {
        let name = &case.name;
        if lacks.is_some_and(|lacks| factor(case, "probe").as_deref() == Some(lacks)) {
            assert_eq!(case.status, Status::Unsupported, "{name}");
            continue;
        }
        assert_eq!(case.status, Status::Ok, "{name}: {:?}", case.problems);
        let threads: f64 = factor(case, "threads")
            .expect("threads")
            .parse()
            .expect("a number");
        let instances = match factor(case, "maxactive").as_deref() {
            Some("1x") => cpus,
            Some("4x") => 4.0 * cpus,
            _ => 2.0 * cpus,
        };
        let lacking = (1.0 - instances / threads).max(0.0);
        let missed = missed(case);
        match (
            factor(case, "probe").as_deref(),
            factor(case, "call").as_deref(),
        ) {
            (Some("kretprobe"), Some("sleep")) => {
                assert!(!missed.is_empty(), "{name}");
                assert!(
                    missed.iter().all(|share| (share - lacking).abs() < 1e-9),
                    "{name}: {missed:?}"
                );
                with_misses += usize::from(lacking > 0.0);
            }
            (Some("kprobe"), _) => {
                assert!(
                    missed.iter().all(|share| *share == 0.0),
                    "{name}: {missed:?}"
                );
            }
            // That hits and misses are all calls is proved by the status. Some are missed on kernels that preempt
            // the program, but never as many as where instances do not suffice.
            (Some("fexit"), _) => {
                assert!(
                    missed.iter().all(|share| *share < 0.5),
                    "{name}: {missed:?}"
                );
            }
            (Some("kretprobe"), _) if lacking == 0.0 => {
                assert!(missed.iter().all(|share| *share == 0.0), "{name}");
            }
            _ => {}
        }
    }
    assert_eq!(
        with_misses, 2,
        "of three numbers of instances, one suffices"
    );
}

#[test]
fn linux_6_1_takes_instances_from_a_list() {
    if require::version("6.1", "bookworm") {
        // Debian's has no fprobe.
        let record = measured("6.1");
        accounts_for_all_calls(&record, Some("kretprobe.multi"));
        features::of_6_1(&record);
    }
}

#[test]
fn linux_6_12_takes_instances_from_a_ring_for_each_cpu() {
    if require::version("6.12", "trixie") {
        let record = measured("6.12");
        accounts_for_all_calls(&record, None);
        features::of_6_12(&record);
    }
}

/// There, fprobes take the stack of return addresses that each task has (from 6.14 on).
#[test]
fn the_newest_linux_accounts_for_all_calls_too() {
    if require::version("sid", "sid") {
        let record = measured("sid");
        accounts_for_all_calls(&record, None);
        features::of_the_newest(&record);
    }
}

/// The function that the next run measures.
const FLOCK: &str = if cfg!(target_arch = "aarch64") {
    "__arm64_sys_flock"
} else {
    "__x64_sys_flock"
};

/// A killed run's event lies there; the next run removes it, which is seen here by what is done then.
#[test]
fn what_a_killed_run_left_in_tracefs_is_removed() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let hooks = r#"{"before": "mkdir -p /run/tracing && mount -t tracefs none /run/tracing
        echo 'r4:bpfcost/bpfcost_99999_0 FUNCTION' >>/run/tracing/kprobe_events
        grep -q bpfcost_99999_0 /run/tracing/kprobe_events && (
            while grep -q bpfcost_99999_0 /run/tracing/kprobe_events; do sleep 0.1; done
            killall -KILL bpfcost
        ) &"}"#
        .replace('\n', "\\n")
        .replace("FUNCTION", FLOCK);
    let line = format!("run kretprobe --case kretprobe/1 --time 200s --on vm:{kernel}");
    let said = says(&Tool::new(), &line, &hooks);
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&["killed the measuring program"]);
}
