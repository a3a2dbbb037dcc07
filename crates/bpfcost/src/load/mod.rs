//! Load: requests to a server on loopback, at a fixed rate whatever the server does (open loop), or as fast as
//! it answers (closed loop).
//!
//! Each request has a time at which it is due, given before the first is sent. Latency counts from then, also
//! where no connection was free: a server that stalls delays all requests that fall due meanwhile, and all of
//! them are in the percentiles. A closed loop waits with the server and hides that (G. Tene, "How NOT to
//! measure latency", 2015: coordinated omission). All requests are answered when it ends: nothing is in flight,
//! so that a server's and a probe's own counts can be held against `ops`.
//!
//! Why own code: wrk, ab and redis-benchmark are closed loops; vegeta, oha and p99gate are open, but speak HTTP
//! alone and cost as much CPU as the servers here (a runtime with threads, and a task a request); nothing speaks
//! RESP and HTTPS by one schedule. Here it is one thread, one epoll, and at most one request a connection.

mod answer;
mod connection;
mod drive;
mod pace;
mod report;
mod target;

pub(crate) use drive::drive;
pub(crate) use pace::Pace;
pub(crate) use report::Report;
pub(crate) use target::Target;
