//! A load generator: requests to a server on loopback, at a fixed rate whatever the server does (open loop), or as
//! fast as it answers (closed loop).
//!
//! Each request is due at a time that is fixed before the first is sent. Latency counts from that time, even if no
//! connection was free: a server that stalls delays all requests that fall due meanwhile, and all of them are in
//! the percentiles. A closed loop waits with the server and hides that (G. Tene, "How NOT to measure latency",
//! 2015: coordinated omission). At the end all requests are answered and nothing is in flight, so the server's and
//! the probe's own counts can be compared with `ops`.
//!
//! Why own code: wrk, ab and redis-benchmark are closed loops. vegeta, oha and p99gate are open, but speak only
//! HTTP and cost as much CPU as the servers here (a runtime with threads, and a task per request). None speaks both
//! RESP and HTTPS on one schedule. This one is one thread, one epoll, and at most one request per connection.

mod connection;
mod drive;
mod pace;
mod report;
pub mod response;
mod target;

pub use drive::drive;
pub use pace::Pace;
pub use report::Report;
pub use target::LoadTarget;
