//! A server that stalls once, for a time that is known: what an open and a closed loop make of that.

use std::{thread, time::Duration};

use super::{
    load, number,
    server::{SET, Server, plain},
};

/// Length of the stall.
const STALL: Duration = Duration::from_millis(300);
/// The request at which it does.
const AT: u64 = 100;

fn stalling() -> Server {
    Server::start(SET, u64::MAX, plain, |before| {
        if before == AT {
            thread::sleep(STALL);
        }
        Some(b"+OK\r\n".to_vec())
    })
}

#[test]
fn an_open_loop_shows_what_a_closed_one_hides() {
    // 500 requests, one every 2 ms: 150 fall due without an answer, and 100 of them at least 100 ms before the
    // stall is over. So every tenth has waited as long, whatever else the machine does.
    let server = stalling();
    let open = load(&format!(
        "redis://127.0.0.1:{}/set/3 --rate 500 --seconds 1 --connections 1",
        server.port
    ));
    assert_eq!(number(&open, "/ops"), 500.0);
    assert!(number(&open, "/latency_us/p90") >= 100e3, "{open}");
    assert!(number(&open, "/latency_us/max") >= 299e3, "{open}");
    // They were sent late too, for there was one connection.
    assert!(number(&open, "/late") >= 0.2, "{open}");

    // As many requests to the same server, each after the answer before: one of them has waited.
    let server = stalling();
    let closed = load(&format!(
        "redis://127.0.0.1:{}/set/3 --requests 500 --connections 1",
        server.port
    ));
    assert_eq!(number(&closed, "/ops"), 500.0);
    assert!(number(&closed, "/latency_us/max") >= 299e3, "{closed}");
    assert!(number(&closed, "/latency_us/p95") < 100e3, "{closed}");
    assert_eq!(number(&closed, "/late"), 0.0);
    assert!(closed.get("rate").is_none(), "{closed}");
}

#[test]
fn a_rate_that_is_too_much_ends_all_the_same() {
    let server = Server::start(SET, u64::MAX, plain, |_| {
        thread::sleep(Duration::from_millis(5));
        Some(b"+OK\r\n".to_vec())
    });
    // 2 connections, 5 ms an answer: 400 a second at the most, of 4000. Twice the time is given.
    let report = load(&format!(
        "redis://127.0.0.1:{}/set/3 --rate 4000 --seconds 0.2 --connections 2",
        server.port
    ));
    let (ops, unsent) = (number(&report, "/ops"), number(&report, "/unsent"));
    assert_eq!(ops + unsent, 800.0, "{report}");
    assert!(unsent > 600.0, "{report}");
    assert!(number(&report, "/late") > 0.9, "{report}");
    let requests = server.requests.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(ops, requests as f64, "{report}");
}
