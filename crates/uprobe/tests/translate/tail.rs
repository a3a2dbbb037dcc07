//! Generated programs that call each other by tail calls, in the kernel and here.

use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    sync::atomic::Ordering,
};

use bpfcost_uprobe::translate::{
    Backend as _, Error, MAX_TAIL_CALLS, MapLayout, MapPlace, ProbeContext, Program, Translator,
    helpers::MapDescriptor, most_stack,
};

use crate::{
    assemble::{call, exit, map, mov, mov_imm},
    decode,
    generator::{self, Maps},
    input::{self, Random},
    kernel, require,
    trial::{Bench, CURRENT, Input, Subject, difference, report_crashes},
};

/// Groups of programs, and programs in each.
const GROUPS: u64 = 600;
const PROGRAMS: usize = 4;
const INPUTS: usize = 4;
/// The array has more slots than there are programs: some are empty.
const SLOTS: u32 = 7;
/// A program's code is far from the next one's.
const DISTANCE: usize = 128 << 10;
/// Context that the kernel gives.
const CONTEXT_BYTES: usize = 96;
/// The most groups of a hundred of which the verifier may reject a program.
const REJECTED_PERCENT: u64 = 10;

/// The array of programs beside the maps.
struct Layout<'a> {
    bench: &'a Bench,
    array: i32,
    descriptor: &'a [u8],
}

impl MapLayout for Layout<'_> {
    fn constants(&self, fd: i32) -> Option<Vec<u8>> {
        self.bench.constants(fd)
    }

    fn place(&self, fd: i32) -> Result<MapPlace, Error> {
        if fd != self.array {
            return self.bench.place(fd);
        }
        Ok(MapPlace {
            handle: self.descriptor.as_ptr() as u64,
            array: None,
            arena: None,
        })
    }
}

/// Returns whether the kernel counts tail calls to empty slots: before Linux 6.14 or so.
fn counts_empty_slots() -> bool {
    let array = kernel::program_array(2).expect("an array can be made");
    let tail_call = |slot| {
        let [low, high] = map(2, array.as_raw_fd());
        [mov(1, 6), low, high, mov_imm(3, slot), call(12)]
    };
    let mut caller = vec![mov(6, 1)];
    caller.extend((0..MAX_TAIL_CALLS).flat_map(|_| tail_call(0)));
    caller.extend(tail_call(1));
    caller.extend([mov_imm(0, 0), exit()]);
    let caller = kernel::load_raw(&caller, None).expect("the verifier accepts it");
    let called = kernel::load_raw(&[mov_imm(0, 1), exit()], None).expect("so it does here");
    kernel::set_slot(&array, 1, &called).expect("the slot can be set");
    kernel::run(&caller, &mut [0; CONTEXT_BYTES]).expect("it can be run") == 0
}

/// Counts of tail calls in all runs.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    rejected: u64,
    runs: u64,
    with_calls: u64,
    at_limit: u64,
}

/// One group: the first program runs, which calls the others, and itself.
fn compare(
    bench: &mut Bench,
    array: &OwnedFd,
    subjects: &[Subject],
    slots: &[usize],
    inputs: &[Input],
    seen: &mut Seen,
) -> Result<(), String> {
    let mut programs = Vec::new();
    for subject in subjects {
        let types = (&bench.btf, &*subject.functions);
        match kernel::load_raw(&subject.instructions, Some(types)) {
            Ok(program) => programs.push(program),
            Err(why) => {
                if std::env::var_os("BPFCOST_TRANSLATE_LOG").is_some() {
                    eprintln!("{why}");
                }
                seen.rejected += 1;
                return Ok(());
            }
        }
    }
    let mut table = [0_u64; SLOTS as usize];
    let descriptor = MapDescriptor::programs(table.as_mut_ptr() as u64, SLOTS).to_bytes();
    let mut codes = Vec::new();
    for (index, (subject, fd)) in subjects.iter().zip(&programs).enumerate() {
        let program = Program {
            instructions: &subject.instructions,
            fd: fd.as_raw_fd(),
        };
        let at = bench.machine.address() + (index * DISTANCE) as u64;
        let layout = Layout {
            bench,
            array: array.as_raw_fd(),
            descriptor: &descriptor,
        };
        let translator = Translator {
            has_bmi2: index % 2 == 0,
        };
        let code = translator.translate(&program, at, &bench.helpers, &layout);
        let code = code.map_err(|error| error.to_string())?;
        if let Some(why) = decode::program_violation(&code, at) {
            return Err(why);
        }
        bench.machine.put_at(index * DISTANCE, &code.bytes);
        codes.push(code);
    }
    for (slot, &index) in slots.iter().enumerate() {
        kernel::set_slot(array, slot as u32, &programs[index]).expect("the slot can be set");
        let at = bench.machine.address() + (index * DISTANCE) as u64;
        // SAFETY: the table lives, and no program runs now.
        unsafe {
            let slot = table.as_mut_ptr().add(slot);
            slot.write_volatile(at + u64::from(codes[index].tail_entry));
        }
    }
    let most = most_stack(codes.iter()) as usize;
    for (index, input) in inputs.iter().enumerate() {
        let short = Input {
            context: input.context[..CONTEXT_BYTES].to_vec(),
            ..input.clone()
        };
        let expected = bench.in_kernel(&programs[0], &short);
        // The count of an earlier run is behind it.
        let (output, outcome) = bench.in_process(input, index == 0);
        let count = output.context[ProbeContext::TAIL_CALLS_OFFSET as usize..][..4].try_into();
        let count = u32::from_le_bytes(count.expect("4 bytes"));
        seen.runs += 1;
        seen.with_calls += u64::from(count > 0);
        seen.at_limit += u64::from(count == MAX_TAIL_CALLS);
        if count > MAX_TAIL_CALLS {
            return Err(format!("{count} tail calls"));
        }
        if !outcome.kept_registers {
            return Err("a register was not kept".to_owned());
        }
        if outcome.stack_bytes > most {
            return Err(format!(
                "{} bytes of stack, not {most}",
                outcome.stack_bytes
            ));
        }
        let output = output.with_context(&expected);
        if expected != output {
            return Err(difference(&expected, &output));
        }
    }
    Ok(())
}

#[test]
fn generated_tail_calls_give_the_kernels_results() {
    if !require::host() {
        return;
    }
    report_crashes();
    let mut bench = Bench::new().expect("maps and memory can be made");
    let maps = Maps {
        value: bench.value.fd(),
        entries: bench.entries.fd(),
        constants: bench.constant_map.as_raw_fd(),
    };
    let mut seen = Seen::default();
    let has_empty_slots = !counts_empty_slots();
    for seed in 1..=GROUPS {
        CURRENT.store(seed, Ordering::Relaxed);
        let mut random = Random::new(seed);
        let array = kernel::program_array(SLOTS).expect("an array can be made");
        let fd = array.as_raw_fd();
        let subjects: Vec<Subject> = (0..PROGRAMS)
            .map(|_| generator::tail_caller(&mut random, maps, fd))
            .collect();
        let filled = match has_empty_slots {
            true => random.below(u64::from(SLOTS)),
            false => SLOTS.into(),
        };
        let slots: Vec<usize> = (0..filled)
            .map(|_| random.below(PROGRAMS as u64) as usize)
            .collect();
        let inputs: Vec<Input> = (0..INPUTS).map(|_| input::input(&mut random)).collect();
        let compared = compare(&mut bench, &array, &subjects, &slots, &inputs, &mut seen);
        assert_eq!(compared, Ok(()), "seed {seed}");
    }
    eprintln!("{GROUPS} groups, {seen:?}");
    assert!(seen.rejected * 100 <= GROUPS * REJECTED_PERCENT, "{seen:?}");
    assert!(seen.with_calls * 4 > seen.runs, "{seen:?}");
    assert!(seen.at_limit > 20, "{seen:?}");
}
