//! Probes at instructions inside of functions, where flags, registers and the red zone are in use.

mod common;

use bpfcost_uprobe::process::{
    Counts, Function, Hits, Image, Inside, Memory, Probe, Program, Runtime, Site, When,
};
use common::{Binary, Target, program, wait_until};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// Number of times each thread calls each function in a round.
const CALLS: u64 = 320;
const THREADS: u64 = 4;

fn start(mode: &str) -> Target {
    Binary::compile("inside.c", &[]).start(&[&THREADS.to_string(), mode, &CALLS.to_string()])
}

fn function(process: &Target, name: &str) -> Function {
    Image::of_program(process.pid())
        .unwrap()
        .function(name)
        .unwrap()
}

fn instructions(function: &Function) -> Vec<Instruction> {
    Decoder::with_ip(64, &function.code, 0, DecoderOptions::NONE)
        .iter()
        .collect()
}

fn at(offset: u64, program: Program) -> Inside {
    Inside {
        offset,
        program,
        semaphore: None,
    }
}

fn probe<'a>(function: &'a Function, inside: &'a [Inside]) -> Probe<'a> {
    Probe {
        function,
        entry: None,
        returns: None,
        inside,
    }
}

fn sum(counts: Counts) -> u64 {
    counts.hits + counts.missed
}

/// The hits of a probe whose one instruction is the entry, or is not.
fn only(hits: Hits) -> u64 {
    sum(hits.entry) + sum(hits.inside)
}

/// Returns how often a function's instruction is executed in a round.
fn executions(name: &str, all: &[Instruction], offset: u64) -> u64 {
    let jump = |mnemonic| *all.iter().find(|one| one.mnemonic() == mnemonic).unwrap();
    let behind = |jump: Instruction| jump.next_ip()..jump.near_branch_target();
    let input = |i: u64| {
        let more = if i & 1 == 1 { 2 } else { 1 << 63 };
        (i % 16)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(more) as i64
    };
    let calls = match name {
        "mixed" => {
            let back = jump(Mnemonic::Jne);
            let greater = (0..CALLS).filter(|&i| input(i + 1) > input(i)).count() as u64;
            if behind(jump(Mnemonic::Jle)).contains(&offset) {
                5 * greater
            } else if (back.near_branch_target()..=back.ip()).contains(&offset) {
                5 * CALLS
            } else {
                CALLS
            }
        }
        "known" => {
            let (odd, even) = (behind(jump(Mnemonic::Je)), behind(jump(Mnemonic::Jmp)));
            if odd.contains(&offset) || even.contains(&offset) {
                CALLS / 2
            } else {
                CALLS
            }
        }
        _ => CALLS,
    };
    THREADS * calls
}

/// Probes each instruction of the functions in turn, from before the first call of a round until after its last.
/// Returns how many there were.
fn every_instruction(mode: &str, check: impl Fn(u64, u64)) -> usize {
    let mut process = start(mode);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    let wild = program::wild(&mut runtime);
    let mut probed = 0;
    for name in ["mixed", "known", "armed"] {
        let function = function(&process, name);
        let all = instructions(&function);
        for offset in all.iter().map(Instruction::ip) {
            if let Err(error) = Site::at(&function, offset) {
                println!("{error}");
                continue;
            }
            let inside = [at(offset, wild)];
            let attachment = runtime.attach(&[probe(&function, &inside)]).unwrap();
            let (_, wrong) = process.stop();
            assert_eq!(wrong, 0, "{name}+{offset:#x}");
            let hits = runtime.detach(attachment).unwrap()[0];
            println!("{name}+{offset:#x}: {hits:?}");
            check(only(hits), executions(name, &all, offset));
            function.check(&memory).unwrap();
            probed += 1;
        }
    }
    assert_eq!(process.stop().1, 0);
    probed
}

#[test]
fn every_execution_of_every_instruction_is_counted() {
    let probed = every_instruction("", |hits, executions| assert_eq!(hits, executions));
    assert!(probed > 60, "{probed}");
}

#[test]
fn every_instruction_is_probed_while_threads_and_handlers_execute_it() {
    for mode in ["b", "bt"] {
        every_instruction(mode, |hits, executions| assert!(hits >= executions));
    }
}

#[test]
fn several_instructions_are_probed_at_once() {
    let mut process = start("");
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let wild = program::wild(&mut runtime);
    let function = function(&process, "mixed");
    let all = instructions(&function);
    let (mut inside, mut end, mut expected) = (Vec::new(), 0, 0);
    for offset in all.iter().map(Instruction::ip).skip(1) {
        let Ok(site) = Site::at(&function, offset) else {
            continue;
        };
        if site.address >= end {
            inside.push(at(offset, wild));
            expected += executions("mixed", &all, offset);
            end = site.end();
        }
    }
    assert!(inside.len() > 8, "{inside:?}");
    let attachment = runtime.attach(&[probe(&function, &inside)]).unwrap();
    assert_eq!(process.stop().1, 0);
    assert_eq!(sum(runtime.detach(attachment).unwrap()[0].inside), expected);
}

#[test]
fn a_program_has_the_registers_and_flags_of_the_instruction() {
    for mode in ["", "bt"] {
        let mut process = start(mode);
        let mut runtime = Runtime::open(process.pid()).unwrap();
        let function = function(&process, "known");
        let offset = instructions(&function)
            .iter()
            .find(|one| one.mnemonic() == Mnemonic::Nop)
            .unwrap()
            .ip();
        let seen = process.address(0);
        let check = program::check_known(&mut runtime, seen, function.address + offset);
        let inside = [at(offset, check)];
        // An entry's probe in between finds the flags in its frame as it needs them.
        let both = Probe {
            entry: Some(program::wild(&mut runtime)),
            ..probe(&function, &inside)
        };
        let attachment = runtime.attach(&[both]).unwrap();
        for _ in 0..10 {
            assert_eq!(process.stop().1, 0);
        }
        let hits = runtime.detach(attachment).unwrap()[0];
        assert!(hits.inside.hits >= 10 * THREADS * CALLS / 2, "{hits:?}");
        let memory = Memory::open(process.pid()).unwrap();
        assert_eq!(memory.read_u64(seen).unwrap(), 0, "{mode}");
    }
}

#[test]
fn a_ret_is_probed_with_the_registers_that_it_has() {
    let mut process = start("");
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let function = function(&process, "mixed");
    let ret = *instructions(&function)
        .iter()
        .find(|one| one.flow_control() == FlowControl::Return)
        .unwrap();
    let image = Image::of_program(process.pid()).unwrap();
    let code = image.mapping(function.address).unwrap();
    let (seen, address) = (process.address(0), function.address + ret.ip());
    let check = program::check_ret(&mut runtime, seen, address, code.start..code.end);
    let site = Site::at(&function, ret.ip()).unwrap();
    assert_eq!((site.when, site.probed()), (When::Inside, address));
    let inside = [at(ret.ip(), check)];
    let attachment = runtime.attach(&[probe(&function, &inside)]).unwrap();
    assert_eq!(process.stop().1, 0);
    let hits = runtime.detach(attachment).unwrap()[0];
    assert_eq!(sum(hits.inside), THREADS * CALLS);
    // The same RET as a return.
    let as_return = Probe {
        returns: Some(program::check_return(&mut runtime, seen)),
        ..probe(&function, &[])
    };
    let attachment = runtime.attach(&[as_return]).unwrap();
    assert_eq!(process.stop().1, 0);
    let hits = runtime.detach(attachment).unwrap()[0];
    assert_eq!(sum(hits.returns), THREADS * CALLS);
    let memory = Memory::open(process.pid()).unwrap();
    assert_eq!(memory.read_u64(seen).unwrap(), 0);
}

#[test]
fn a_thread_in_an_earlier_probe_returns_into_none_of_the_next_ones_bytes() {
    let mut process = Binary::compile("inside.c", &[]).start(&["1", "", "1"]);
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    let function = function(&process, "mixed");
    let go = process.address(0);
    let (wait, wild) = (program::wait(&mut runtime, go), program::wild(&mut runtime));
    let sites: Vec<Site> = instructions(&function)
        .iter()
        .skip(1)
        .filter_map(|one| Site::at(&function, one.ip()).ok())
        .collect();
    let mut pairs = 0;
    for (first, second) in sites
        .iter()
        .flat_map(|one| sites.iter().map(move |two| (one, two)))
    {
        if !second.is_inside(first.end()) {
            continue;
        }
        memory.write(go, &[0; 8]).unwrap();
        let offset = |site: &Site| site.probed() - function.address;
        let inside = [at(offset(first), wait)];
        let attachment = runtime.attach(&[probe(&function, &inside)]).unwrap();
        process.send("go");
        wait_until(|| runtime.hits(&attachment)[0].inside.hits == 1);
        runtime.detach(attachment).unwrap();
        let inside = [at(offset(second), wild)];
        let attachment = runtime.attach(&[probe(&function, &inside)]).unwrap();
        memory.write(go, &[1; 8]).unwrap();
        assert_eq!(process.line(), "1 0", "{first:?}, then {second:?}");
        runtime.detach(attachment).unwrap();
        pairs += 1;
        // Not beyond that: the first one's code leads to the function again.
        memory.write(go, &[0; 8]).unwrap();
        let inside = [at(offset(first), wait)];
        let attachment = runtime.attach(&[probe(&function, &inside)]).unwrap();
        memory.write(go, &[1; 8]).unwrap();
        assert_eq!(process.stop(), (1, 0));
        runtime.detach(attachment).unwrap();
    }
    assert!(pairs > 3, "{pairs}");
}

#[test]
fn entries_returns_and_insides_of_several_functions_come_in_one_stop() {
    let mut process = start("bt");
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    let wild = program::wild(&mut runtime);
    let functions = ["mixed", "known", "armed"].map(|name| function(&process, name));
    let chosen = functions.each_ref().map(|function| {
        let mut end = Site::entry(function).unwrap().end();
        let last = Site::returns(function).unwrap().sites[0].address;
        let offsets = instructions(function).into_iter().map(|one| one.ip());
        let free = offsets.filter_map(|offset| {
            let site = Site::at(function, offset).ok()?;
            let fits = site.address >= end && site.end() <= last;
            if fits {
                end = site.end();
            }
            fits.then(|| at(offset, wild))
        });
        free.take(2).collect::<Vec<_>>()
    });
    assert!(chosen.iter().any(|inside| inside.len() == 2), "{chosen:?}");
    let probes = [0, 1, 2].map(|index| Probe {
        entry: Some(wild),
        returns: Some(wild),
        ..probe(&functions[index], &chosen[index])
    });
    for round in 0..10 {
        // Others at the same places, of which some are there twice.
        let more = [&probes[..], &[probe(&functions[0], &chosen[0])]].concat();
        let mut attachments = vec![runtime.attach(&probes).unwrap()];
        attachments.push(runtime.attach(&more).unwrap());
        assert_eq!(process.stop().1, 0);
        if round % 2 == 0 {
            attachments.reverse();
        }
        for attachment in attachments {
            let all = runtime.detach(attachment).unwrap();
            for (hits, inside) in all.iter().zip(&chosen) {
                assert!(sum(hits.entry) >= THREADS * CALLS, "{hits:?}");
                assert!(sum(hits.returns) >= THREADS * CALLS, "{hits:?}");
                assert_eq!(sum(hits.inside) > 0, !inside.is_empty(), "{hits:?}");
            }
        }
        for function in &functions {
            function.check(&memory).unwrap();
        }
    }
}

#[test]
fn what_overlaps_is_refused() {
    let process = start("");
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let wild = program::wild(&mut runtime);
    let function = function(&process, "armed");
    // mov (5 bytes), shl (3), nop.
    let inside = [at(5, wild), at(8, wild)];
    let error = runtime.attach(&[probe(&function, &inside)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "armed can't be probed: the jumps for +0x5 and +0x8 would overlap\n  use a kernel uprobe for it"
    );
}

#[test]
fn jumps_from_outside_of_the_function_are_known() {
    let process = start("");
    let function = function(&process, "partly");
    let all = instructions(&function);
    let nop = *all
        .iter()
        .find(|one| one.mnemonic() == Mnemonic::Nop)
        .unwrap();
    assert_eq!(function.entrances, [function.address + nop.next_ip()]);
    let error = Site::at(&function, nop.ip()).unwrap_err().to_string();
    assert!(
        error.contains("a branch leads into the 5 bytes there"),
        "{error}"
    );
    // To its first byte, it may.
    let site = Site::at(&function, nop.next_ip()).unwrap();
    assert_eq!(site.when, When::Inside);
}
