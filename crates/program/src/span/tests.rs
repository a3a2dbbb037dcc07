//! Traces that are made up, of a kernel with these places.

use bpfcost_bpf::program::{MachineCode, MachineFunction};

use super::{
    Event, EventParts, Flow, Instruction, KernelPlaces, Span, Trace, TraceReader, Watch,
    WatchedProgram,
};

mod disturbed;

const KERNEL: u64 = 0xffff_ffff_8100_0000;
/// A function with a hook, of 0x40 bytes.
const HOOKED: u64 = KERNEL + 0x1000;
const TRAMPOLINE: u64 = KERNEL + 0x2000;
const HANDLER: u64 = KERNEL + 0x3000;
const HELPER: u64 = KERNEL + 0x4000;
const TIMER: u64 = KERNEL + 0x5000;
const FAULT: u64 = KERNEL + 0x6000;
const BREAKPOINT: u64 = KERNEL + 0x6100;
const STEP: u64 = KERNEL + 0x6200;
const SWITCH: u64 = KERNEL + 0x7000;
const RETURNS: u64 = KERNEL + 0x8000;
const CALLER: u64 = KERNEL + 0x9000;
const BEGIN: u64 = KERNEL + 0xa000;
const END: u64 = KERNEL + 0xa100;
/// The programs, of 0x20 bytes and one more function each.
const PROGRAMS: [u64; 2] = [0xffff_ffff_c000_0000, 0xffff_ffff_c000_1000];

/// Every instruction has 4 bytes.
fn one(address: u64, flow: Flow) -> Instruction {
    Instruction {
        address,
        next: address + 4,
        flow,
    }
}

fn plain(address: u64) -> Instruction {
    one(address, Flow::Next)
}

fn call(address: u64) -> Instruction {
    one(address, Flow::Call)
}

fn returns(address: u64) -> Instruction {
    one(address, Flow::Return)
}

fn jump(address: u64) -> Instruction {
    one(address, Flow::Jump(None))
}

/// A run of a program: two instructions, a call of a helper with two, and the return.
fn run(program: usize) -> Vec<Instruction> {
    let start = PROGRAMS[program];
    vec![
        plain(start),
        call(start + 4),
        plain(HELPER),
        returns(HELPER + 4),
        returns(start + 8),
    ]
}

const OF_RUN: EventParts = EventParts {
    dispatch: 0,
    body: 3,
    helpers: 2,
};

/// `lead`, a run of the program, `end`.
fn around(lead: &[Instruction], program: usize, end: &[Instruction]) -> Vec<Instruction> {
    [lead, &run(program), end].concat()
}

fn function() -> Span {
    Span::Function {
        start: HOOKED,
        end: HOOKED + 0x40,
    }
}

fn read(spans: &[Span], window: Option<(u64, u64)>, trace: &[Instruction]) -> Trace {
    let programs = spans.iter().zip(PROGRAMS).map(|(span, start)| {
        let function = |start: u64| MachineFunction {
            start,
            end: start + 0x20,
        };
        WatchedProgram {
            code: MachineCode {
                functions: vec![function(start), function(start + 0x100)],
            },
            spans: vec![span.clone()],
        }
    });
    let watch = Watch {
        programs: programs.collect(),
        kernel: KernelPlaces {
            interrupts: vec![(TIMER, TIMER + 4)],
            exceptions: vec![FAULT, BREAKPOINT],
            breakpoint: Some(BREAKPOINT),
            step: Some(STEP),
            switch: Some(SWITCH),
            returns: vec![RETURNS],
        },
        window,
        calls: true,
    };
    let mut reader = TraceReader::new(watch);
    trace.iter().for_each(|&one| reader.executed(one));
    reader.finish()
}

/// The only event of the first program.
fn event(span: Span, trace: &[Instruction]) -> Event {
    let traced = read(&[span], None, trace).programs.remove(0);
    assert_eq!(
        (traced.events.len(), traced.unexplained, traced.slept),
        (1, 0, 0)
    );
    assert_eq!(traced.typical.parts(), traced.events[0]);
    let calls = traced.typical.calls.iter();
    let spent: u64 = calls.map(|call| call.instructions).sum();
    assert_eq!(spent, traced.events[0].total(), "each is in one call");
    traced.typical
}

fn parts(dispatch: u64) -> EventParts {
    EventParts { dispatch, ..OF_RUN }
}

#[test]
fn a_run_alone() {
    let trace = around(&[plain(CALLER), call(CALLER + 4)], 0, &[plain(CALLER + 8)]);
    let event = event(Span::Program, &trace);
    assert_eq!(event.parts(), OF_RUN);
    assert_eq!(event.called, [(PROGRAMS[0] + 4, 2)].into());
    let own = [(PROGRAMS[0], 1), (PROGRAMS[0] + 4, 1), (PROGRAMS[0] + 8, 1)];
    assert_eq!(event.own, own.into());
    let cut = &trace[..trace.len() - 2];
    let unfinished = &read(&[Span::Program], None, cut).programs[0];
    assert_eq!(unfinished.events, [], "the trace ends in it");
    assert_eq!(unfinished.unexplained, 1);
}

#[test]
fn a_function_of_the_program_called_by_a_helper_is_of_the_body() {
    let (start, callback) = (PROGRAMS[0], PROGRAMS[0] + 0x100);
    let trace = [
        call(CALLER),
        call(start),
        plain(HELPER),
        call(HELPER + 4),
        call(callback),
        returns(HELPER + 0x100),
        returns(callback + 4),
        returns(HELPER + 8),
        returns(start + 4),
        plain(CALLER + 4),
    ];
    let event = event(Span::Program, &trace);
    assert_eq!(event.own.values().sum::<u64>(), 4);
    assert_eq!(event.called, [(start, 3), (callback, 1)].into());
}

/// A kprobe by ftrace, or an fentry: the function calls a trampoline, which calls the program and goes back.
#[test]
fn a_hook_at_a_functions_beginning() {
    let lead = [
        call(CALLER),
        call(HOOKED + 4),
        plain(TRAMPOLINE),
        call(TRAMPOLINE + 4),
    ];
    let end = [
        returns(TRAMPOLINE + 8),
        plain(HOOKED + 8),
        returns(HOOKED + 12),
    ];
    let event = event(function(), &around(&lead, 0, &end));
    assert_eq!(event.parts(), parts(3));
    assert_eq!(event.dispatch[&TRAMPOLINE], 1);
}

/// The function jumps to the trampoline, which jumps back.
#[test]
fn a_hook_that_is_jumped_to() {
    let lead = [
        call(CALLER),
        jump(HOOKED + 4),
        plain(TRAMPOLINE),
        call(TRAMPOLINE + 4),
    ];
    let end = [
        jump(TRAMPOLINE + 8),
        plain(HOOKED + 8),
        returns(HOOKED + 12),
    ];
    assert_eq!(event(function(), &around(&lead, 0, &end)).parts(), parts(3));
    // Or it returns to the function's caller.
    let end = [returns(TRAMPOLINE + 8), plain(CALLER + 4)];
    assert_eq!(event(function(), &around(&lead, 0, &end)).parts(), parts(3));
}

/// An fexit: the trampoline calls the function's own code, and returns to the function's caller.
#[test]
fn the_function_itself_is_not_of_the_event() {
    for way in [call(HOOKED + 4), jump(HOOKED + 4)] {
        let lead = [
            call(CALLER),
            way,
            plain(TRAMPOLINE),
            call(TRAMPOLINE + 4),
            plain(HOOKED + 8),
            call(HOOKED + 12),
            plain(HANDLER),
            returns(HANDLER + 4),
            returns(HOOKED + 16),
            call(TRAMPOLINE + 8),
        ];
        let end = [returns(TRAMPOLINE + 12), plain(CALLER + 4)];
        assert_eq!(event(function(), &around(&lead, 0, &end)).parts(), parts(4));
    }
}

/// An fsession: the program runs before and behind the function, in one event.
#[test]
fn both_runs_of_a_session_are_one_event() {
    let lead = [call(CALLER), call(HOOKED + 4)];
    let between = [
        call(TRAMPOLINE + 4),
        plain(HOOKED + 8),
        returns(HOOKED + 12),
    ];
    let end = [returns(TRAMPOLINE + 12), plain(CALLER + 4)];
    let enter = [call(TRAMPOLINE)];
    let leave = [call(TRAMPOLINE + 8)];
    let first = around(&[&lead[..], &enter].concat(), 0, &between);
    let trace = [first, around(&leave, 0, &end)].concat();
    let expected = EventParts {
        dispatch: 4,
        body: 6,
        helpers: 4,
    };
    assert_eq!(event(function(), &trace).parts(), expected);
}

#[test]
fn a_return_probe() {
    let lead = [
        call(CALLER),
        plain(HOOKED),
        returns(HOOKED + 4),
        plain(RETURNS),
        call(RETURNS + 4),
    ];
    let end = [returns(RETURNS + 8), plain(CALLER + 4)];
    assert_eq!(
        event(Span::Return, &around(&lead, 0, &end)).parts(),
        parts(3)
    );
}

#[test]
fn a_breakpoint_is_a_hook_and_not_an_interrupt_of_it() {
    let lead = [
        call(CALLER),
        plain(HOOKED),
        plain(BREAKPOINT),
        call(BREAKPOINT + 4),
    ];
    let end = [one(BREAKPOINT + 8, Flow::EndOfInterrupt), plain(HOOKED + 4)];
    assert_eq!(event(function(), &around(&lead, 0, &end)).parts(), parts(3));
}

/// The innermost call of what begins a tracepoint's dispatch, and what called it if that is such a function too.
#[test]
fn a_hook_that_functions_lead_to() {
    let span = Span::Call([HANDLER, HANDLER + 0x100].into());
    let lead = [
        call(CALLER),
        call(HANDLER + 0x100),
        plain(HANDLER),
        call(HANDLER + 4),
        plain(HELPER + 0x100),
        call(HELPER + 0x104),
    ];
    let end = [
        returns(HELPER + 0x108),
        returns(HANDLER + 8),
        returns(HANDLER + 0x104),
        plain(CALLER + 4),
    ];
    assert_eq!(event(span, &around(&lead, 0, &end)).parts(), parts(8));
}

/// Functions behind pointers are called by a thunk, and others by a jump at the end of their caller.
#[test]
fn a_jump_leads_to_the_hook() {
    let thunk = HELPER + 0x200;
    let by_thunk = [
        call(CALLER),
        call(thunk),
        plain(thunk + 0x10),
        returns(thunk + 0x14),
    ];
    let by_jump = [call(CALLER), jump(HELPER + 0x100)];
    for (way, around_it) in [(&by_thunk[..], 0), (&by_jump, 1)] {
        let lead = [way, &[plain(HANDLER), call(HANDLER + 4)]].concat();
        let trace = around(&lead, 0, &[returns(HANDLER + 8), plain(CALLER + 4)]);
        let span = Span::Call([HANDLER].into());
        assert_eq!(event(span, &trace).parts(), parts(3), "{way:?}");
        // What jumps there may be such a function itself.
        let span = Span::Call([HANDLER, HELPER + 0x100].into());
        let whole = parts(3 + around_it);
        assert_eq!(event(span, &trace).parts(), whole, "{way:?}");
    }
}

/// All until user mode, however the program was reached.
#[test]
fn a_visit_to_the_kernel() {
    let user = plain(0x40_1000);
    let lead = [user, plain(BREAKPOINT), call(BREAKPOINT + 4)];
    let end = [
        plain(BREAKPOINT + 8),
        one(BREAKPOINT + 12, Flow::EndOfInterrupt),
        user,
    ];
    assert_eq!(
        event(Span::Visit, &around(&lead, 0, &end)).parts(),
        parts(4)
    );
}

#[test]
fn code_that_is_made_for_a_struct_calls_the_program() {
    let thunk = HANDLER + 0x100;
    // By a thunk, as functions behind pointers are called, to code without a name.
    let lead = [
        call(CALLER),
        plain(HANDLER),
        call(HANDLER + 4),
        jump(thunk),
        plain(TRAMPOLINE),
        call(TRAMPOLINE + 4),
    ];
    let end = [returns(TRAMPOLINE + 8), plain(HANDLER + 8)];
    let trace = around(&lead, 0, &end);
    assert_eq!(event(Span::Caller, &trace).parts(), parts(4));
    // Where that call was not seen, nothing is known.
    let cut = read(&[Span::Caller], None, &trace[4..]);
    assert_eq!(cut.programs[0].unexplained, 1);
}

#[test]
fn a_branch_leads_to_a_program_and_to_no_hook() {
    let branch = |address| one(address, Flow::Branch);
    // The dispatcher compares addresses.
    let lead = [
        call(CALLER),
        plain(HANDLER),
        call(HANDLER + 4),
        plain(TRAMPOLINE),
        branch(TRAMPOLINE + 4),
    ];
    let end = [returns(HANDLER + 8), plain(CALLER + 4)];
    let calls = || Span::Call([HANDLER].into());
    assert_eq!(event(calls(), &around(&lead, 0, &end)).parts(), parts(5));
    // One that is not taken, and one within a function's first bytes to its cold part, which calls what runs the program.
    let lead = [
        call(CALLER),
        branch(HOOKED),
        branch(HOOKED + 4),
        call(HANDLER),
        call(TRAMPOLINE),
    ];
    let end = [returns(TRAMPOLINE + 4), returns(HANDLER + 4)];
    let traced = read(&[function()], None, &around(&lead, 0, &end));
    assert_eq!(traced.programs[0].unexplained, 1);
}
