//! Closes links in parallel. Each close waits until the kernel no longer uses the link (some 80 ms here). Threads
//! wait at the same time, so eight links take little longer than one.

use std::thread;

use libbpf_rs::Link;

/// Closes all of them, and returns when the kernel has let go of each.
pub(crate) fn close(links: &mut Vec<Link>) {
    thread::scope(|scope| {
        for link in links.drain(..) {
            scope.spawn(move || drop(link));
        }
    });
}
