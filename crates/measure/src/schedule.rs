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
    Sentinel,
}

/// The turns of a round over all cases of a plan, live or not. `blocks` gives the block of each: cases of one
/// block are adjacent, blocks in random order, and cases within them too, so that what is compared is
/// adjacent in time and the order is still symmetric.
///
/// The order is a function of its arguments alone, so a resumed run draws what the whole run would have
/// drawn, and dropping a case does not change the order of the others.
pub(super) fn turns(seed: u64, epoch: usize, round: usize, blocks: &[usize]) -> Vec<Turn> {
    let mut generator = generator(seed, epoch, round);
    let mut turns: Vec<Turn> = (0..blocks.len()).map(Turn::Case).collect();
    turns.push(Turn::Sentinel);
    turns.shuffle(&mut generator);
    let most = blocks.iter().max().map_or(0, |most| most + 1);
    if most < 2 || most == blocks.len() {
        return turns;
    }
    let mut places: Vec<usize> = (0..=most).collect();
    places.shuffle(&mut generator);
    turns.sort_by_key(|turn| match turn {
        Turn::Case(case) => places[blocks[*case]],
        Turn::Sentinel => places[most],
    });
    turns
}

/// A separate generator for each round. Each step reseeds from an output, because generators with
/// neighbouring seeds must not draw alike.
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

    /// Blocks of `cases` cases, each in its own.
    fn alone(cases: usize) -> Vec<usize> {
        (0..cases).collect()
    }

    #[test]
    fn cases_of_a_block_come_next_to_each_other_in_any_order() {
        let blocks = [0, 1, 2, 0, 1, 2, 0, 1, 2];
        let mut orders = HashSet::new();
        for round in 0..100 {
            let turns = turns(3, 0, round, &blocks);
            let mut seen: Vec<Option<usize>> = turns
                .iter()
                .map(|turn| match turn {
                    Turn::Case(case) => Some(blocks[*case]),
                    Turn::Sentinel => None,
                })
                .collect();
            orders.insert(format!("{turns:?}"));
            assert_eq!(turns.len(), 10);
            seen.dedup();
            assert_eq!(seen.len(), 4, "{turns:?}");
        }
        assert!(orders.len() > 95, "{}", orders.len());
    }

    #[test]
    fn every_turn_comes_once() {
        for epoch in 0..20 {
            let turns = turns(7, epoch, 1, &alone(24));
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
                    let order = format!("{:?}", turns(seed, epoch, round, &alone(24)));
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
                for (place, turn) in turns(1, epoch, round, &alone(7)).into_iter().enumerate() {
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
                let turns = turns(3, epoch, 0, &alone(5));
                let place = |case| turns.iter().position(|&turn| turn == Turn::Case(case));
                place(1) < place(4)
            })
            .count();
        assert!((1850..=2150).contains(&before), "{before} of 4000"); // standard deviation 32
    }
}
