//! A tool for all processes of a server whose workers come and go: each call is a hit or missed, and next to none is missed.

use super::{
    common::{Binary, Target, require, until_restored},
    counting::{Counting, Running},
};

/// Calls in a cycle, and of each child.
const SERVED: u64 = 200;
const OF_CHILD: u64 = 3;
/// Cycles with one server.
const OF_SERVER: usize = 50;

/// Has the server do something. Returns how many calls that took.
fn ask(server: &mut Target, line: &str) -> u64 {
    server.send(line);
    let answer = server.line();
    let (calls, wrong) = answer
        .split_once(' ')
        .unwrap_or_else(|| panic!("it died: {answer:?}"));
    assert_eq!(wrong, "0", "{line}");
    calls.parse().unwrap()
}

/// Attaches to the server, has it do something, and detaches. With `forks`, workers are forked also while two programs are
/// attached, one after the other: those that have one of them are named. Returns the calls, and those that were missed, at entries
/// and at returns.
fn attached(tool: &Counting, server: &mut Target, line: &str, forks: bool) -> (u64, u64) {
    ask(server, if forks { "hold 0" } else { "hold 1" });
    let running = Running::attached(tool.command(server, -1, None), None);
    ask(server, "hold 0");
    let calls = 2 * ask(server, line);
    let end = running.end().unwrap();
    let counts = end.counts;
    let counted = counts.hits + counts.missed;
    if forks && counts.left_out > 0 {
        // It may have served none.
        assert!(counted <= calls, "{line}: {end:?}");
    } else {
        assert_eq!((counted, counts.left_out), (calls, 0), "{line}: {end:?}");
    }
    assert_eq!(end.code, Some(0));
    until_restored(server, "work");
    (calls, counts.missed)
}

fn check_missed((calls, missed): (u64, u64)) {
    println!("{calls} calls, {missed} missed");
    assert!(missed * 1000 <= calls, "{missed} of {calls} calls");
}

fn server() -> (Counting, Binary, Target) {
    let binary = Binary::compile("preforking.c", &[]);
    let server = binary.start(&[]);
    (Counting::compile(), binary, server)
}

fn cycles(number: u64) {
    if !require::host() {
        return;
    }
    let line = format!("serve {SERVED}");
    let (mut calls, mut missed) = (0, 0);
    // Each run leaves memory in the process, which its forks copy.
    for first in (0..number).step_by(OF_SERVER) {
        let (tool, _binary, mut server) = server();
        for cycle in first..number.min(first + OF_SERVER as u64) {
            let one = attached(&tool, &mut server, &line, cycle % 2 == 0);
            (calls, missed) = (calls + one.0, missed + one.1);
        }
    }
    assert_eq!(calls, 2 * SERVED * number);
    check_missed((calls, missed));
}

fn children(number: u64) {
    if !require::host() {
        return;
    }
    let (tool, _binary, mut server) = server();
    let all = attached(&tool, &mut server, &format!("children {number}"), false);
    assert_eq!(all.0, 2 * OF_CHILD * number);
    check_missed(all);
}

#[test]
fn workers_that_come_and_go_are_counted() {
    cycles(8);
}

#[test]
#[ignore = "takes minutes; make endurance runs it"]
fn many_cycles_with_workers_that_come_and_go() {
    cycles(1000);
}

#[test]
fn children_that_soon_end_are_counted() {
    children(300);
}

#[test]
#[ignore = "takes a minute; make endurance runs it"]
fn many_children_that_soon_end() {
    children(10_000);
}
