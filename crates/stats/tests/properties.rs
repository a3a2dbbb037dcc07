//! Properties that hold on any data: invariances, order, agreement of interval and p-value, and no panic.

use bpfcost_stats::session_spread::{Level, SessionSpread, SessionSpreads};
use bpfcost_stats::sessions::{Session, Sides, judge_sessions, shift, shift_p};
use bpfcost_stats::spread::{relative_sd, sentinel_drift};
use bpfcost_stats::{
    Differences, Estimate, Policy, Sample, Sense, Spread, Verdict, hodges_lehmann, holm, judge,
    judge_exact, looks, modes, power, sample, signed_rank_interval, signed_rank_p,
};
use proptest::prelude::*;

const COST: Policy = Policy {
    margin: 0.01,
    budget: Some(0.05),
    sense: Sense::Cost,
};

/// Whole numbers, so that shifting and scaling by powers of two is exact.
fn whole() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((-2000..2000i32).prop_map(f64::from), 6..40)
}

/// Costs of one case over epochs.
fn costs() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(20.0..30.0f64, 30)
}

/// Any bit pattern at all.
fn anything() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop::num::f64::ANY, 0..30)
}

fn map(values: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    values.iter().copied().map(f).collect()
}

proptest! {
    #[test]
    fn estimates_move_with_the_data(values in whole(), by in -500..500i32) {
        let by = f64::from(by);
        let estimate = Estimate::for_difference(&values).unwrap();
        prop_assert_eq!(Estimate::for_difference(&map(&values, |v| v + by)).unwrap(), estimate.map(|v| v + by));
        prop_assert_eq!(Estimate::for_difference(&map(&values, |v| v * 8.0)).unwrap(), estimate.map(|v| v * 8.0));
        prop_assert_eq!(hodges_lehmann(&values), Some(estimate.value));
    }

    #[test]
    fn a_change_of_sign_mirrors(values in whole()) {
        let estimate = Estimate::for_difference(&values).unwrap();
        let mirrored = Estimate::for_difference(&map(&values, |v| -v)).unwrap();
        prop_assert_eq!(mirrored.value, -estimate.value);
        prop_assert_eq!((mirrored.low, mirrored.high), (-estimate.high, -estimate.low));
        prop_assert_eq!(signed_rank_p(&map(&values, |v| -v)), signed_rank_p(&values));
    }

    #[test]
    fn intervals_hold_their_point_and_grow_with_confidence(
        values in whole(), low in 0.01..0.98f64, more in 0.0..1.0f64,
    ) {
        let high = low + (0.999 - low) * more;
        let Some(narrow) = signed_rank_interval(&values, low) else {
            // n values support a confidence of 1 − 2¹⁻ⁿ at most.
            prop_assert!(low > 1.0 - (1.0 - values.len() as f64).exp2());
            return Ok(());
        };
        prop_assert!(narrow.contains(hodges_lehmann(&values).unwrap()));
        if let Some(wide) = signed_rank_interval(&values, high) {
            prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
        }
        let own = Estimate::for_case(&values);
        prop_assert!(own.is_none_or(|e| e.low <= e.value && e.value <= e.high));
    }

    #[test]
    fn an_interval_excludes_zero_exactly_when_the_p_value_is_small(
        values in prop::collection::vec((-6..20i32).prop_map(f64::from), 6..30),
        level in 0.002..0.5f64,
    ) {
        let Some(interval) = signed_rank_interval(&values, 1.0 - level) else { return Ok(()) };
        let rejected = signed_rank_p(&values) <= 2.0 * ((1.0 - (1.0 - level)) / 2.0);
        prop_assert_eq!(rejected, !interval.contains(0.0));
    }

    #[test]
    fn a_two_sample_interval_agrees_with_its_p_value(
        first in prop::collection::vec((0..20i32).prop_map(f64::from), 4..12),
        second in prop::collection::vec((5..25i32).prop_map(f64::from), 4..12),
    ) {
        let estimate = shift(&first, &second, 0.95).unwrap();
        prop_assert!(estimate.interval().contains(estimate.value));
        prop_assert_eq!(shift_p(&first, &second) <= 0.05, !estimate.interval().contains(0.0));
        let back = shift(&second, &first, 0.95).unwrap();
        prop_assert_eq!((back.value, back.low, back.high), (-estimate.value, -estimate.high, -estimate.low));
    }

    #[test]
    fn exchanging_case_and_baseline_exchanges_the_verdict(
        case in costs(), baseline in costs(), factor in 0.8..1.2f64,
    ) {
        let case = map(&case, |v| v * factor);
        let forwards = judge(&[Differences::pair(&case, &baseline)], &COST)[0];
        let back = judge(&[Differences::pair(&baseline, &case)], &COST)[0];
        let rate = Policy { sense: Sense::Rate, ..COST };
        let as_rate = judge(&[Differences::pair(&case, &baseline)], &rate)[0];
        match forwards.verdict {
            Verdict::Slower => {
                prop_assert_eq!(back.verdict, Verdict::Faster);
                prop_assert_eq!(as_rate.verdict, Verdict::Faster);
            }
            Verdict::Faster => prop_assert_eq!(back.verdict, Verdict::Slower),
            Verdict::Same { margin } => prop_assert_eq!(back.verdict, Verdict::Same { margin }),
            Verdict::Unresolved { .. } => {
                let unresolved = matches!(back.verdict, Verdict::Unresolved { .. });
                prop_assert!(unresolved);
            }
        }
        prop_assert_eq!(forwards.p, back.p);
    }

    #[test]
    fn a_verdict_does_not_depend_on_the_order_of_epochs(case in costs(), baseline in costs()) {
        let reversed = |v: &[f64]| v.iter().rev().copied().collect::<Vec<_>>();
        prop_assert_eq!(
            judge(&[Differences::pair(&case, &baseline)], &COST),
            judge(&[Differences::pair(&reversed(&case), &reversed(&baseline))], &COST)
        );
    }

    #[test]
    fn holm_rejects_more_at_a_higher_level(
        p in prop::collection::vec(0.0..0.2f64, 0..12), low in 0.0..0.3f64, more in 0.0..0.3f64,
    ) {
        let (strict, lax) = (holm::holm(&p, low), holm::holm(&p, low + more));
        for i in 0..p.len() {
            prop_assert!(!strict[i] || lax[i]);
            prop_assert!(!strict[i] || p[i] <= low);
            prop_assert!(p[i] > low / p.len() as f64 || strict[i], "Bonferroni is never stronger");
        }
    }

    #[test]
    fn quantiles_rise(values in anything()) {
        let Some(sample) = Sample::new(&values) else { return Ok(()) };
        let mut last = sample.min();
        for step in 0..=20 {
            let quantile = sample.quantile(f64::from(step) / 20.0);
            prop_assert!(last <= quantile && quantile <= sample.max());
            last = quantile;
        }
    }

    #[test]
    fn more_epochs_show_smaller_effects(spread in 1e-4..0.5f64, n in 20..200usize, k in 1..40usize) {
        let few = power::detectable_for_spread(spread, n, k).unwrap();
        let many = power::detectable_for_spread(spread, n + 10, k).unwrap();
        prop_assert!(many < few);
        prop_assert!(power::detectable_for_spread(spread, n, k + 1).unwrap() >= few);
    }

    #[test]
    fn nothing_panics(
        a in anything(), b in anything(), x in prop::num::f64::ANY, y in prop::num::f64::ANY,
        k in prop::num::usize::ANY, rate in any::<bool>(),
    ) {
        prop_assert!((0.0..=1.0).contains(&signed_rank_p(&a)));
        prop_assert!((0.0..=1.0).contains(&shift_p(&a, &b)));
        let _ = (signed_rank_interval(&a, x), shift(&a, &b, x), Estimate::for_difference(&a), Estimate::for_case(&b));
        if let Some(s) = Sample::new(&a) {
            let _ = (s.mean(), s.stddev(), s.cv(), s.outliers());
            let _ = s.quantile(x);
        }
        let _ = (holm::holm(&a, x), modes::two_modes(&a), sample::epoch_medians(&[&a, &b]));
        let sense = if rate { Sense::Rate } else { Sense::Cost };
        let policy = Policy { margin: x, budget: Some(y), sense };
        let pairs = [Differences::pair(&a, &b), Differences { absolute: a.clone(), log_ratio: b.clone(), missing: 0, ..Differences::default() }];
        let judged = judge(&pairs, &policy);
        prop_assert!(judged.iter().all(|c| (0.0..=1.0).contains(&c.p)));
        let _ = (judge_exact(&a, &b, 0.0, sense), power::detectable(&a, k), power::epochs_to_resolve(&a, x, k));
        let _ = (power::detectable_for_spread(x, k, k), power::epochs_for_spread(x, y, k));
        let _ = (looks::first_look(k), looks::next_look(k));
        let spread = Spread::from_epochs(&[&a, &b]);
        let _ = spread.map(|s| s.of_difference(k));
        let _ = (spread, Spread::typical(&[Spread { epoch: x, trial: y }]), sentinel_drift(&[&a]));
        let _ = relative_sd(&a);
        let levels = |v: &[f64]| v.windows(2).map(|w| Level { began_s: w[0], value: w[1] }).collect::<Vec<_>>();
        let learnt = SessionSpreads::learnt(&[levels(&a), levels(&b)], &SessionSpreads::ASSUMED);
        let odd = SessionSpread { share: x, freedom: u32::try_from(k).ok() };
        let sessions = |v: &[f64]| v.windows(4).map(|w| Session {
            began_s: w[3],
            estimate: Estimate { value: w[0], low: w[1], high: w[2] },
        }).collect::<Vec<_>>();
        let sides = Sides { machine: x, leverage: y, ..Sides::new(sessions(&a), sessions(&b)) };
        for spreads in [learnt, SessionSpreads { within: odd, between: odd }] {
            let sides = Sides { spreads, ..sides.clone() };
            let judged = judge_sessions(std::slice::from_ref(&sides), k, &policy);
            prop_assert!(judged.iter().all(|one| one.p.is_nan() || (0.0..=1.0).contains(&one.p)));
        }
    }
}

#[test]
fn thousands_of_epochs_are_no_burden() {
    let case: Vec<f64> = (0..5000)
        .map(|i| 50.0 + f64::from(i * 7919 % 5000) / 5000.0)
        .collect();
    let baseline: Vec<f64> = (0..5000)
        .map(|i| 50.0 + f64::from(i * 104_729 % 5000) / 5000.0)
        .collect();
    let judged = judge(&vec![Differences::pair(&case, &baseline); 24], &COST);
    assert!(
        judged
            .iter()
            .all(|c| c.verdict == Verdict::Same { margin: 0.01 })
    );
}
