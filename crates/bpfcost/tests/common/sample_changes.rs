//! A synthetic comparison with every outcome.

use bpfcost_measure::Warning;
use bpfcost_model::Unit;
use bpfcost_record::{Change, ChangeBasis, ChangeOutcome, Changes, Gate, OneSided, SCHEMA, Side};

/// One case of every outcome, and one on each side alone.
pub fn changes() -> Changes {
    let one_sided = |case: &str, reason: Option<&str>| OneSided {
        experiment: "xdp-lb".to_owned(),
        target: "host".to_owned(),
        case: case.to_owned(),
        reason: reason.map(str::to_owned),
        unjudged: false,
    };
    Changes {
        schema: SCHEMA,
        bpfcost: "0.1.0".to_owned(),
        threshold: 0.02,
        must_see: None,
        gate: Gate::Regressed,
        cases: vec![
            change(
                "tcp-v4-lru-hit",
                "single flow",
                ChangeOutcome::Same,
                83.14,
                Some(83.5),
                0.011,
            ),
            change(
                "tcp-v4-ch",
                "single flow",
                ChangeOutcome::Regressed,
                92.26,
                Some(99.8),
                0.013,
            ),
            change(
                "tcp-v6-ch",
                "single flow",
                ChangeOutcome::Improved,
                106.36,
                Some(98.2),
                0.014,
            ),
            change(
                "tcp-v4-lru-miss",
                "LRU stress",
                ChangeOutcome::Unresolved,
                855.7,
                Some(881.2),
                0.06,
            ),
            change(
                "udp-v4-lru-miss",
                "LRU stress",
                ChangeOutcome::Invalid,
                854.8,
                None,
                0.0,
            ),
        ],
        only_old: vec![one_sided("drop-v6-frag", None)],
        only_new: vec![one_sided(
            "lru-insert-empty",
            Some("<needs> \"Linux\" 6.9 & \u{1b}[1mmore"),
        )],
        warnings: vec![Warning {
            code: "session-spread".to_owned(),
            text: "the spread between sessions here is unknown, 3 % is assumed: bpfcost self-test"
                .to_owned(),
        }],
    }
}

fn change(
    case: &str,
    group: &str,
    outcome: ChangeOutcome,
    old: f64,
    new: Option<f64>,
    reach: f64,
) -> Change {
    let side = |value: f64| Side {
        sessions: 1,
        value,
        ci95: Some([value * 0.998, value * 1.002]),
        added: None,
        added_ci95: None,
    };
    let relative = new.map(|new| new / old - 1.0);
    let interval = |reach: f64| relative.map(|relative| [relative - reach, relative + reach]);
    let invalid = outcome == ChangeOutcome::Invalid;
    Change {
        experiment: "xdp-lb".to_owned(),
        target: "host".to_owned(),
        unit: Unit::NanosPerOp,
        case: case.to_owned(),
        group: group.to_owned(),
        baseline: None,
        undisturbed: false,
        outcome,
        old: Some(side(old)),
        new: new.map(side),
        relative,
        relative_ci95: interval(reach),
        relative_ci90: interval(reach * 0.84),
        p: (!invalid).then_some(0.01),
        basis: (!invalid).then_some(ChangeBasis::Widened),
        detectable: (outcome == ChangeOutcome::Unresolved).then_some(8.1),
        level_only: false,
        gate_sees: (!invalid).then_some(9.3),
        note: invalid.then(|| "lru misses: expected 0, got 3".to_owned()),
    }
}
