//! `run pool`: without privilege, without BPF; with the values that the user gives its factors.

use std::fs;

use crate::{
    journals::{assert_holds, record, trials},
    privilege::nobody,
    running::Running,
    tool::Tool,
};

/// Two pools, with one thread and with two to a CPU: a matter of seconds.
const SHORT: &str = "run pool --quick --seed 7 --cpus 0 --set pool=array,freelist --set threads=1,2 \
                     --set objects=3 --set hold=5 --set bulk=1";

fn names(record: &serde_json::Value) -> Vec<&str> {
    let cases = record["cases"].as_array().expect("cases");
    let names = cases.iter().map(|case| case["name"].as_str());
    names.map(|name| name.expect("a name")).collect()
}

#[test]
fn anybody_may_measure_pools() {
    let tool = Tool::new();
    let line = format!("{SHORT} --out x.json --format json");
    let Some(said) = nobody(&tool, "", &line) else {
        return;
    };
    assert_eq!(said.code, Some(0), "{said:?}");
    let whole = record(&said.out);
    assert_eq!(
        names(&whole),
        [
            "array/1/objects-3/hold-5",
            "array/2/objects-3/hold-5",
            "freelist/1/objects-3/hold-5",
            "freelist/2/objects-3/hold-5",
            "line/own",
            "line/near",
            "line/far",
            "none/1/hold-5",
            "none/2/hold-5",
        ]
    );
    for case in whole["cases"].as_array().expect("cases") {
        let name = case["name"].as_str().expect("a name");
        // One CPU has no other to change a line in turn with.
        if ["line/near", "line/far"].contains(&name) {
            assert_eq!(case["status"], "unsupported", "{name}");
            let reason = case["reason"].as_str().expect("a reason");
            assert!(reason.contains("--cpus"), "{reason}");
            continue;
        }
        assert_eq!(case["status"], "ok", "{name}: {}", case["problems"]);
        assert!(case["raw"]["value"].as_f64() > Some(0.0), "{name}");
        let told = |key: &str| case["secondary"][key][0][0].as_f64().expect(key);
        if name.starts_with("line/") {
            continue;
        }
        assert!(told("pairs_per_s") > 0.0 && told("misses") >= 0.0);
        assert!((0.0..=1.0).contains(&told("fairness")));
        assert!(told("latency_p50_ns") <= told("latency_p999_ns"));
    }
    assert_eq!(whole["scaling"]["series"], "pool");
    assert_eq!(whole["comparisons"].as_array().map(Vec::len), Some(2));
}

/// Killed after its first epoch: its journal ends there.
#[test]
fn a_run_that_was_killed_goes_on_with_the_same_settings() {
    let tool = Tool::new();
    let mut run = Running::start(&tool, SHORT);
    run.until(|journal| !journal.is_empty());
    fs::hard_link(tool.path("x.json.journal"), tool.path("kept")).expect("a link");
    let said = run.end();
    assert_eq!(said.code, Some(0), "{said:?}");
    let kept = fs::read_to_string(tool.path("kept")).expect("the journal");
    let epoch = kept.find("\n{\"epoch-finished\"").expect("an epoch") + 1;
    let end = epoch + kept[epoch..].find('\n').expect("a line") + 1;
    let journal = &kept[..end];
    assert!(trials(journal).len() < trials(&kept).len(), "{kept}");

    let tool = Tool::new();
    tool.write("x.json.journal", journal);
    let whole = record(&tool.answers("run --resume x.json --format json"));
    assert_holds(&whole, &trials(journal));
    assert_eq!(whole["stop"], "rounds");
    assert!(journal.contains(r#""objects":"3""#), "settings are kept");
}

/// One CPU has no other to change a line in turn with.
#[test]
fn a_run_of_which_nothing_is_supported_says_so() {
    let tool = Tool::new();
    let line = "run pool --quick --cpus 0 --out x.json --case line/near";
    let said = tool.says(line);
    assert_eq!(said.code, Some(4), "{said:?}");
    let said =
        tool.says(&format!("{line} --case line/own --out y.json").replace("--out x.json ", ""));
    assert_eq!(said.code, Some(0), "one of two is measured: {said:?}");
}

#[test]
fn settings_are_answered_before_anything_runs() {
    let tool = Tool::new();
    for (asked, words) in [
        ("--set threads=0", "from 1 to 4096"),
        ("--set threads=100000", "from 1 to 4096"),
        ("--set objects=0", "from 1 to 1048576"),
        ("--set thread=1", "did you mean threads?"),
        ("--set pool=crosbeam-array", "did you mean crossbeam-array?"),
        (
            "--set pool=array --set pool=mutex",
            "--set pool is given twice",
        ),
        ("--set threads", "e.g. threads=1,3,16"),
        ("--cpus 8000", "no CPU 8000"),
        ("--cpus none", "`none` is not a CPU number"),
        ("--on exact:6.12", "an exact guest has one CPU"),
        ("--case array/3", "no case of pool matches array/3"),
    ] {
        tool.refuses(&format!("run pool {asked}"), 2, &[words]);
    }
    let refused = "xdp-lb has no factor that can be set";
    tool.refuses(
        "run xdp-lb --set entries=5",
        2,
        &[refused, "bpfcost list xdp-lb"],
    );
    tool.refuses("run --resume x.json --set threads=1", 2, &["--set"]);
    assert_eq!(tool.names(), [""; 0]);
}

#[test]
fn it_is_listed_and_forecast_with_its_settings() {
    let tool = Tool::new();
    let list = tool.answers("list pool");
    assert!(list.contains("Targets: host, vm:KERNEL\n"), "{list}");
    let said = tool.answers("run pool --cpus 0 --dry-run --set threads=1,5 --set objects=64");
    for name in [
        "array/5/objects-64",
        "percpu/1/objects-64/bulk-4",
        "none/5/hold-100",
    ] {
        assert!(said.contains(&format!("  {name} ")), "{name}: {said}");
    }
    assert!(!said.contains("measuring needs"), "{said}");
}

/// A refusal by the machine is an error in words.
#[test]
fn limits_of_the_machine_are_told() {
    let tool = Tool::new();
    let line = "run pool --quick --cpus 0 --set pool=array-padded --set hold=0 --set bulk=1";
    let limited = |limit: &str, set: &str| {
        let script = format!("ulimit {limit} && exec $BPFCOST {line} {set} --out x.json");
        tool.shell(&script)
    };
    let memory = limited("-v 150000", "--set threads=1 --set objects=1048576");
    assert_eq!(memory.code, Some(4), "{memory:?}");
    memory.complains(&["no memory for 1048576 objects", "--set objects"]);
    // Each thread has a stack.
    let threads = limited("-v 150000", "--set threads=4096 --set objects=16");
    assert_eq!(threads.code, Some(4), "{threads:?}");
    threads.complains(&["of 4096 could not be started", "--set threads"]);
    assert_eq!(tool.names(), [""; 0], "no journal in the way");
}

/// More threads than objects: each gets its turn.
#[test]
fn many_threads_share_one_object() {
    let tool = Tool::new();
    let said = tool.answers(
        "run pool --quick --cpus 0 --set pool=freelist,percpu --set threads=40 --set objects=1 --set hold=0 \
         --set bulk=1 --case */40/* --format json --out x.json",
    );
    for case in record(&said)["cases"].as_array().expect("cases") {
        assert_eq!(case["status"], "ok", "{case}");
    }
    let kept = fs::read_to_string(tool.path("x.json")).expect("the record");
    assert_eq!(names(&record(&kept)).len(), 3);
}
