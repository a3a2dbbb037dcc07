//! The reading of a probe that does nothing: windows without a probe against others of the same server, judged like a
//! probe against none.

use std::collections::BTreeMap;

use bpfcost_stats::halves;

use bpfcost_model::{Case, OFF, VARIANT};

/// The distance from 0 within which such a probe reads in 19 of 20 runs, in percent, by the case without a probe; empty
/// with too few epochs, and where nothing is switched on and off. `samples` has each case's trials by epoch, in their
/// order; `seed` is the run's.
pub(super) fn null_readings<'a>(
    cases: impl Iterator<Item = (&'a Case, &'a [Vec<f64>])>,
    seed: u64,
) -> BTreeMap<String, f64> {
    let off = cases.filter(|(case, _)| case.factors.get(VARIANT).is_some_and(|name| name == OFF));
    let read = off.filter_map(|(case, samples)| {
        let reach = halves::reach(samples, seed)?;
        Some((case.name.clone(), reach.exp_m1() * 100.0))
    });
    read.collect()
}

/// The widest of them, as an interval.
pub(super) fn widest(nothing: &BTreeMap<String, f64>) -> Option<[f64; 2]> {
    let widest = nothing.values().copied().reduce(f64::max)?;
    Some([-widest, widest])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, variant: &str) -> Case {
        Case {
            name: name.to_owned(),
            factors: BTreeMap::from([(VARIANT.to_owned(), variant.to_owned())]),
            ..Case::default()
        }
    }

    #[test]
    fn each_state_has_its_own_and_windows_with_a_probe_have_none() {
        let windows = |percent: f64| -> Vec<Vec<f64>> {
            let other = 100.0 + percent;
            (0..12).map(|_| vec![100.0, other, other, 100.0]).collect()
        };
        let (calm, busy, few) = (windows(1.0), windows(4.0), windows(9.0)[..3].to_vec());
        let (off, large, short, probe) = (
            case("off", OFF),
            case("off/large", OFF),
            case("off/short", OFF),
            case("probe", "probe"),
        );
        let all = [
            (&off, calm.as_slice()),
            (&large, busy.as_slice()),
            (&short, few.as_slice()),
            (&probe, busy.as_slice()),
        ];
        let read = null_readings(all.into_iter(), 1);
        assert_eq!(read.keys().collect::<Vec<_>>(), ["off", "off/large"]);
        // Windows differ by 1 %, so means of two differ by less.
        assert!(read["off"] > 0.2 && read["off"] < 1.0, "{read:?}");
        assert!(read["off/large"] > 3.0 * read["off"], "{read:?}");
        let widest_one = read["off/large"];
        assert_eq!(widest(&read), Some([-widest_one, widest_one]));
        assert_eq!(widest(&BTreeMap::new()), None);
    }
}
