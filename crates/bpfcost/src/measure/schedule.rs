//! The order of a round: every case once, and the sentinel, drawn afresh from the recorded seed.
//!
//! Random order within rounds is what makes the difference of two cases symmetric about zero when there
//! is no effect, whatever the noise or the drift; the signed-rank interval rests on it.

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64;

/// A turn in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The case with this index into the plan.
    Case(usize),
    /// The sentinel.
    Sentinel,
}

/// The turns of a round over all `cases` of a plan, live or not.
///
/// The order is a function of its arguments alone, so a resumed run draws what the whole run would have
/// drawn, and a case that drops out leaves the order of the others as it is.
pub(super) fn turns(seed: u64, epoch: usize, round: usize, cases: usize) -> Vec<Turn> {
    let mut turns: Vec<Turn> = (0..cases).map(Turn::Case).chain([Turn::Sentinel]).collect();
    turns.shuffle(&mut generator(seed, epoch, round));
    turns
}

/// A generator of its own for each round. Each step reseeds from an output, for generators whose seeds
/// are neighbours must not draw alike.
fn generator(seed: u64, epoch: usize, round: usize) -> Pcg64 {
    [epoch, round]
        .into_iter()
        .fold(Pcg64::seed_from_u64(seed), |mut generator, word| {
            Pcg64::seed_from_u64(generator.next_u64() ^ word as u64)
        })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_turn_comes_once() {
        for epoch in 0..20 {
            let turns = turns(7, epoch, 1, 24);
            assert_eq!(turns.len(), 25);
            for case in 0..24 {
                assert!(turns.contains(&Turn::Case(case)));
            }
            assert!(turns.contains(&Turn::Sentinel));
        }
    }

    #[test]
    fn seed_epoch_and_round_each_change_the_order() {
        let mut seen = HashSet::new();
        for seed in 0..10 {
            for epoch in 0..10 {
                for round in 0..10 {
                    let order = format!("{:?}", turns(seed, epoch, round, 24));
                    assert!(seen.insert(order), "{seed} {epoch} {round}");
                }
            }
        }
    }

    #[test]
    fn every_case_comes_at_every_place_about_as_often() {
        // 4,000 rounds, 8 turns: 500 expected at each place, standard deviation 21.
        let mut count = [[0_u32; 8]; 7];
        for epoch in 0..1000 {
            for round in 0..4 {
                for (place, turn) in turns(1, epoch, round, 7).into_iter().enumerate() {
                    if let Turn::Case(case) = turn {
                        count[case][place] += 1;
                    }
                }
            }
        }
        for (case, places) in count.iter().enumerate() {
            for (place, &times) in places.iter().enumerate() {
                assert!((400..=600).contains(&times), "{case} at {place}: {times}");
            }
        }
    }

    #[test]
    fn one_case_precedes_another_half_of_the_time() {
        let before = (0..4000)
            .filter(|&epoch| {
                let turns = turns(3, epoch, 0, 5);
                let place = |case| turns.iter().position(|&turn| turn == Turn::Case(case));
                place(1) < place(4)
            })
            .count();
        assert!((1850..=2150).contains(&before), "{before} of 4000"); // standard deviation 32
    }
}
