//! The load balancer on this host: every scenario valid, every wrong datapath caught.

#[path = "../../bpf/tests/require/mod.rs"]
mod require;

use std::time::Duration;

use bpfcost::builtin::xdp_lb::XdpLb;
use bpfcost_bpf::{lb::Datapath, timing::Loop};
use bpfcost_model::{Batch, Case, Experiment, Fault, Problem, Setup, Sizing};
use bpfcost_process::wait_until;

const BATCH: Batch = Batch(5000);
/// Operations of the first batch of a trial, which warms up.
const WARM_UP_OPS: u64 = 625;

fn setup(experiment: &XdpLb, names: &[&str], cpus: &[u32]) -> Setup {
    let cases = experiment.cases();
    let wanted = |case: &Case| names.is_empty() || names.contains(&case.name.as_str());
    Setup {
        cases: cases.into_iter().filter(wanted).collect(),
        cpus: cpus.into(),
        seed: 7,
        epoch: 0,
        exact: false,
    }
}

fn batch_of(case: &Case) -> Batch {
    match case.sizing {
        Sizing::Fixed(ops) => Batch(ops),
        Sizing::Calibrated { .. } | Sizing::Window(_) => BATCH,
    }
}

fn invalid<T: std::fmt::Debug>(result: Result<T, Fault>) -> Problem {
    match result {
        Err(Fault::Invalid(problem)) => problem,
        other => panic!("a wrong datapath passed: {other:?}"),
    }
}

/// Every case of the experiment, in a few trials.
fn all_cases(experiment: &XdpLb, cut: bool) {
    if !require::host() {
        return;
    }
    let setup = setup(experiment, &[], &[0]);
    assert_eq!(setup.cases.len(), 24 + 1 + 4);
    let mut epoch = experiment.load(&setup).expect("load");
    let kernel = epoch.kernel_bytes().expect("maps tell their memory");
    assert!(kernel < 400 << 20, "{kernel} bytes of kernel memory");
    for case in &setup.cases {
        let valid = |fault| panic!("{}: {fault:?}", case.name);
        epoch.prepare(case).unwrap_or_else(valid);
        for _ in 0..3 {
            let batch = batch_of(case);
            let trial = epoch
                .trial(case, batch)
                .unwrap_or_else(|f| panic!("{}: {f:?}", case.name));
            assert_eq!(trial.ops, batch.0, "{}", case.name);
            assert!(
                trial.value > 0.0 && trial.elapsed_ns > 0.0,
                "{}: {trial:?}",
                case.name
            );
            assert_eq!(trial.slices.is_empty(), !cut, "{}", case.name);
            let twice = trial.secondary.contains_key("reset_twice");
            let cut_twice = trial.secondary_slices.get("reset_twice");
            let cut_twice = cut_twice.is_some_and(|slices| !slices.is_empty());
            assert_eq!(cut_twice, cut && twice, "{}", case.name);
        }
    }
    epoch.unload().expect("unload");
}

#[test]
fn all_cases_prove_themselves() {
    let cut = Loop::probe().expect("probe") == Loop::CanLoop;
    all_cases(&XdpLb::default(), cut);
}

#[test]
fn all_cases_prove_themselves_in_the_loop_of_older_kernels() {
    all_cases(&XdpLb::with_loop(Loop::BpfLoop), false);
}

/// Runs the replay and then a timed trial of a wrong datapath: both must find it.
fn faults_found(datapath: Datapath, case: &str) -> Option<[Problem; 2]> {
    if !require::host() {
        return None;
    }
    let experiment = XdpLb::with_fault(datapath);
    let setup = setup(&experiment, &[case], &[0]);
    let [case] = setup.cases.as_slice() else {
        panic!("no case {case}")
    };
    let mut epoch = experiment.load(&setup).expect("load");
    Some([
        invalid(epoch.prepare(case)),
        invalid(epoch.trial(case, BATCH)),
    ])
}

#[test]
fn a_wrong_byte_of_the_outer_header_is_caught() {
    let Some(found) = faults_found(Datapath::OuterByte, "tcp-v4-lru-diverse") else {
        return;
    };
    for problem in found {
        assert!(problem.check.starts_with("packet of "), "{problem:?}");
        assert_eq!(problem.expected, "40 at byte 22 (TTL)", "{problem:?}");
        assert_eq!(problem.got, "3f at byte 22 (TTL)", "{problem:?}");
        assert!(problem.detail.contains("^^"), "{}", problem.detail);
        assert!(
            problem.detail.contains("TTL, header checksum"),
            "{}",
            problem.detail
        );
    }
}

#[test]
fn a_forgotten_counter_is_caught() {
    let Some(found) = faults_found(Datapath::NoCounter, "tcp-v4-lru-diverse") else {
        return;
    };
    for (problem, ops) in found.iter().zip([4096, WARM_UP_OPS]) {
        assert_eq!(problem.check, "VIP packets");
        assert_eq!(problem.expected, ops.to_string());
        assert_eq!(problem.got, format!("0 in {ops} operations"));
    }
}

#[test]
fn an_expired_udp_entry_is_caught() {
    let Some(found) = faults_found(Datapath::UdpExpired, "udp-v4-lru-diverse") else {
        return;
    };
    for (problem, ops) in found.iter().zip([4096, WARM_UP_OPS]) {
        assert_eq!(problem.check, "lru misses");
        assert_eq!(problem.expected, "0");
        assert_eq!(problem.got, format!("{ops} in {ops} operations"));
    }
}

#[test]
fn a_wrong_ring_slot_is_caught() {
    let Some(found) = faults_found(Datapath::RingSlot, "tcp-v4-ch-diverse") else {
        return;
    };
    for problem in found {
        assert!(
            problem.check.starts_with("packets of server "),
            "{problem:?}"
        );
        assert!(
            problem.detail.contains("more counters"),
            "{}",
            problem.detail
        );
    }
}

#[test]
fn a_forgotten_flood_check_is_caught() {
    let Some(found) = faults_found(Datapath::NoFloodCheck, "tcp-v4-ch-diverse") else {
        return;
    };
    for (problem, ops) in found.iter().zip([4096, WARM_UP_OPS]) {
        assert_eq!(problem.check, "new connections of this second");
        assert_eq!(problem.expected, ops.to_string());
        assert_eq!(problem.got, "7");
    }
}

#[test]
fn several_cpus_prove_themselves_and_tell_their_sum() {
    if !require::host() {
        return;
    }
    let cpus: Vec<u32> = (0..2).collect();
    if std::thread::available_parallelism().is_ok_and(|n| n.get() < 2) {
        return require::skip("there is one CPU only");
    }
    let experiment = XdpLb::default();
    let names = [
        "tcp-v4-lru-hit",
        "udp-v4-lru-diverse",
        "tcp-v4-lru-miss",
        "floor/strip-v4",
    ];
    let setup = setup(&experiment, &names, &cpus);
    let mut epoch = experiment.load(&setup).expect("load");
    for case in &setup.cases {
        epoch
            .prepare(case)
            .unwrap_or_else(|fault| panic!("{}: {fault:?}", case.name));
        let trial = epoch
            .trial(case, BATCH)
            .unwrap_or_else(|f| panic!("{}: {f:?}", case.name));
        assert_eq!(trial.ops, BATCH.0);
        let own = [
            trial.secondary["cpu0_ns_per_op"],
            trial.secondary["cpu1_ns_per_op"],
        ];
        assert!(
            (trial.value - (own[0] + own[1]) / 2.0).abs() < 1e-9,
            "{trial:?}"
        );
        // Both together can do no more than each alone, added up.
        let most: f64 = own.iter().map(|ns| 1e9 / ns).sum();
        let total = trial.secondary["ops_per_s"];
        assert!(total > 0.0 && total <= most * 1.001, "{total} of {most}");
    }
    epoch.unload().expect("unload");
}

#[test]
fn nothing_is_left_in_the_kernel() {
    if !require::host() {
        return;
    }
    let own = || -> Vec<_> {
        let names = ["lb_none", "lb_strip", "lb_replay", "floor_none"];
        let programs = bpfcost_bpf::loaded_programs();
        programs
            .into_iter()
            .filter(|one| names.contains(&one.name.as_str()))
            .collect()
    };
    let experiment = XdpLb::default();
    let setup = setup(&experiment, &["pass-non-ip"], &[0]);
    let epoch = experiment.load(&setup).expect("load");
    let while_loaded: Vec<u32> = own().iter().map(|one| one.id).collect();
    assert!(!while_loaded.is_empty(), "a loaded epoch has programs");
    epoch.unload().expect("unload");
    // Tests run at once: some of these may be others', which end soon too.
    let (limit, step) = (Duration::from_secs(120), Duration::from_millis(50));
    let left = || own().into_iter().map(|one| one.id).collect::<Vec<u32>>();
    let freed = wait_until(limit, step, || {
        let left = left();
        !while_loaded.iter().any(|id| left.contains(id))
    });
    assert!(freed, "{while_loaded:?} left: {:?}", left());
}
