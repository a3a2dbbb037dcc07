//! The long form of the simulations: prints what was claimed and how often it held, and fails if a bound
//! is broken. `cargo run --release -p bpfcost-stats --example coverage [-- RUNS [PART]]`

mod claims;
mod noise;
mod sums;

use claims::MedianDistribution;
use noise::Noise;
use std::process::ExitCode;

/// A part of the output, by the name that selects it.
type OutputPart = (&'static str, fn(&mut BoundsCheck, usize));

const PARTS: [OutputPart; 8] = [
    ("coverage", coverage),
    ("alarms", alarms),
    ("detectable", detectable),
    ("planning", planning),
    ("edge", edge),
    ("modes", modes),
    ("sessions", sessions),
    ("sums", parts_add_up),
];

fn main() -> ExitCode {
    let runs = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(10_000_usize);
    let part = std::env::args().nth(2);
    println!("{runs} runs a figure unless said; percent; ! marks a broken bound");

    let mut ledger = BoundsCheck { broken: 0 };
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

/// Prints figures and remembers how many broke their bounds.
struct BoundsCheck {
    broken: usize,
}

impl BoundsCheck {
    /// A share in percent, marked where it is outside `low..=high`.
    fn figure(&mut self, share: f64, low: f64, high: f64) -> String {
        let fine = (low..=high).contains(&share);
        self.broken += usize::from(!fine);
        format!("{:>7.2}{}", 100.0 * share, if fine { ' ' } else { '!' })
    }
}

fn coverage(ledger: &mut BoundsCheck, runs: usize) {
    println!("Coverage of 95 % intervals (own at least 93.5, difference 93.5 to 96.5)");
    println!("noise       epochs      own   difference  pooled trials");
    for noise in Noise::ALL {
        for epochs in [10, 14, 20, 30] {
            let c = claims::coverage(noise, epochs, runs, 1);
            let own = ledger.figure(c.own, 0.935, 1.0);
            let difference = ledger.figure(c.difference, 0.935, 0.965);
            let pooled = 100.0 * c.pooled;
            println!(
                "{:<12}{epochs:>6}{own:>10}{difference:>13}{pooled:>14.2}",
                noise.name()
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

fn modes(ledger: &mut BoundsCheck, runs: usize) {
    let epochs = [10, 12, 15, 20, 30, 45, 60, 120];
    let header: String = epochs.iter().map(|n| format!("{n:>7} ")).collect();
    println!(
        "Two modes are seen, by epochs, where there is one (at most 2; {} runs)",
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
    ];
    for (name, shape) in one {
        let seen = epochs.map(|n| claims::two_modes_seen(shape, n, 2 * runs, 5));
        println!(
            "{name:<28}{}",
            seen.map(|share| ledger.figure(share, 0.0, 0.02)).concat()
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

fn sessions(ledger: &mut BoundsCheck, runs: usize) {
    println!("A difference between sessions whose level scatters by 1.5 %");
    println!("records a side  coverage  false alarms");
    for records in [1, 2, 3, 4, 5, 8] {
        let (coverage, alarms) = claims::sessions(records, runs, 7);
        let coverage = ledger.figure(coverage, 0.935, 1.0);
        let alarms = ledger.figure(alarms, 0.0, 0.05);
        println!("{records:<14}{coverage:>10}{alarms:>14}");
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
