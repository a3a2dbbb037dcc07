//! Costs of CPUs that fight for cache lines: verdicts on hardware and with KVM, none where CPUs are emulated.

use super::{super::*, built, events, plan, usual};
use crate::samples::compared;
use bpfcost_measure::{Event, PROPORTIONALITY, Warning};

fn record(contends: bool, emulator: Option<&str>) -> Record {
    let mut plan = plan();
    plan.contends = contends;
    let warned = Event::Warned(Warning::new(PROPORTIONALITY, "hit: 2.4 times as long"));
    let mut events = events(12, usual);
    events.insert(0, warned);
    let machine = Machine {
        emulator: emulator.map(str::to_owned),
        ..Machine::default()
    };
    built(&plan, &events, machine)
}

fn codes(record: &Record) -> Vec<&str> {
    let warnings = record.warnings.iter();
    warnings.map(|warning| warning.code.as_str()).collect()
}

const EMULATED: Option<&str> = Some("QEMU 7.2, tcg, -cpu max");
const KVM: Option<&str> = Some("QEMU 7.2, kvm, -cpu host");

#[test]
fn an_emulated_machine_gives_no_verdict_and_says_why() {
    let emulated = record(true, EMULATED);
    assert_eq!(emulated.comparisons, []);
    assert_eq!(codes(&emulated), ["no-verdict"]);
    // What was seen is all there.
    assert!(emulated.case("hit").expect("a case").raw.is_some());
    for real in [
        record(true, None),
        record(true, KVM),
        record(false, EMULATED),
    ] {
        assert_eq!(real.comparisons.len(), 1);
        assert_eq!(codes(&real), [PROPORTIONALITY]);
    }
}

#[test]
fn emulated_records_of_them_are_not_compared() {
    let compared = |contends, emulator| {
        let side = [record(contends, emulator)];
        compared(&side, &side, GateOptions::default())
    };
    let refused = compared(true, EMULATED).expect_err("no verdict");
    assert!(matches!(refused, CompareError::Emulated(..)), "{refused}");
    assert!(compared(true, KVM).is_ok());
    assert!(compared(false, EMULATED).is_ok());
}

#[test]
fn records_from_before_say_nothing_of_it() {
    let old = serde_json::to_value(record(false, None)).expect("JSON");
    assert_eq!(old.get("contends"), None);
    let read: Record = serde_json::from_value(old).expect("a record");
    assert!(!read.contends);
}
