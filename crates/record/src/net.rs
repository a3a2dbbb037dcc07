//! Net: the cost of a case without the harness (METHODOLOGY.md).
//!
//! A trial's loop does the body and a reset. The reset can be had twice: on its own, in the floor
//! case's loop, where nothing overlaps with it; and in context, as what a second reset adds to the
//! case itself. Neither is what the one reset costs there, for a CPU overlaps them; the truth lies
//! between, so that net is a bracket:
//!
//! ```text
//! reset alone      = the floor case (empty loop + reset)
//! reset in context = the case with its reset done twice − the case + the empty loop
//! net              = [raw − reset in context, raw − reset alone], sorted
//! ```
//!
//! All of it is taken epoch by epoch and estimated as every other value.

use bpfcost_stats::{
    Estimate,
    sample::median,
    undisturbed::{Undisturbed, Unknown},
};

use crate::{CaseRecord, Net, Record};
use bpfcost_measure::{CaseData, Centre};
use bpfcost_model::Role;

/// The secondary value of a trial that holds ns/op with the reset done twice.
pub const RESET_TWICE: &str = "reset_twice";

/// The inputs of a net cost: values by epoch, NaN where an epoch has none.
pub(super) struct NetInputs<'a> {
    /// The values of the case itself.
    pub(super) raw: &'a [f64],
    /// The loop with the case's reset.
    pub(super) floor: &'a [f64],
    /// The loop with nothing in it; `None` where `floor` is that loop already.
    pub(super) empty: Option<&'a [f64]>,
    /// The time that a second reset adds to the case; `None` where it wasn't timed.
    pub(super) second_reset: Option<&'a [f64]>,
    /// The role of the case: floors are part of the harness itself.
    pub(super) role: Role,
    /// The relative difference below which the ends agree.
    pub(super) margin: f64,
    /// The centre over epochs.
    pub(super) centre: Centre,
    /// The largest unnoticed errors of the parts.
    pub(super) unnoticed: Unnoticed,
}

/// The largest unnoticed errors of the parts of a net, in the unit of the values: too high by what a neighbour added,
/// or too low by work of the case's own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unnoticed {
    pub(super) raw_high: f64,
    pub(super) raw_low: f64,
    pub(super) floor_high: f64,
    pub(super) empty_high: f64,
    /// The error of the case with its reset done twice.
    pub(super) twice_high: f64,
}

/// The time that a second reset adds, by epoch: the median over trials of (twice − once).
pub(super) fn second_reset(data: &CaseData) -> Option<Vec<f64>> {
    let twice = data.secondary.get(RESET_TWICE)?;
    let by_epoch = data.samples.iter().zip(twice).map(|(once, twice)| {
        let added = if once.len() == twice.len() {
            // The same trial timed both, so that what slowed one slowed the other.
            let pairs: Vec<f64> = twice.iter().zip(once).map(|(a, b)| a - b).collect();
            median(&pairs)
        } else {
            median(twice).zip(median(once)).map(|(a, b)| a - b)
        };
        added.unwrap_or(f64::NAN)
    });
    Some(by_epoch.collect())
}

/// The case with its reset done twice, undisturbed.
pub(super) fn reset_twice_undisturbed(data: &CaseData) -> Result<Undisturbed, Unknown> {
    data.undisturbed_secondary(RESET_TWICE)
}

/// The bracket, and one number where its ends agree.
pub(super) fn net(parts: &NetInputs) -> Option<Net> {
    let alone = minus(parts.raw, parts.floor);
    let context = match (parts.role, parts.empty, parts.second_reset) {
        // The cost of a reset on its own: there is one way to see it.
        (Role::Floor, ..) => alone.clone(),
        // There is a reset, and what it costs in context wasn't timed: half a bracket is none.
        (Role::Case, Some(_), None) => return None,
        // No reset at all: the floor is the empty loop, and nothing overlaps.
        (Role::Case, None, None) => alone.clone(),
        (Role::Case, empty, Some(second)) => {
            minus(&minus(parts.raw, second), empty.unwrap_or(parts.floor))
        }
    };
    let centre = parts.centre;
    let ends = [centre.value(&context)?, centre.value(&alone)?];
    let bracket = [ends[0].min(ends[1]), ends[0].max(ends[1])];
    let intervals = [
        centre
            .estimate(&context)
            .map(|end| parts.unnoticed.in_context(end, parts)),
        centre
            .estimate(&alone)
            .map(|end| parts.unnoticed.alone(end)),
    ];
    // Whichever end is nearer to the truth, this interval holds it as often as it claims.
    let hull = match intervals {
        [Some(a), Some(b)] => Some([a.low.min(b.low), a.high.max(b.high)]),
        _ => None,
    };
    let middle = bracket[0] / 2.0 + bracket[1] / 2.0;
    let value = (bracket[1] - bracket[0] <= parts.margin * middle.abs()).then_some(middle);
    let lowest = hull.map_or(bracket[0], |[low, _]| low.min(bracket[0]));
    Some(Net {
        bracket,
        value,
        ci95: value.and(hull),
        distinguishable: lowest > 0.0,
    })
}

impl Unnoticed {
    /// The interval of raw − floor.
    fn alone(&self, end: Estimate) -> Estimate {
        Estimate {
            low: end.low - self.raw_high,
            high: end.high + self.floor_high + self.raw_low,
            ..end
        }
    }

    /// The interval of raw − (twice − raw) − empty, where that is the end; else of raw − floor.
    fn in_context(&self, end: Estimate, parts: &NetInputs) -> Estimate {
        if parts.second_reset.is_none() || parts.role == Role::Floor {
            return self.alone(end);
        }
        Estimate {
            low: end.low - 2.0 * self.raw_high,
            high: end.high + self.twice_high + self.empty_high + self.raw_low,
            ..end
        }
    }
}

pub(super) fn minus(values: &[f64], others: &[f64]) -> Vec<f64> {
    values.iter().zip(others).map(|(a, b)| a - b).collect()
}

impl Record {
    /// The case of that name.
    pub fn case(&self, name: &str) -> Option<&CaseRecord> {
        self.cases.iter().find(|case| case.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve epochs with a wobble that every part shares.
    fn around(value: f64, wobble: f64) -> Vec<f64> {
        (0..12)
            .map(|epoch| value + wobble * (f64::from(epoch) - 5.5))
            .collect()
    }

    fn parts<'a>(raw: &'a [f64], floor: &'a [f64]) -> NetInputs<'a> {
        NetInputs {
            raw,
            floor,
            empty: None,
            second_reset: None,
            role: Role::Case,
            margin: 0.01,
            centre: Centre::Typical,
            unnoticed: Unnoticed::default(),
        }
    }

    #[test]
    fn a_bracket_where_the_reset_overlaps() {
        // The design's own numbers: both 43.9; the reset alone 1.7 over an empty loop of 0.5; a
        // second reset adds 12.1.
        let raw = around(43.9, 0.1);
        let (floor, empty, second) = ([2.2; 12], [0.5; 12], [12.1; 12]);
        let net = net(&NetInputs {
            empty: Some(&empty),
            second_reset: Some(&second),
            ..parts(&raw, &floor)
        })
        .unwrap();
        assert!(
            (net.bracket[0] - (43.9 - 12.1 - 0.5)).abs() < 1e-9,
            "{net:?}"
        );
        assert!((net.bracket[1] - (43.9 - 2.2)).abs() < 1e-9, "{net:?}");
        assert_eq!((net.value, net.ci95), (None, None));
        assert!(net.distinguishable);
    }

    #[test]
    fn one_number_where_the_ends_agree() {
        let raw = around(40.0, 0.1);
        let (floor, empty, second) = ([2.0; 12], [0.5; 12], [1.7; 12]);
        let with = |margin| {
            net(&NetInputs {
                empty: Some(&empty),
                second_reset: Some(&second),
                margin,
                ..parts(&raw, &floor)
            })
            .unwrap()
        };
        // The ends are 37.8 and 38.0: 0.53 % of 37.9.
        let agreed = with(0.0054);
        assert!((agreed.value.unwrap() - 37.9).abs() < 1e-9);
        let [low, high] = agreed.ci95.unwrap();
        assert!(low < 37.8 && high > 38.0, "{agreed:?}");
        assert_eq!(with(0.0052).value, None);
    }

    #[test]
    fn without_a_reset_the_floor_is_the_empty_loop() {
        let (raw, floor) = ([10.0; 12], [0.5; 12]);
        let plain = net(&parts(&raw, &floor)).unwrap();
        assert_eq!((plain.bracket, plain.value), ([9.5, 9.5], Some(9.5)));
        let nothing = [0.0; 12];
        let timed = NetInputs {
            second_reset: Some(&nothing),
            ..parts(&raw, &floor)
        };
        assert_eq!(net(&timed), Some(plain));
    }

    #[test]
    fn near_zero_is_not_told_from_the_harness() {
        let floor = [1.0; 12];
        let near = net(&parts(&around(1.1, 0.1), &floor)).unwrap();
        assert!(near.bracket[0] > 0.0 && !near.distinguishable);
        let clear = net(&parts(&around(1.7, 0.1), &floor)).unwrap();
        assert!(clear.distinguishable);
        assert!(!net(&parts(&[1.0; 3], &[1.0; 3])).unwrap().distinguishable);
    }

    #[test]
    fn half_a_bracket_is_none() {
        let (raw, floor, empty) = ([10.0; 12], [2.0; 12], [0.5; 12]);
        let untimed = NetInputs {
            empty: Some(&empty),
            ..parts(&raw, &floor)
        };
        assert_eq!(net(&untimed), None);
        // A floor's own net is the reset alone.
        let of_floor = NetInputs {
            role: Role::Floor,
            ..untimed
        };
        assert_eq!(net(&of_floor).unwrap().value, Some(8.0));
    }

    #[test]
    fn epochs_that_lack_a_part_are_passed_over() {
        let raw = [10.0, f64::NAN, 12.0, 11.0];
        let floor = [1.0, 1.0, f64::NAN, 1.0];
        let net = net(&parts(&raw, &floor)).unwrap();
        assert_eq!(net.bracket, [9.5, 9.5]);
        assert_eq!(super::net(&parts(&[f64::NAN], &[1.0])), None);
    }

    #[test]
    fn a_second_reset_is_paired_by_trial() {
        let data = CaseData {
            samples: vec![vec![10.0, 20.0, 90.0], vec![], vec![10.0]],
            secondary: [(
                RESET_TWICE.to_owned(),
                vec![vec![12.0, 23.0, 91.0], vec![], vec![13.0, 15.0]],
            )]
            .into(),
            ..CaseData::default()
        };
        let added = second_reset(&data).unwrap();
        assert_eq!((added[0], added[2]), (2.0, 4.0));
        assert!(added[1].is_nan());
    }
}
