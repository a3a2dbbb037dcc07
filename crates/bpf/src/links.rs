//! Links that are let go together. Closing one waits until the kernel is surely done with it (some 80 ms here), and
//! those who wait at the same time wait for the same: eight threads take little longer than one.

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
