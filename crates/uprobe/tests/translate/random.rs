//! Generated programs.

use std::{env, sync::atomic::Ordering};

use bpfcost_uprobe::translate::Translator;

use crate::{
    assemble::always,
    generator::{self, Maps},
    input::{self, Random},
    require,
    trial::{Bench, CURRENT, Failure, Input, Subject, report_crashes},
};

/// Programs in the short form.
const PROGRAMS: u64 = 4000;
/// Inputs of each program.
const INPUTS: usize = 4;
/// The most programs of a hundred that the verifier may reject: a generator that writes nonsense proves nothing.
const REJECTED_PERCENT: u64 = 10;

fn number(variable: &str, default: u64) -> u64 {
    let value = env::var(variable).ok();
    value.map_or(default, |value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {value}"))
    })
}

#[test]
fn generated_programs_give_the_kernels_results() {
    if !require::host() {
        return;
    }
    report_crashes();
    let programs = number("BPFCOST_TRANSLATE_PROGRAMS", PROGRAMS);
    let first = number("BPFCOST_TRANSLATE_SEED", 1);
    let is_long = programs > PROGRAMS;
    let mut bench = Bench::new().expect("maps and memory can be made");
    let maps = Maps {
        value: bench.value.fd(),
        entries: bench.entries.fd(),
    };
    let best = Translator::of_this_machine();
    let plain = Translator { has_bmi2: false };
    let mut rejected = 0;
    let mut different = Vec::new();
    for seed in first..first + programs {
        CURRENT.store(seed, Ordering::Relaxed);
        let mut random = Random::new(seed);
        let subject = generator::program(&mut random, maps);
        let inputs: Vec<_> = (0..INPUTS).map(|_| input::input(&mut random)).collect();
        let translator = if seed % 4 == 0 { plain } else { best };
        match bench.compare(&translator, &subject, &inputs) {
            Ok(()) => {}
            Err(Failure::Rejected(log)) => {
                rejected += 1;
                if env::var_os("BPFCOST_TRANSLATE_LOG").is_some() {
                    let lines: Vec<&str> = log.lines().collect();
                    eprintln!(
                        "seed {seed}: {}",
                        lines[lines.len().saturating_sub(6)..].join("\n")
                    );
                }
            }
            Err(Failure::Different(how)) => {
                let smaller = shrink(&mut bench, &translator, &subject, &inputs, &how);
                eprintln!("seed {seed} differs: {how}\n{}", listing(&smaller));
                different.push((seed, how));
            }
        }
        if is_long && (seed - first) % 50_000 == 49_999 {
            eprintln!(
                "{} programs, {rejected} rejected, {} different",
                seed - first + 1,
                different.len()
            );
        }
    }
    eprintln!("{programs} programs, {rejected} rejected by the verifier");
    assert!(
        different.is_empty(),
        "{} programs differ: {:?}",
        different.len(),
        &different[..different.len().min(5)]
    );
    assert!(
        rejected * 100 <= programs * REJECTED_PERCENT,
        "the verifier rejected {rejected} of {programs} programs"
    );
}

/// The program with as much as possible replaced by jumps to the next instruction, so that it still differs.
fn shrink(
    bench: &mut Bench,
    translator: &Translator,
    subject: &Subject,
    inputs: &[Input],
    how: &str,
) -> Subject {
    let mut best = subject.clone();
    loop {
        let before = best.instructions.clone();
        for index in 0..best.instructions.len() {
            let mut smaller = best.clone();
            smaller.instructions[index] = always(0);
            if smaller.instructions[index] == best.instructions[index] {
                continue;
            }
            let compared = bench.compare(translator, &smaller, inputs);
            // Another difference may come of the smaller program: of a pointer, or of memory that it no longer fills.
            if matches!(compared, Err(Failure::Different(other)) if other == how) {
                best = smaller;
            }
        }
        if best.instructions == before {
            return best;
        }
    }
}

/// Its instructions but those jumps, one a line.
fn listing(subject: &Subject) -> String {
    let instructions = subject.instructions.iter().enumerate();
    instructions
        .filter(|(_, instruction)| **instruction != always(0))
        .map(|(index, one)| {
            let (code, dst, src, offset, immediate) =
                (one.code, one.dst, one.src, one.offset, one.immediate);
            format!("{index:4}: {code:#04x} r{dst} r{src} {offset:+} {immediate:#x}\n")
        })
        .collect()
}
