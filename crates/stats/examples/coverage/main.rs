//! The long form of the simulations: prints what was claimed and how often it held, and fails if a bound
//! is broken. `cargo run --release -p bpfcost-stats --example coverage [-- RUNS [PART]]`

mod alarm;
mod bounds;
mod claims;
mod families;
mod lopsided;
mod machines;
mod neighbours;
mod noise;
mod nothing;
mod own_work;
mod resting;
mod rounds;
mod seldom;
mod sessions;
mod sums;

use bounds::BoundsCheck;
use claims::MedianDistribution;
use lopsided::Shape;
use noise::Noise;
use sessions::Compared;
use std::process::ExitCode;

/// A part of the output, by the name that selects it.
type OutputPart = (&'static str, fn(&mut BoundsCheck, usize));

const PARTS: [OutputPart; 19] = [
    ("coverage", coverage),
    ("alarms", alarms),
    ("families", families),
    ("detectable", detectable),
    ("planning", planning),
    ("edge", edge),
    ("lopsided", lopsided),
    ("modes", modes),
    ("sessions", sessions_as_found),
    ("sessions-undisturbed", sessions_undisturbed),
    ("sessions-added", sessions_added),
    ("sums", parts_add_up),
    ("nothing", nothing::print),
    ("seldom", seldom::print),
    ("rounds", rounds),
    ("resting", resting::print),
    ("neighbours", neighbours),
    ("own-work", own_work),
    ("alarm", alarm_of_a_watch),
];

fn main() -> ExitCode {
    let runs = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(10_000_usize);
    let part = std::env::args().nth(2);
    println!("{runs} runs a figure unless said; percent; ! marks a broken bound");

    let mut ledger = BoundsCheck::default();
    for (name, print) in PARTS {
        if part.as_deref().is_none_or(|wanted| wanted == name) {
            println!();
            print(&mut ledger, runs);
        }
    }
    if ledger.broken > 0 {
        println!("\n{} figures break their bounds", ledger.broken);
        return ExitCode::FAILURE;
    }
    println!("\nall bounds hold");
    ExitCode::SUCCESS
}

fn coverage(ledger: &mut BoundsCheck, runs: usize) {
    println!("Coverage of 95 % intervals (own at least 93.5, difference 93.5 to 96.5)");
    println!("noise       epochs      own  at 95   difference  pooled trials");
    for noise in Noise::ALL {
        for epochs in [10, 14, 20, 30] {
            let c = claims::coverage(noise, epochs, runs, 1);
            let own = ledger.figure(c.own, 0.935, 1.0);
            let difference = ledger.figure(c.difference, 0.935, 0.965);
            let pooled = 100.0 * c.pooled;
            println!(
                "{:<12}{epochs:>6}{own:>10}{:>7.2}{difference:>13}{pooled:>14.2}",
                noise.name(),
                100.0 * c.own95
            );
        }
    }
}

fn alarms(ledger: &mut BoundsCheck, runs: usize) {
    println!("False alarms of whole A/A runs, family-wise (at most 5)");
    println!("noise       comparisons  family-wise  without same  epochs");
    for noise in Noise::ALL {
        for comparisons in [1, 5, 24] {
            let a = claims::false_alarms(noise, comparisons, runs, 2);
            let alarms = ledger.figure(a.family_wise, 0.0, 0.05);
            let bare = ledger.figure(a.without_same, 0.0, 0.05);
            let (name, epochs) = (noise.name(), a.epochs);
            println!("{name:<12}{comparisons:>11}{alarms:>13}{bare:>14}{epochs:>8.1}");
        }
    }
}

fn detectable(ledger: &mut BoundsCheck, runs: usize) {
    let runs = runs / 5;
    println!("An effect of the size called detectable is found (65 to 85; {runs} runs)");
    println!("noise       comparisons  epochs   found");
    let sizes = [
        (1, 10),
        (1, 20),
        (5, 14),
        (5, 28),
        (24, 12),
        (24, 24),
        (24, 46),
    ];
    for noise in Noise::ALL {
        for (comparisons, epochs) in sizes {
            let found = claims::found_at_detectable(noise, comparisons, epochs, runs, 3);
            let found = ledger.figure(found, 0.65, 0.85);
            println!("{:<12}{comparisons:>11}{epochs:>8}{found:>9}", noise.name());
        }
    }
    println!("The same, planned from the spread of loads and trials before any epoch");
    for (comparisons, epochs) in [(1, 10), (1, 30), (5, 20), (24, 12), (24, 24)] {
        let found = claims::found_as_planned(comparisons, epochs, runs, 9);
        let found = ledger.figure(found, 0.65, 0.85);
        println!("{:<12}{comparisons:>11}{epochs:>8}{found:>9}", "normal");
    }
}

fn planning(ledger: &mut BoundsCheck, runs: usize) {
    let runs = runs / 10;
    println!(
        "An effect of 2 % is found after the epochs that 14 said it takes (65 to 90; {runs} runs)"
    );
    println!("noise       comparisons  epochs   found");
    for noise in Noise::ALL {
        for comparisons in [1, 5, 24] {
            let (found, epochs) = claims::found_when_resolved(noise, comparisons, 14, runs, 4);
            let found = ledger.figure(found, 0.65, 0.90);
            println!(
                "{:<12}{comparisons:>11}{epochs:>8.1}{found:>9}",
                noise.name()
            );
        }
    }
}

fn edge(ledger: &mut BoundsCheck, runs: usize) {
    println!(
        "Wrong answers where the true cost is exactly the margin and the budget (at most 5.5)"
    );
    println!("noise       epochs    same   within    over");
    for noise in Noise::ALL {
        for epochs in [10, 20, 40] {
            let wrong = claims::on_the_edge(noise, epochs, runs, 8);
            let [same, within, over] = wrong.map(|share| ledger.figure(share, 0.0, 0.055));
            println!("{:<12}{epochs:>6} {same}{within}{over}", noise.name());
        }
    }
}

fn lopsided(ledger: &mut BoundsCheck, runs: usize) {
    let epochs = [6, 10, 12, 14, 20, 36, 60];
    let header: String = epochs.iter().map(|n| format!("{n:>7} ")).collect();
    let shapes = [
        ("normal", Shape::Normal),
        ("heavy tails (t, 3 df)", Shape::Heavy),
        ("10 % dearer by 8 %", Shape::Dearer(0.1, 0.08)),
        ("20 % dearer by 8 %", Shape::Dearer(0.2, 0.08)),
        ("30 % dearer by 8 %", Shape::Dearer(0.3, 0.08)),
        ("30 % dearer by 4 %", Shape::Dearer(0.3, 0.04)),
        ("40 % dearer by 8 %", Shape::Dearer(0.4, 0.08)),
        ("70 % dearer by 8 %", Shape::Dearer(0.7, 0.08)),
        ("exponential", Shape::Exponential),
        ("log-normal, sigma 1", Shape::LogNormal(1.0)),
        ("log-normal, sigma 1.5", Shape::LogNormal(1.5)),
    ];
    println!(
        "Wrong answers on the edge where something strikes the case alone (at most 5.5), and `within` as"
    );
    println!("the signed-rank interval, which needs symmetry, would say it");
    println!("{:<30}{header}", "shape and answer, by epochs");
    type Answer = (&'static str, fn(&lopsided::Answers) -> f64);
    let answers: [Answer; 3] = [
        ("same", |a| a.same),
        ("within", |a| a.within),
        ("over", |a| a.over),
    ];
    for (name, shape) in shapes {
        let said = epochs.map(|n| lopsided::answers(shape, 1.0, n, runs, 12));
        for (answer, get) in answers {
            let row = said.map(|a| ledger.figure(get(&a), 0.0, 0.055)).concat();
            println!("{name:<23}{answer:<7}{row}");
        }
        let row = said.map(|a| format!("{:>7.2} ", 100.0 * a.symmetric));
        println!("{name:<23}(signed){}", row.concat().split_off(1));
    }
    println!("Rightly `within`, where the true cost is this share of the budget");
    for (name, shape) in [("normal", Shape::Normal), ("heavy tails", Shape::Heavy)] {
        for share in [0.0, 0.5, 0.7] {
            let said = epochs.map(|n| lopsided::answers(shape, share, n, runs, 13));
            let [now, signed] = [
                said.map(|a| format!("{:>7.1} ", 100.0 * a.within)).concat(),
                said.map(|a| format!("{:>7.1} ", 100.0 * a.symmetric))
                    .concat(),
            ];
            println!("{name:<16}{share:<7}within {now}");
            println!("{name:<16}{share:<7}(signed){}", &signed[1..]);
        }
    }
}

fn modes(ledger: &mut BoundsCheck, runs: usize) {
    let epochs = [10, 12, 15, 20, 30, 45, 60, 120, 300];
    let header: String = epochs.iter().map(|n| format!("{n:>7} ")).collect();
    println!(
        "Two modes are seen, by epochs, where there is one (at most 2; half delayed at most 5; {} runs)",
        2 * runs
    );
    println!("{:<28}{header}", "shape");
    let one = [
        ("normal", MedianDistribution::Normal),
        (
            "log-normal, sigma 0.05",
            MedianDistribution::LogNormal(0.05),
        ),
        ("log-normal, sigma 0.5", MedianDistribution::LogNormal(0.5)),
        ("heavy tails (t, 5 df)", MedianDistribution::Heavy),
        ("exponential delays", MedianDistribution::Exponential),
        ("half delayed evenly", MedianDistribution::HalfDelayed),
        ("even, over 1 %", MedianDistribution::Even(0.01)),
        ("even, over 10 %", MedianDistribution::Even(0.1)),
        ("drift of 4 %, noise 0.5 %", MedianDistribution::Drift),
    ];
    for (name, shape) in one {
        let seen = epochs.map(|n| claims::two_modes_seen(shape, n, 2 * runs, 5));
        let most = match shape {
            MedianDistribution::HalfDelayed => 0.05,
            _ => 0.02,
        };
        println!(
            "{name:<28}{}",
            seen.map(|share| ledger.figure(share, 0.0, most)).concat()
        );
    }
    println!("where there are two ({} runs)", runs / 4);
    for (distance, share) in [
        (5.0, 0.2),
        (5.0, 0.3),
        (5.0, 0.5),
        (8.0, 0.2),
        (8.0, 0.3),
        (8.0, 0.5),
    ] {
        let name = format!("{distance} sigma apart, share {share}");
        let shape = MedianDistribution::Two(distance, share);
        let seen = epochs.map(|n| claims::two_modes_seen(shape, n, runs / 4, 6));
        println!(
            "{name:<28}{}",
            seen.map(|share| format!("{:>7.1} ", 100.0 * share))
                .concat()
        );
    }
}

fn sessions_as_found(ledger: &mut BoundsCheck, runs: usize) {
    sessions(ledger, runs, Compared::AsFound);
}

fn sessions_undisturbed(ledger: &mut BoundsCheck, runs: usize) {
    sessions(ledger, runs, Compared::Undisturbed);
}

fn sessions_added(ledger: &mut BoundsCheck, runs: usize) {
    sessions(ledger, runs, Compared::Added);
}

fn sessions(ledger: &mut BoundsCheck, runs: usize, compared: Compared) {
    let runs = runs / 5;
    println!(
        "compare, where nothing changed ({runs} runs): coverage of 95 % intervals (at least 93.5),"
    );
    println!(
        "a case said to differ (at most 5), the gate fails (at most 5), half-width of the interval"
    );
    let arrangements = sessions::ARRANGEMENTS.into_iter();
    for arrangement in arrangements.filter(|one| one.compared == compared) {
        println!("{}", arrangement.name);
        println!(
            "  machine                history            coverage  differs   gate  half-width"
        );
        for &machine in arrangement.machines() {
            for history in sessions::HISTORIES {
                let found = sessions::compared(machine, arrangement, history, runs, 7);
                // What neither the sentinel nor the kept sessions show, nothing can allow for.
                let (least, most) = if machine.sentinel_slows {
                    (0.935, 0.05)
                } else {
                    (0.0, 1.0)
                };
                let coverage = ledger.figure(found.coverage, least, 1.0);
                let differs = ledger.figure(found.differs, 0.0, most);
                let gate = ledger.figure(found.gate, 0.0, most);
                let half_width = 100.0 * found.half_width;
                println!(
                    "  {:<22} {:<18}{coverage:>9}{differs:>8}{gate:>8}{half_width:>9.2}",
                    machine.name, history.name
                );
            }
        }
    }
}

fn parts_add_up(ledger: &mut BoundsCheck, runs: usize) {
    let runs = runs / 2;
    println!("Said not to add up, where costs do, family-wise (at most 5; {runs} runs)");
    println!("noise       types   alarms  without tolerance");
    for noise in Noise::ALL {
        for types in [1, 10, 25] {
            let answers = sums::sums(noise, types, 0.0, runs, 10);
            let alarms = ledger.figure(answers.alarms, 0.0, 0.05);
            let strict = 100.0 * answers.strict_alarms;
            println!("{:<12}{types:>5}{alarms:>9}{strict:>19.2}", noise.name());
        }
    }
    println!("Said so of the one among 10 that doesn't, by 5 and 10 % of its total");
    println!("noise        by 5    by 10");
    for noise in Noise::ALL {
        let [five, ten] = [0.05, 0.10].map(|share| sums::sums(noise, 10, share, runs / 5, 11));
        let (five, ten) = (100.0 * five.found, 100.0 * ten.found);
        println!("{:<12}{five:>5.1}{ten:>9.1}", noise.name());
    }
}

fn families(ledger: &mut BoundsCheck, runs: usize) {
    let runs = runs / 5;
    println!("A false verdict on any of 5 quantities, nothing differs (at most 5; {runs} runs)");
    println!("probes  correlation  epochs  one family  a family each");
    for probes in [1, 4, 8, 15] {
        for correlation in [0.0, 0.8] {
            let a = families::false_verdicts(probes, correlation, runs, 14);
            let together = ledger.figure(a.together, 0.0, 0.05);
            let each = 100.0 * a.each;
            println!(
                "{probes:<6}{correlation:>13}{:>8}{together:>12}{each:>14.2}",
                a.epochs
            );
        }
    }
    println!(
        "What it costs: the smallest effect that is found in three of four runs, and the epochs that find it,"
    );
    println!(
        "as multiples of what a family for each quantity needs (20 epochs; 60 epochs; epochs)"
    );
    for probes in [1, 4, 8, 15] {
        let [few, many, epochs] = families::costs(probes);
        println!("{probes:<6}{few:>13.2}{many:>8.2}{epochs:>8.2}");
    }
}

fn rounds(_: &mut BoundsCheck, runs: usize) {
    let runs = runs / 20;
    println!(
        "Width of a difference in the same time, as a multiple of that with a chosen number ({runs} runs)"
    );
    println!("load / round  trial / load scatter  chosen    2      3      5      7");
    for price in [0.2, 1.0, 5.0] {
        for scatter in [0.2, 1.0, 3.0] {
            let w = rounds::widths(price, scatter, runs, 15);
            print!("{price:<14}{scatter:<22}{:<6.1}", w.chosen);
            println!("{}", w.fixed.map(|share| format!("{share:>7.2}")).concat());
        }
    }
    println!(
        "Centre of epochs of 2, 3, 4, 5 trials with delays (5 %, log-normal, sigma 1), against 3 trials, %"
    );
    let shifts = rounds::centres(200 * runs, 16);
    println!(
        "{}",
        shifts
            .map(|shift| format!("{:>7.2}", 100.0 * shift))
            .concat()
    );
}

fn neighbours(ledger: &mut BoundsCheck, runs: usize) {
    let runs = (runs / 25).max(20);
    println!(
        "Undisturbed cost from slices, {runs} runs of 20 epochs (own, difference and net at least 93.5)"
    );
    println!(
        "neighbours       work   known     own  difference      net  half-width   error   5th percentile   as found"
    );
    let kinds = neighbours::Neighbours::ALL.map(|one| (one, 0.935));
    let unnoticed = neighbours::Neighbours::UNNOTICED.map(|one| (one, 0.0));
    for (neighbours, least) in kinds.into_iter().chain(unnoticed) {
        for work in neighbours::WORKS {
            let r = neighbours::reading(neighbours, work, 20, runs, 1);
            let read = if r.known > 0.0 {
                format!(
                    "{} {}     {}     {:>8.2} {:>+8.3}",
                    ledger.figure(r.own, least, 1.0),
                    // So few runs leave 2 % open.
                    ledger.figure(r.difference, least - 0.02, 1.0),
                    ledger.figure(r.net, least, 1.0),
                    r.width,
                    r.bias,
                )
            } else {
                format!("{:>53}", "not known")
            };
            println!(
                "{:<15} {:>5.2} {:>7.1} {read} {:>+10.2} {:>+13.2} ±{:.2}",
                neighbours.name,
                100.0 * work,
                100.0 * r.known,
                r.percentile_bias,
                r.found_bias,
                r.found_width,
            );
        }
    }
}

/// Own work: by itself and beside neighbours, with bounds on what must not be said.
fn own_work(ledger: &mut BoundsCheck, runs: usize) {
    let runs = (runs / 25).max(20);
    println!(
        "Own work ({runs} runs): an undisturbed number is known, its interval holds the true mean (at least 93.5 without \
         bursts, less what no batch contains), the work is named; and what is said of it against a case without: same \
         within 1 % and within 2 % (at most 5, plus what no batch contains), over 2 %, costs more, costs less"
    );
    println!(
        "neighbours   run        work                            truth   known    holds  width   named    same   within    over    more    less"
    );
    let alone = [0, 1].map(|kind| (neighbours::Neighbours::ALL[kind], 1.0, 0.935));
    let beside = [3, 4, 5, 6].map(|kind| (neighbours::Neighbours::ALL[kind], 1.0, 0.0));
    let twice = [(neighbours::Neighbours::ALL[3], 2.0, 0.0)];
    for (neighbours, sensitivity, least) in alone.into_iter().chain(beside).chain(twice) {
        for plan in [own_work::FULL, own_work::QUICK] {
            for (name, work) in own_work::WORKS {
                let a = own_work::answers(work, neighbours, sensitivity, plan, runs, 21);
                let (truth, unseen) = (work.truth(), work.unseen(plan));
                // So few runs leave more open.
                let most = |wrong: bool| if wrong { 0.05 + 1.3 * unseen } else { 1.0 };
                let least = if a.known >= 0.3 {
                    least - 1.3 * unseen
                } else {
                    0.0
                };
                let holds = ledger.figure(a.holds, least, 1.0);
                let same = ledger.figure(a.same, 0.0, most(truth > 1.01));
                let within = ledger.figure(a.within, 0.0, most(truth > 1.02));
                let [known, named, over, more, less] =
                    [a.known, a.named, a.over, a.more, a.less].map(|share| 100.0 * share);
                let kind = if sensitivity > 1.0 {
                    "bursts, twice"
                } else {
                    neighbours.name
                };
                println!(
                    "{kind:<12} {:<10} {name:<30} {truth:>6.3} {known:>7.1} {holds} {:>6.2} {named:>7.1} {same} {within} {over:>7.1} {more:>7.1} {less:>7.1}",
                    plan.name, a.width
                );
            }
        }
    }
}

fn alarm_of_a_watch(ledger: &mut BoundsCheck, runs: usize) {
    let runs = runs.div_ceil(10);
    println!(
        "An alarm at +20 % on services whose cost moves by itself, {runs} runs a figure: the limit is refused before the \
         probe is on;\na probe that does nothing is taken off (at most 2.5), a window is cut off and run again; one that \
         doubles the cost is off within\n2 s, of the runs that are not refused (at least 97.5 where that is half of them)"
    );
    println!(
        "{:22}{:>9}{:>9}{:>9}{:>9}",
        "", "refused", "nothing", "again", "doubled"
    );
    for service in alarm::Service::ALL {
        let nothing = alarm::runs(service, 1.0, 0.2, runs, 31);
        let doubled = alarm::runs(service, 2.0, 0.2, runs, 32);
        let least = if doubled.refused < 0.5 { 0.975 } else { 0.0 };
        println!(
            "{:22}{:>8.1} {}{:>8.1} {}",
            format!("{service:?}"),
            100.0 * nothing.refused,
            ledger.figure(nothing.aborted, 0.0, 0.025),
            100.0 * nothing.cut,
            ledger.figure(doubled.soon, least, 1.0),
        );
    }
}
