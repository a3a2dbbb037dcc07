//! The long form of the simulations: prints what was claimed and how often it held, and fails if a bound
//! is broken. `cargo run --release -p bpfcost-stats --example coverage [-- RUNS]`

mod claims;
mod noise;

use claims::Shape;
use noise::Noise;
use std::process::ExitCode;

/// Prints figures and remembers whether one broke its bound.
struct Ledger {
    broken: usize,
}

impl Ledger {
    /// A figure in percent, marked where it is outside `low..=high` (shares).
    fn figure(&mut self, value: f64, low: f64, high: f64) -> String {
        let fine = (low..=high).contains(&value);
        self.broken += usize::from(!fine);
        format!("{:>6.2}{}", 100.0 * value, if fine { ' ' } else { '!' })
    }
}

fn main() -> ExitCode {
    let runs = std::env::args()
        .nth(1)
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(10_000_usize);
    let part = std::env::args().nth(2).unwrap_or_default();
    let wanted = |name: &str| part.is_empty() || part == name;
    let mut ledger = Ledger { broken: 0 };
    println!("{runs} runs a figure; percent; ! marks a broken bound\n");

    if wanted("coverage") {
        println!("Coverage of 95 % intervals (own at least 93.5, difference 93.5 to 96.5)");
        println!(
            "{:<12}{:>7}{:>9}{:>12}{:>16}",
            "noise", "epochs", "own", "difference", "pooled trials"
        );
        for noise in Noise::ALL {
            for epochs in [10, 14, 20, 30] {
                let c = claims::coverage(noise, epochs, runs, 1);
                println!(
                    "{:<12}{epochs:>7}{:>10}{:>12}{:>15.2}",
                    noise.name(),
                    ledger.figure(c.own, 0.935, 1.0),
                    ledger.figure(c.difference, 0.935, 0.965),
                    100.0 * c.pooled,
                );
            }
        }
    }

    if wanted("alarms") {
        println!("\nFalse alarms of whole A/A runs, family-wise (at most 5)");
        println!(
            "{:<12}{:>12}{:>14}{:>15}{:>8}",
            "noise", "comparisons", "family-wise", "without same", "epochs"
        );
        for noise in Noise::ALL {
            for comparisons in [1, 5, 24] {
                let a = claims::false_alarms(noise, comparisons, runs, 2);
                println!(
                    "{:<12}{comparisons:>12}{:>14}{:>15}{:>8.1}",
                    noise.name(),
                    ledger.figure(a.family_wise, 0.0, 0.05),
                    ledger.figure(a.without_same, 0.0, 0.05),
                    a.epochs,
                );
            }
        }
    }

    if wanted("detectable") {
        println!("\nAn effect of the size called detectable is found (65 to 85)");
        println!(
            "{:<12}{:>12}{:>8}{:>8}",
            "noise", "comparisons", "epochs", "found"
        );
        for noise in Noise::ALL {
            for (comparisons, epochs) in [
                (1, 10),
                (1, 20),
                (5, 14),
                (5, 28),
                (24, 12),
                (24, 24),
                (24, 46),
            ] {
                let found = claims::found_at_detectable(noise, comparisons, epochs, runs / 5, 3);
                println!(
                    "{:<12}{comparisons:>12}{epochs:>8}{:>9}",
                    noise.name(),
                    ledger.figure(found, 0.65, 0.85)
                );
            }
        }
        println!("\nThe same, planned from the spread before any epoch (65 to 85)");
        for (comparisons, epochs) in [(1, 10), (1, 30), (5, 20), (24, 12), (24, 24)] {
            let found = claims::found_as_planned(comparisons, epochs, runs / 5, 9);
            println!(
                "{:<12}{comparisons:>12}{epochs:>8}{:>9}",
                "normal",
                ledger.figure(found, 0.65, 0.85)
            );
        }
        println!(
            "\nAn effect of 2 % is found after the epochs a run of 14 said it takes (65 to 90)"
        );
        println!(
            "{:<12}{:>12}{:>8}{:>8}",
            "noise", "comparisons", "epochs", "found"
        );
        for noise in Noise::ALL {
            for comparisons in [1, 5, 24] {
                let (found, epochs) =
                    claims::found_when_resolved(noise, comparisons, 14, runs / 10, 4);
                println!(
                    "{:<12}{comparisons:>12}{epochs:>8.1}{:>9}",
                    noise.name(),
                    ledger.figure(found, 0.65, 0.90)
                );
            }
        }
    }

    if wanted("edge") {
        println!(
            "\nWrong answers where the true cost is exactly the margin and the budget (at most 5)"
        );
        println!(
            "{:<12}{:>7}{:>9}{:>9}{:>9}",
            "noise", "epochs", "same", "within", "over"
        );
        for noise in Noise::ALL {
            for epochs in [10, 20, 40] {
                let wrong = claims::on_the_edge(noise, epochs, runs, 8);
                let [same, within, over] = wrong.map(|share| ledger.figure(share, 0.0, 0.055));
                println!(
                    "{:<12}{epochs:>7}{same:>10}{within:>9}{over:>9}",
                    noise.name()
                );
            }
        }
    }

    if wanted("modes") {
        println!("\nTwo modes are seen where there is one (at most 2)");
        let epochs = [10, 12, 15, 20, 30, 45, 60, 120];
        print!("{:<32}", "shape");
        epochs.iter().for_each(|n| print!("{n:>8}"));
        println!();
        let one = [
            ("normal", Shape::Normal),
            ("log-normal, sigma 0.05", Shape::LogNormal(0.05)),
            ("log-normal, sigma 0.5", Shape::LogNormal(0.5)),
            ("heavy tails (t, 5 df)", Shape::Heavy),
        ];
        for (name, shape) in one {
            print!("{name:<32}");
            for n in epochs {
                print!(
                    "{:>8}",
                    ledger.figure(claims::two_modes_seen(shape, n, 2 * runs, 5), 0.0, 0.02)
                );
            }
            println!();
        }
        println!("Two modes are seen where there are two");
        for (distance, share) in [
            (5.0, 0.2),
            (5.0, 0.3),
            (5.0, 0.5),
            (8.0, 0.2),
            (8.0, 0.3),
            (8.0, 0.5),
        ] {
            print!("{:<32}", format!("{distance} sigma apart, share {share}"));
            for n in epochs {
                let seen = claims::two_modes_seen(Shape::Two(distance, share), n, runs / 4, 6);
                print!("{:>7.1} ", 100.0 * seen);
            }
            println!();
        }
    }

    if wanted("sessions") {
        println!("\nA difference between sessions, level scattering by 1.5 %");
        println!(
            "{:<18}{:>10}{:>14}",
            "records a side", "coverage", "false alarms"
        );
        for n in [1, 2, 3, 4, 5, 8] {
            let (coverage, alarms) = claims::sessions(n, runs, 7);
            println!(
                "{n:<18}{:>10}{:>14}",
                ledger.figure(coverage, 0.935, 1.0),
                ledger.figure(alarms, 0.0, 0.05)
            );
        }
    }

    if ledger.broken > 0 {
        println!("\n{} figures break their bounds", ledger.broken);
        return ExitCode::FAILURE;
    }
    println!("\nall bounds hold");
    ExitCode::SUCCESS
}
