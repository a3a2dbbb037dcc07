//! Traces in which something comes between: interrupts, other events, sleep, an end that is not seen.

use super::*;

/// Between two instructions; behind a call, before the first instruction of what it calls; behind a jump; a fault whose
/// instruction is executed again, and one that goes on elsewhere.
#[test]
fn interrupts_and_faults_are_cut_out() {
    let timer = [
        plain(TIMER),
        call(TIMER + 4),
        returns(HANDLER),
        one(TIMER + 8, Flow::EndOfInterrupt),
    ];
    let fault = [plain(FAULT), one(FAULT + 4, Flow::EndOfInterrupt)];
    let start = PROGRAMS[0];
    let trace = [
        &[call(CALLER), call(HOOKED + 4)][..],
        &timer,
        &[plain(TRAMPOLINE), jump(TRAMPOLINE + 4)],
        &timer,
        &[call(TRAMPOLINE + 8)],
        &[plain(start)],
        &timer,
        &[call(start + 4)],
        &[plain(HELPER)],
        &fault,
        &[plain(HELPER), plain(HELPER + 4)],
        &fault,
        &[
            returns(HELPER + 0x80),
            returns(start + 8),
            returns(TRAMPOLINE + 12),
            plain(HOOKED + 8),
        ],
    ]
    .concat();
    let event = event(function(), &trace);
    // The first came before the event began.
    assert_eq!(event.interrupts, 2 * 4 + 2 * 2);
    let parts = event.parts();
    // The instruction that a fault interrupted was begun twice.
    assert_eq!((parts.dispatch, parts.body, parts.helpers), (4, 3, 4));
}

#[test]
fn programs_at_one_hook_share_its_dispatch() {
    let between = [call(TRAMPOLINE + 4)];
    let lead = [call(CALLER), call(HOOKED + 4), call(TRAMPOLINE)];
    let end = [returns(TRAMPOLINE + 8), plain(HOOKED + 8)];
    let trace = [&lead[..], &run(0), &between, &run(1), &end].concat();
    let trace = read(&[function(), function()], None, &trace);
    for program in &trace.programs {
        assert_eq!(program.events, [parts(3)]);
        assert_eq!(program.typical.others, 5);
    }
    assert_eq!(trace.spent, 3 + 5 + 5, "the dispatch of both once");
}

/// A helper of the first program leads to the hook of the second.
#[test]
fn an_event_within_another_is_not_of_it() {
    let inner = around(
        &[call(HOOKED + 4), call(TRAMPOLINE)],
        1,
        &[returns(TRAMPOLINE + 4)],
    );
    let start = PROGRAMS[0];
    let trace = [
        &[call(CALLER), call(start)][..],
        &[call(HELPER)],
        &inner,
        &[
            returns(HOOKED + 8),
            returns(HELPER + 4),
            returns(start + 4),
            plain(CALLER + 4),
        ],
    ]
    .concat();
    let trace = read(&[Span::Program, function()], None, &trace);
    assert_eq!(trace.spent, 6 + 7);
    let [outer, inner] = trace.programs.try_into().expect("two");
    assert_eq!(inner.events, [parts(2)]);
    let expected = EventParts {
        dispatch: 0,
        body: 2,
        helpers: 4,
    };
    assert_eq!(outer.events, [expected]);
    assert_eq!(outer.typical.others, 7);
}

#[test]
fn where_a_task_sleeps_there_is_no_event() {
    let lead = [call(CALLER), call(HOOKED + 4), call(TRAMPOLINE)];
    let asleep = [
        plain(PROGRAMS[0]),
        call(PROGRAMS[0] + 4),
        call(HELPER),
        plain(SWITCH),
    ];
    let trace = read(
        &[function()],
        None,
        &[&lead[..], &asleep, &[plain(CALLER)]].concat(),
    );
    let program = &trace.programs[0];
    assert_eq!((program.events.len(), program.slept), (0, 1));
}

/// What led to the hook is not known any more: it is that of an fexit. A return probe begins behind the sleep.
#[test]
fn a_function_that_slept_returns_to_its_hook() {
    let asleep = [
        call(CALLER),
        call(HOOKED + 4),
        plain(SWITCH),
        plain(SWITCH + 4),
        returns(SWITCH + 8),
        plain(HOOKED + 0x20),
        returns(HOOKED + 0x24),
    ];
    let by = |hook: u64| {
        let lead = [&asleep[..], &[plain(hook), call(hook + 4)]].concat();
        around(&lead, 0, &[returns(hook + 8), plain(CALLER + 4)])
    };
    let user = [plain(0x40_1000)];
    assert_eq!(event(Span::Return, &by(RETURNS)).parts(), parts(3));
    let mut by_thunk = by(RETURNS);
    let thunk = KERNEL + 0xb000;
    let end = by_thunk.split_off(by_thunk.len() - 2);
    by_thunk.extend([
        jump(RETURNS + 8),
        call(thunk),
        plain(thunk + 0x10),
        returns(thunk + 0x14),
        end[1],
    ]);
    assert_eq!(event(Span::Return, &by_thunk).parts(), parts(6));
    let fexit = [by(TRAMPOLINE), user.to_vec(), by(TRAMPOLINE)].concat();
    let fexit = &read(&[function()], None, &fexit).programs[0];
    assert_eq!(
        (fexit.events.len(), fexit.slept, fexit.unexplained),
        (0, 2, 0)
    );
    // In the next visit, nothing is put down to a sleep, nor is what an interrupt leads to.
    let unknown = around(&[call(CALLER)], 0, &[plain(CALLER + 4)]);
    let unknown = [by(TRAMPOLINE), user.to_vec(), unknown].concat();
    let unknown = &read(&[function()], None, &unknown).programs[0];
    assert_eq!((unknown.slept, unknown.unexplained), (1, 1));
    let end = [one(TIMER + 8, Flow::EndOfInterrupt), plain(HOOKED + 0x20)];
    let interrupt = around(&[plain(TIMER), call(TIMER + 4)], 0, &end);
    let interrupt = [&asleep[..5], &interrupt].concat();
    let interrupt = &read(&[function()], None, &interrupt).programs[0];
    assert_eq!((interrupt.slept, interrupt.unexplained), (0, 1));
}

#[test]
fn a_program_that_no_known_way_leads_to() {
    let trace = around(&[call(CALLER)], 0, &[plain(CALLER + 4)]);
    let program = &read(&[function()], None, &trace).programs[0];
    assert_eq!((program.events.len(), program.unexplained), (0, 1));
}

/// A thunk is a call, whose return address is replaced by the program's.
#[test]
fn a_thunk_leads_to_the_program() {
    let thunk = KERNEL + 0xb000;
    let lead = [
        call(CALLER),
        call(thunk),
        plain(thunk + 0x10),
        returns(thunk + 0x14),
    ];
    let event = event(Span::Program, &around(&lead, 0, &[plain(CALLER + 4)]));
    assert_eq!(event.parts(), OF_RUN);
}

#[test]
fn only_events_in_the_window_count() {
    let event = around(&[call(CALLER)], 0, &[plain(CALLER + 4)]);
    let mark = |at: u64| [call(CALLER + 8), returns(at)];
    let behind = [plain(CALLER + 12)];
    let trace = [
        &event[..],
        &mark(BEGIN),
        &behind,
        &event,
        &event,
        &mark(END),
        &behind,
        &event,
    ]
    .concat();
    let trace = read(&[Span::Program], Some((BEGIN, END)), &trace);
    assert_eq!(trace.programs[0].events.len(), 2);
    // Two events with what is around them, the rest of the first mark, and the call of the second.
    assert_eq!(trace.window, 2 * (5 + 2) + 2 + 1);
}

/// An instruction that a breakpoint replaces is executed in a single step, whose exception is of the event.
#[test]
fn a_single_step_goes_on_with_a_visit() {
    let user = plain(0x40_1000);
    let lead = [user, plain(BREAKPOINT), call(BREAKPOINT + 4)];
    let end = [one(BREAKPOINT + 8, Flow::EndOfInterrupt), user];
    let step = [plain(STEP), one(STEP + 4, Flow::EndOfInterrupt), user];
    let first = around(&lead, 0, &end);
    let behind = [plain(CALLER), plain(CALLER + 4), user];
    let trace = [&first[..], &step, &behind].concat();
    assert_eq!(event(Span::Visit, &trace).parts(), parts(3 + 2));
    // Another exception is not.
    let trace = [&first[..], &behind, &step].concat();
    assert_eq!(event(Span::Visit, &trace).parts(), parts(3));
}

/// The way back is lost: a hook whose end is not seen has no cost.
#[test]
fn an_event_without_an_end_is_not_known() {
    let lead = [call(CALLER), call(HOOKED + 4), call(TRAMPOLINE)];
    let user = plain(0x40_1000);
    for end in [user, one(TRAMPOLINE + 4, Flow::EndOfInterrupt)] {
        let trace = around(&lead, 0, &[end, plain(CALLER + 4), user]);
        let program = &read(&[function()], None, &trace).programs[0];
        assert_eq!(
            (program.events.len(), program.unexplained),
            (0, 1),
            "{end:?}"
        );
    }
}

/// An interrupt at a hook's beginning leads to a program by another way: the hook is not what called it.
#[test]
fn an_interrupt_at_a_hook_does_not_lead_from_it() {
    let lead = [call(CALLER), plain(HOOKED), plain(TIMER), call(TIMER + 4)];
    let end = [
        one(TIMER + 8, Flow::EndOfInterrupt),
        returns(HOOKED + 4),
        plain(CALLER + 4),
    ];
    let program = &read(&[function()], None, &around(&lead, 0, &end)).programs[0];
    assert_eq!((program.events.len(), program.unexplained), (0, 1));
}

/// The first instruction of a program is executed without a call of it.
#[test]
fn a_program_that_nothing_led_to_is_not_known() {
    let branch = one(CALLER, Flow::Branch);
    let trace = [&[branch][..], &run(0), &[plain(CALLER + 4)]].concat();
    let program = &read(&[Span::Program], None, &trace).programs[0];
    assert_eq!((program.events.len(), program.unexplained), (0, 1));
}

/// The cheaper of two is in the middle, with its own parts: they add up.
#[test]
fn the_event_in_the_middle_is_one_that_was() {
    let longer = around(
        &[
            call(CALLER),
            call(HOOKED + 4),
            plain(TRAMPOLINE),
            call(TRAMPOLINE + 4),
        ],
        0,
        &[
            returns(TRAMPOLINE + 8),
            plain(HOOKED + 8),
            returns(HOOKED + 12),
            plain(CALLER + 4),
        ],
    );
    let shorter = around(
        &[call(CALLER), call(HOOKED + 4), call(TRAMPOLINE + 4)],
        0,
        &[
            returns(TRAMPOLINE + 8),
            plain(HOOKED + 8),
            returns(HOOKED + 12),
            plain(CALLER + 4),
        ],
    );
    let trace = [longer, shorter].concat();
    let program = &read(&[function()], None, &trace).programs[0];
    assert_eq!(program.events, [parts(3), parts(2)]);
    assert_eq!(program.middle, Some(parts(2)));
    assert_eq!(program.typical.parts(), parts(2));
}
