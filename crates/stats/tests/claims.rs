//! The simulations in short: a few hundred runs a claim, fixed seeds, bounds widened by what so few runs
//! leave open. The long form is `cargo run --release -p bpfcost-stats --example coverage`.

#[path = "../examples/coverage/alarm.rs"]
mod alarm;
#[path = "../examples/coverage/claims.rs"]
mod claims;
#[path = "../examples/coverage/families.rs"]
mod families;
#[path = "../examples/coverage/lopsided.rs"]
mod lopsided;
#[path = "../examples/coverage/machines.rs"]
mod machines;
#[path = "../examples/coverage/neighbours.rs"]
mod neighbours;
#[path = "../examples/coverage/noise.rs"]
mod noise;
#[path = "../examples/coverage/own_work.rs"]
mod own_work;
#[path = "../examples/coverage/rounds.rs"]
mod rounds;
#[path = "../examples/coverage/sessions.rs"]
mod sessions;
#[path = "../examples/coverage/sums.rs"]
mod sums;

use bpfcost_stats::session_spread::{Level, SessionSpread, SessionSpreads};
use bpfcost_stats::{Spread, spread};
use claims::MedianDistribution;
use lopsided::Shape;
use neighbours::{Neighbours, WORKS};
use noise::{Dice, Noise, NoisyMachine};

#[test]
fn intervals_cover_under_every_noise() {
    for noise in Noise::ALL {
        for epochs in [10, 20] {
            let c = claims::coverage(noise, epochs, 600, 11);
            assert!(
                c.own >= 0.93 && c.own95 <= c.own,
                "{} at {epochs}: {c:?}",
                noise.name()
            );
            assert!(
                (0.93..=0.97).contains(&c.difference),
                "{noise:?} at {epochs}: {}",
                c.difference
            );
        }
    }
}

#[test]
fn an_undisturbed_cost_is_read_through_neighbours() {
    for neighbours in Neighbours::ALL {
        let read = neighbours::reading(neighbours, WORKS[1], 20, 12, 14);
        // 12 runs leave 93.5 % open down to three quarters.
        assert!(read.own >= 0.75, "{neighbours:?}: {read:?}");
        assert!(read.difference >= 0.75, "{neighbours:?}: {read:?}");
        assert!(read.net >= 0.75, "{neighbours:?}: {read:?}");
        // One that slows by at most 2 % is hardly distinguished from the scatter of slices.
        let most = if neighbours.name == "faint" {
            0.3
        } else {
            0.15
        };
        assert!(read.bias.abs() < most, "{neighbours:?}: {read:?}");
    }
    // Who slows all slices alike for longer than a batch is not noticed, unless that is rare.
    let [rare, often] = Neighbours::UNNOTICED
        .map(|neighbours| neighbours::reading(neighbours, WORKS[1], 20, 12, 16));
    assert!(
        rare.bias.abs() < 0.5 && often.bias > 3.0,
        "{rare:?} {often:?}"
    );
    // Work that differs as much as that from slice to slice is not known.
    let rough = neighbours::reading(Neighbours::ALL[0], WORKS[4], 20, 4, 15);
    assert_eq!(rough.known, 0.0, "{rough:?}");
}

/// Each row of docs/evidence/own-work.md without neighbours, and some beside bursts.
#[test]
fn own_work_is_no_neighbour() {
    let [none, bursts] = [0, 3].map(|kind| Neighbours::ALL[kind]);
    for (name, work) in own_work::WORKS {
        for plan in [own_work::FULL, own_work::QUICK] {
            let answers = own_work::answers(work, none, 1.0, plan, 10, 22);
            let context = format!("{name}, {}: {answers:?}", plan.name);
            if work.unseen(plan) > 0.01 {
                // A cost that no batch contains can't be known.
                continue;
            }
            if work.truth() > 1.01 {
                assert!(answers.same <= 0.1, "{context}");
                // Of ten runs, two may be known and not hold, where few loads are dear.
                assert!(answers.known * (1.0 - answers.holds) <= 0.2, "{context}");
            } else {
                assert!(answers.holds >= 0.8 || answers.known < 0.5, "{context}");
            }
            if work.truth() == 1.0 {
                assert!(answers.same == 1.0 && answers.less == 0.0, "{context}");
            }
        }
        if work.truth() > 1.01 {
            let beside = own_work::answers(work, bursts, 1.0, own_work::FULL, 10, 23);
            assert!(beside.same == 0.0, "{name}: {beside:?}");
        }
    }
}

#[test]
fn pooled_trials_would_not_cover() {
    assert!(claims::coverage(Noise::TwoMode, 20, 200, 12).pooled < 0.85);
    assert!(claims::coverage(Noise::Normal, 20, 600, 12).pooled < 0.93);
}

#[test]
fn whole_runs_rarely_raise_a_false_alarm() {
    for noise in Noise::ALL {
        for (comparisons, runs) in [(1, 500), (8, 200)] {
            let a = claims::false_alarms(noise, comparisons, runs, 13);
            // 5 % plus three standard errors
            let bound = 0.05 + 3.0 * (0.05 * 0.95 / runs as f64).sqrt();
            assert!(a.without_same <= bound, "{noise:?}, {comparisons}: {a:?}");
            assert!(a.family_wise <= a.without_same);
            assert!(a.epochs >= 10.0);
        }
    }
}

#[test]
fn a_detectable_effect_is_detected_three_times_in_four() {
    for noise in Noise::ALL {
        let found = claims::found_at_detectable(noise, 5, 20, 300, 14);
        assert!((0.62..=0.85).contains(&found), "{noise:?}: {found}");
    }
    let planned = claims::found_as_planned(5, 20, 300, 23);
    assert!((0.65..=0.85).contains(&planned), "{planned}");
    let (found, epochs) = claims::found_when_resolved(Noise::Normal, 5, 14, 300, 15);
    assert!(
        (0.65..=0.90).contains(&found) && epochs > 14.0,
        "{found} at {epochs}"
    );
}

#[test]
fn an_effect_on_the_edge_is_rarely_misjudged() {
    for noise in Noise::ALL {
        let wrong = claims::on_the_edge(noise, 20, 500, 16);
        assert!(
            wrong.iter().all(|&share| share <= 0.08),
            "{noise:?}: {wrong:?}"
        );
    }
}

/// 5.5 % plus three standard errors; the signed-rank interval errs in 11 to 15 %.
#[test]
fn what_strikes_the_case_alone_is_rarely_misjudged() {
    let runs = 800;
    let bound = 0.055 + 3.0 * (0.055 * 0.945 / runs as f64).sqrt();
    for shape in [
        Shape::Dearer(0.3, 0.08),
        Shape::LogNormal(1.5),
        Shape::Exponential,
    ] {
        for epochs in [6, 10, 20] {
            let wrong = lopsided::answers(shape, 1.0, epochs, runs, 26);
            let worst = wrong.same.max(wrong.within).max(wrong.over);
            assert!(worst <= bound, "{shape:?} at {epochs}: {wrong:?}");
        }
    }
    assert!(lopsided::answers(Shape::Dearer(0.3, 0.08), 1.0, 10, runs, 26).symmetric > bound);
    let right = lopsided::answers(Shape::Normal, 0.5, 14, runs, 27);
    assert!(right.within >= right.symmetric - 0.08, "{right:?}");
    let heavy = lopsided::answers(Shape::Heavy, 0.5, 14, runs, 27);
    assert!(heavy.within >= heavy.symmetric - 0.12, "{heavy:?}");
}

#[test]
fn false_verdicts_are_rare_over_all_quantities() {
    for correlation in [0.0, 0.8] {
        let alarms = families::false_verdicts(4, correlation, 500, 28);
        let bound = 0.05 + 3.0 * (0.05 * 0.95 / 500.0_f64).sqrt();
        assert!(alarms.together <= bound, "{alarms:?}");
        assert!(alarms.each > alarms.together && alarms.epochs == 11);
    }
    assert!(
        families::costs(1)
            .iter()
            .all(|cost| (1.0..2.0).contains(cost))
    );
}

/// An even number of trials moves the centre; three cost little in width against the best number.
#[test]
fn three_trials_are_enough() {
    let [two, three, four, five] = rounds::centres(20_000, 29);
    assert!(two > 0.008 && three == 0.0 && two > 2.0 * four.abs().max(five.abs()));
    let [_, three, ..] = rounds::widths(1.0, 1.0, 60, 30).fixed;
    assert!((0.9..1.25).contains(&three), "{three}");
}

#[test]
fn two_modes_are_seen_where_they_are() {
    for epochs in [10, 15, 30, 60] {
        for shape in [
            MedianDistribution::Normal,
            MedianDistribution::LogNormal(0.3),
            MedianDistribution::Heavy,
            MedianDistribution::Even(0.05),
            MedianDistribution::Drift,
            MedianDistribution::Exponential,
        ] {
            let seen = claims::two_modes_seen(shape, epochs, 2000, 17);
            assert!(seen <= 0.022, "{shape:?} at {epochs}: {seen}");
        }
    }
    let seen = claims::two_modes_seen(MedianDistribution::HalfDelayed, 30, 1000, 17);
    assert!(seen <= 0.05, "half delayed: {seen}");
    for (distance, share, epochs) in [(8.0, 0.2, 120), (5.0, 0.5, 60), (8.0, 0.5, 20)] {
        let seen =
            claims::two_modes_seen(MedianDistribution::Two(distance, share), epochs, 500, 18);
        assert!(seen >= 0.9, "{distance} σ, {share} at {epochs}: {seen}");
    }
}

#[test]
fn parts_that_add_up_are_rarely_said_not_to() {
    for noise in Noise::ALL {
        for (types, runs) in [(1, 400), (10, 100)] {
            let answers = sums::sums(noise, types, 0.0, runs, 24);
            // 5 % plus three standard errors
            let bound = 0.05 + 3.0 * (0.05 * 0.95 / runs as f64).sqrt();
            assert!(answers.alarms <= bound, "{noise:?}, {types}: {answers:?}");
            assert!(answers.alarms <= answers.strict_alarms);
        }
    }
}

#[test]
fn a_tax_that_depends_on_the_body_is_found_among_ten() {
    for noise in Noise::ALL {
        let answers = sums::sums(noise, 10, 0.10, 60, 25);
        assert!(answers.found >= 0.9, "{noise:?}: {answers:?}");
    }
}

/// Whatever days, drift and throttling do, `compare` raises few false alarms: with the histories of a machine that is
/// new and of one that is known, in every arrangement of the sessions.
#[test]
fn sessions_cover() {
    // The longest of these tests, by far.
    std::thread::scope(|scope| {
        for arrangement in sessions::ARRANGEMENTS {
            scope.spawn(move || sessions_cover_in(arrangement));
        }
    });
}

fn sessions_cover_in(arrangement: sessions::Arrangement) {
    for &machine in arrangement
        .machines()
        .iter()
        .filter(|one| one.sentinel_slows)
    {
        for history in [sessions::HISTORIES[0], sessions::HISTORIES[3]] {
            let found = sessions::compared(machine, arrangement, history, 200, 19);
            let what = format!("{}, {}, {}", arrangement.name, machine.name, history.name);
            assert!(found.coverage >= 0.92, "{what}: {found:?}");
            assert!(
                found.differs <= 0.085 && found.gate <= 0.05,
                "{what}: {found:?}"
            );
        }
    }
}

/// The arrangement that counted as exact before sessions had dates: a day for each side, days 2 % apart.
#[test]
fn a_day_for_each_side_is_no_independent_sessions() {
    let (a_day_each, days_apart) = (sessions::ARRANGEMENTS[2], machines::MACHINES[3]);
    let found = sessions::compared(days_apart, a_day_each, sessions::HISTORIES[0], 400, 20);
    assert!(found.differs <= 0.05, "{found:?}");
    assert!(found.half_width >= 0.05, "{found:?}");
}

/// The components that went into the noise come out again: loads 1 %, trials 2 %.
#[test]
fn spread_is_taken_apart() {
    let mut machine = NoisyMachine::new(Noise::Normal, 20);
    let epochs: Vec<_> = (0..600)
        .map(|_| machine.epoch(&[50.0], 3).trials.remove(0))
        .collect();
    let found = Spread::from_epochs(&epochs).unwrap();
    assert!((found.epoch - 0.01).abs() < 0.0025, "{found:?}");
    assert!((found.trial - 0.02).abs() < 0.002, "{found:?}");

    // A sentinel that is loaded once has no epochs: what it shows is the machine.
    let mut dice = Dice::new(21);
    let still: Vec<Vec<f64>> = (0..600)
        .map(|_| (0..3).map(|_| 50.0 + dice.normal()).collect())
        .collect();
    assert!(spread::sentinel_drift(&still).unwrap() < 0.006);
}

#[test]
fn session_spreads_come_out_again() {
    const DAY: f64 = 86_400.0;
    let mut dice = Dice::new(22);
    // Sessions 2 % apart on days 3 % apart: √(2² + 3²) between days.
    let cases: Vec<Vec<Level>> = (0..300)
        .map(|_| {
            let mut levels = Vec::new();
            for day in 0..6 {
                let luck = 0.03 * dice.normal();
                levels.extend((0..3).map(|i| Level {
                    began_s: f64::from(day) * DAY + f64::from(i),
                    value: 50.0 * (luck + 0.02 * dice.normal()).exp(),
                }));
            }
            levels
        })
        .collect();
    let found = SessionSpreads::learnt(&cases, &SessionSpreads::ASSUMED);
    assert!((found.within.share - 0.02).abs() < 0.001, "{found:?}");
    assert!((found.between.share - 0.036).abs() < 0.002, "{found:?}");
    assert_eq!(
        (found.within.freedom, found.between.freedom),
        (Some(12), Some(5))
    );
    // A case that repeats well among others that do not: it takes ten sessions of its own to say so.
    for (sessions, expected) in [(9, found.within.share), (10, 0.001)] {
        let own = (0..sessions).map(|i| Level {
            began_s: f64::from(i),
            value: 50.0 + 0.01 * f64::from(i % 2),
        });
        let own = [own.collect::<Vec<_>>()];
        let one = SessionSpreads::of_undisturbed(&own, &found);
        assert_eq!(one.within.share, expected, "{sessions} sessions");
        // They say nothing of days, and six days of all cases are too few.
        assert_eq!(one.between, SessionSpreads::ASSUMED_UNDISTURBED.between);
    }
    // Sessions of twelve days, one each, say also how far those of a sitting differ, at most.
    let days = (0..12).map(|day| Level {
        began_s: f64::from(day) * DAY,
        value: 50.0 + 0.01 * f64::from(day % 2),
    });
    let one = SessionSpreads::of_undisturbed(&[days.collect::<Vec<_>>()], &found);
    assert_eq!((one.within.share, one.between.share), (0.001, 0.001));
    // Few sessions can't narrow what is known of all cases, nor what is assumed; but they can widen it.
    for (pooled, least) in [(found, 0.02), (SessionSpreads::ASSUMED_UNDISTURBED, 0.01)] {
        for (step, expected) in [(0.01, least), (10.0, 0.06)] {
            let few = [0.0, step, 0.0, step].map(|more| Level {
                began_s: 0.0,
                value: 50.0 + more,
            });
            let one = SessionSpreads::of_undisturbed(&[few], &pooled);
            assert!(
                one.within.share >= 0.97 * expected,
                "{pooled:?}, {step}: {one:?}"
            );
            assert_eq!(one.within.freedom, pooled.within.freedom);
        }
    }
    // What four sessions of all cases show is too little: an assumption stays one.
    let four = SessionSpread {
        share: 0.002,
        freedom: Some(3),
    };
    let pooled = SessionSpreads {
        within: four,
        between: four,
    };
    let none: [Vec<Level>; 0] = [];
    let one = SessionSpreads::of_undisturbed(&none, &pooled);
    assert_eq!(one, SessionSpreads::ASSUMED_UNDISTURBED);
    // Of one case in one sitting of two little is known: what is assumed stays, unless more was seen.
    let two = |value: f64| {
        [[50.0, value].map(|value| Level {
            began_s: 0.0,
            value,
        })]
    };
    let assumed = SessionSpreads::ASSUMED;
    assert_eq!(SessionSpreads::learnt(&two(50.1), &assumed), assumed);
    let far = SessionSpreads::learnt(&two(60.0), &assumed);
    assert!(
        far.within.share > 0.15 && far.within.freedom.is_none(),
        "{far:?}"
    );
    // Different sittings can't differ less than one.
    assert_eq!(far.between, far.within);
    assert_eq!(SessionSpreads::learnt::<Vec<Level>>(&[], &assumed), assumed);
}

#[test]
fn an_alarm_is_rare_without_a_cost_and_sure_with_one() {
    let runs = 40;
    for service in alarm::Service::ALL {
        let nothing = alarm::runs(service, 1.0, 0.2, runs, 29);
        assert!(
            nothing.aborted <= 1.0 / runs as f64,
            "{service:?}: {nothing:?}"
        );
        assert!(nothing.cut <= 0.5, "{service:?}: {nothing:?}");
        let doubled = alarm::runs(service, 2.0, 0.2, runs, 30);
        let least = if doubled.refused < 0.5 { 0.975 } else { 0.0 };
        assert!(doubled.soon >= least, "{service:?}: {doubled:?}");
    }
    // Noise of 20 % and more in a stretch leaves no room for a limit of 20 %; one of 400 % works.
    let loud = alarm::Service::Steady(0.5);
    assert_eq!(alarm::runs(loud, 1.0, 0.2, runs, 29).refused, 1.0);
    let wide = alarm::runs(loud, 1.0, 4.0, runs, 29);
    assert!(wide.refused < 0.1 && wide.aborted == 0.0, "{wide:?}");
}
