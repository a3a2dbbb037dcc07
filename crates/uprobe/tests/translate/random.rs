//! Generated programs.

use std::{env, os::fd::AsRawFd as _, sync::atomic::Ordering};

use bpfcost_uprobe::translate::{
    Backend, Instruction, KernelImage, MapLayout as _, Translator, without_dead_code,
};

use crate::{
    assemble::{ALU, ALU64, always},
    generator::{self, Maps},
    input::{self, Random},
    require,
    trial::{Bench, CURRENT, Failure, Input, Subject, VALUES_OFFSET, report_crashes},
};

/// Programs in the short form.
const PROGRAMS: u64 = 3000;
/// The same, by the kernel's image.
const IMAGES: u64 = 500;
/// Number of times the long form says how far it is.
const PROGRESS: u64 = 50_000;
/// The search ends at this many programs that differ.
const MAX_DIFFERENT: usize = 5;
/// Inputs of each program.
const INPUTS: usize = 4;
/// The most programs of a hundred that the verifier may reject: a generator that writes nonsense proves nothing.
const REJECTED_PERCENT: u64 = 10;

pub(crate) fn number(variable: &str, default: u64) -> u64 {
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
    let programs = number("BPFCOST_TRANSLATE_PROGRAMS", PROGRAMS);
    let best = Translator::of_this_machine();
    let plain = Translator { has_bmi2: false };
    let outcome = generate(programs, |seed| if seed % 4 == 0 { &plain } else { &best });
    let compared = programs - outcome.rejected;
    assert!(
        outcome.with_dead_code * 4 >= compared && outcome.with_constants * 4 >= compared,
        "few programs have dead code or constants: {outcome:?}"
    );
    assert_eq!(
        outcome.without_image, 0,
        "the translator is not the kernel's image"
    );
}

/// The kernel's machine code in this process: what the comparison itself adds, it adds here too.
#[test]
fn generated_programs_give_their_results_through_the_kernels_image() {
    if !require::host() {
        return;
    }
    let image = match KernelImage::of_this_kernel() {
        Ok(image) => image,
        Err(error) => return require::skip(error),
    };
    if image.values_offset() != VALUES_OFFSET {
        let offset = image.values_offset();
        return require::skip(format!(
            "this kernel's arrays have their values at {offset:#x}"
        ));
    }
    let programs = number("BPFCOST_TRANSLATE_IMAGES", IMAGES);
    let outcome = generate(programs, |_| &image);
    let moved = programs - outcome.rejected - outcome.without_image;
    eprintln!("{moved} ran as the kernel's machine code");
    assert!(
        moved * 2 >= programs,
        "only {moved} of {programs} images could be moved"
    );
}

#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Programs that the verifier rejected.
    rejected: u64,
    /// Programs whose image could not be moved.
    without_image: u64,
    /// Programs with dead code, and instructions of these.
    with_dead_code: u64,
    dead: u64,
    /// Programs with loads of constants that are moves.
    with_constants: u64,
}

impl Outcome {
    /// Counts what a program has that is not translated as it is.
    fn count(&mut self, bench: &Bench, subject: &Subject) {
        let reduced = without_dead_code(&subject.instructions, &|fd| bench.constants(fd));
        let pairs = || subject.instructions.iter().zip(&reduced);
        let changed = pairs().filter(|(before, after)| before != after);
        let dead = changed.filter(|(_, after)| **after == always(0)).count() as u64;
        let is_move = |(before, after): (&Instruction, &Instruction)| {
            before != after && matches!(after.code & 7, ALU | ALU64)
        };
        self.with_constants += u64::from(pairs().any(is_move));
        self.with_dead_code += u64::from(dead > 0);
        self.dead += dead;
    }
}

/// Compares this many programs, each by the backend of its seed. Fails where one differs.
fn generate<'a>(programs: u64, backend: impl Fn(u64) -> &'a dyn Backend) -> Outcome {
    report_crashes();
    let first = number("BPFCOST_TRANSLATE_SEED", 1);
    let mut bench = Bench::new().expect("maps and memory can be made");
    let maps = Maps {
        value: bench.value.fd(),
        entries: bench.entries.fd(),
        constants: bench.constant_map.as_raw_fd(),
    };
    let mut outcome = Outcome::default();
    let mut different = Vec::new();
    for seed in first..first + programs {
        CURRENT.store(seed, Ordering::Relaxed);
        let mut random = Random::new(seed);
        let subject = generator::program(&mut random, maps);
        let inputs: Vec<_> = (0..INPUTS).map(|_| input::input(&mut random)).collect();
        match bench.compare(backend(seed), &subject, &inputs) {
            Ok(()) => outcome.count(&bench, &subject),
            Err(Failure::NoImage(why)) => {
                outcome.without_image += 1;
                log(seed, &why);
            }
            Err(Failure::Rejected(why)) => {
                outcome.rejected += 1;
                log(seed, &why);
            }
            Err(Failure::Different(how)) => {
                if different.is_empty() {
                    let smaller = shrink(&mut bench, backend(seed), &subject, &inputs, &how);
                    eprintln!("seed {seed}, shortened:\n{}", listing(&smaller));
                }
                eprintln!("seed {seed} differs: {how}");
                different.push((seed, how));
                if different.len() == MAX_DIFFERENT {
                    break;
                }
            }
        }
        if (seed - first) % PROGRESS == PROGRESS - 1 {
            let done = seed - first + 1;
            eprintln!(
                "{done} programs, {outcome:?}, {} different",
                different.len()
            );
        }
    }
    eprintln!("{programs} programs, {outcome:?}");
    assert!(different.is_empty(), "programs differ: {different:?}");
    let Outcome { rejected, .. } = outcome;
    assert!(
        rejected * 100 <= programs * REJECTED_PERCENT,
        "the verifier rejected {rejected} of {programs} programs"
    );
    outcome
}

/// The end of a reason for no comparison, where these are asked for.
fn log(seed: u64, why: &str) {
    if env::var_os("BPFCOST_TRANSLATE_LOG").is_some() {
        let lines: Vec<&str> = why.lines().collect();
        eprintln!(
            "seed {seed}: {}",
            lines[lines.len().saturating_sub(6)..].join("\n")
        );
    }
}

/// The program with as much as possible replaced by jumps to the next instruction, so that it still differs.
fn shrink(
    bench: &mut Bench,
    backend: &dyn Backend,
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
            let compared = bench.compare(backend, &smaller, inputs);
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

/// Returns the instructions but those jumps, one a line.
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
