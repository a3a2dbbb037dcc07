//! A/A on this machine: structure alone is asserted, for a shared machine may be too busy to pass.

use std::{fs, sync::atomic::AtomicBool};

use bpfcost::builtin::{aa::AaTest, all, safeguards};
use bpfcost_measure::{self, Measurements, Monotonic, Plan, Stop};
use bpfcost_model::Experiment;
use bpfcost_record::{Record, Status};
use bpfcost_target::Host;

use crate::{
    require,
    tool::{STATE, Tool},
};

const CASES: [&str; 2] = ["pass-non-ip", "drop-v4-frag"];

#[test]
fn cases_entered_twice_are_measured_twice() {
    if !require::host() {
        return;
    }
    let inner = all()
        .into_iter()
        .find(|one| one.description().name == "xdp-lb");
    let doubled = AaTest::new(inner.expect("it is registered"), &CASES);
    for seed in [1, 2] {
        let plan = Plan {
            target: "host".into(),
            seed,
            cases: doubled.cases(),
            pairs: doubled.pairs(),
            cpus: vec![bpfcost_bpf::allowed_cpus()[0]],
            quick: true,
            rounds: Some(2),
            goal_ns: 1e6,
            ..Plan::new(doubled.description())
        };
        let clock = Monotonic::start();
        let interrupt = AtomicBool::new(false);
        let empty = Measurements::new(&plan);
        let measured = bpfcost_measure::measure(
            &doubled,
            &safeguards::sentinel,
            &plan,
            &clock,
            &interrupt,
            empty,
            &mut |_| Ok(()),
        );
        let measured = measured.expect("it is measured");
        assert_eq!(measured.stop, Some(Stop::Rounds));
        let record = Record::build(&plan, &measured, "", Host::default().machine());
        assert_eq!(record.cases.len(), 4);
        for case in &record.cases {
            assert_eq!(case.status, Status::Ok, "{:?}", case.problems);
            let raw = case.raw.as_ref().expect("it has a value");
            let [low, high] = raw.ci95.expect("it has an interval");
            assert!(low <= raw.value && raw.value <= high, "{raw:?}");
            println!("{}: {:.2} [{:.2}, {:.2}]", case.name, raw.value, low, high);
        }
        assert_eq!(record.comparisons.len(), 2);
        for one in &record.comparisons {
            assert_eq!(one.case, format!("{}~again", one.baseline));
            println!(
                "{} against itself: {:+.2} %",
                one.baseline,
                100.0 * one.relative
            );
        }
    }
}

#[test]
fn an_interrupted_self_test_keeps_nothing() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let said = tool.shell("timeout --preserve-status --signal=INT 2 $BPFCOST self-test");
    assert_eq!(said.code, Some(130), "{said:?}");
    assert_eq!(tool.names(), [""; 0]);
}

#[test]
fn what_self_test_measures_is_kept_for_compare() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let said = tool.says("self-test --runs 2 --seed 7");
    // 1 where a busy machine breaks the ladder or a batch of so few.
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    for word in [
        "ladder:  1000 added",
        "operations  ok",
        "of 2 runs",
        "of 8 95",
        "of 1 pairs",
        "sessions",
        "self-test ",
    ] {
        assert!(said.out.contains(word), "no `{word}` in {said:?}");
    }
    let kept = tool.path(&format!("{STATE}/bpfcost/sessions.json"));
    let kept = fs::read_to_string(kept).expect("the sessions");
    let kept: serde_json::Value = serde_json::from_str(&kept).expect("JSON");
    let machines = kept["machines"].as_object().expect("by machine");
    let sessions = machines.values().next().expect("this machine");
    for (number, session) in sessions.as_array().expect("a list").iter().enumerate() {
        assert!(number < 2);
        // Each case and its twin.
        let levels = session["levels"].as_object().expect("levels");
        // Where most are known undisturbed, those that are not are left out.
        assert!(levels.len() == 8 || session["undisturbed"] == true);
        assert!(!levels.is_empty() && levels.values().all(serde_json::Value::is_number));
        assert!(
            session["series"]
                .as_str()
                .expect("a series")
                .starts_with("self-test on host ")
        );
    }
}
