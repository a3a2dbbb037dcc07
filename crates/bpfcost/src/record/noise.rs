//! Off against off: the difference that a run measures without a probe. Two windows of the baseline in an epoch,
//! one after the other, differ only by noise and by changes within an epoch. Their interval over epochs is computed
//! like that of a probe; an epoch's value is the mean of its pairs.

use bpfcost_stats::{Estimate, sample::median};

use crate::{
    experiment::Case,
    workload::{OFF, VARIANT},
};

/// The 95 % interval of each second window of `off` against the one before, in percent; `None` with too few epochs, and
/// where nothing is switched on and off. `samples` has each case's trials by epoch, in their order.
pub(super) fn noise<'a>(
    cases: impl Iterator<Item = (&'a Case, &'a [Vec<f64>])>,
) -> Option<[f64; 2]> {
    let off: Vec<&[Vec<f64>]> = cases
        .filter(|(case, _)| case.factors.get(VARIANT).is_some_and(|name| name == OFF))
        .map(|(_, samples)| samples)
        .collect();
    let epochs = off.iter().map(|samples| samples.len()).max()?;
    let ratio = |samples: &&[Vec<f64>], epoch: usize| {
        let pairs = samples.get(epoch)?.as_chunks::<2>().0;
        let logs = pairs.iter().map(|[first, second]| (second / first).ln());
        let mean = logs.sum::<f64>() / pairs.len() as f64;
        Some(mean).filter(|ratio| ratio.is_finite())
    };
    // Cases of one epoch share its noise: they count as one.
    let by_epoch = (0..epochs).filter_map(|epoch| {
        let all: Vec<f64> = off.iter().filter_map(|one| ratio(one, epoch)).collect();
        median(&all)
    });
    let estimate = Estimate::of_case(&by_epoch.collect::<Vec<f64>>())?;
    Some([estimate.low, estimate.high].map(|log| log.exp_m1() * 100.0))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::{Role, Sizing};

    fn case(variant: &str) -> Case {
        Case {
            name: variant.to_owned(),
            group: String::new(),
            factors: BTreeMap::from([(VARIANT.to_owned(), variant.to_owned())]),
            about: String::new(),
            role: Role::Case,
            floor: None,
            sizing: Sizing::Window(1000),
            ..Case::default()
        }
    }

    #[test]
    fn windows_of_off_alone_tell() {
        let (off, probe) = (case(OFF), case("probe"));
        let quiet: Vec<Vec<f64>> = (0..12)
            .map(|i| vec![100.0, 101.0 + f64::from(i % 3)])
            .collect();
        let loud: Vec<Vec<f64>> = (0..12).map(|_| vec![100.0, 300.0]).collect();
        let both = [(&off, quiet.as_slice()), (&probe, loud.as_slice())];
        let [low, high] = noise(both.into_iter()).expect("enough");
        assert!(
            (1.0..=2.0).contains(&low) && (2.0..=3.1).contains(&high),
            "{low} {high}"
        );
        // Each pair of windows counts, and one without a second does not.
        let more: Vec<Vec<f64>> = (0..12)
            .map(|_| vec![100.0, 100.0, 100.0, 102.01, 500.0])
            .collect();
        let [low, high] = noise([(&off, more.as_slice())].into_iter()).expect("enough");
        assert!(
            (low - 1.0).abs() < 1e-6 && (high - 1.0).abs() < 1e-6,
            "{low} {high}"
        );
        assert_eq!(noise([(&probe, loud.as_slice())].into_iter()), None);
        assert_eq!(noise([(&off, &quiet[..3])].into_iter()), None);
        let once: Vec<Vec<f64>> = (0..12).map(|_| vec![100.0]).collect();
        assert_eq!(noise([(&off, once.as_slice())].into_iter()), None);
    }
}
