//! The engine on a scripted experiment and clock: what it runs, in which order, and when it stops.

mod calibration;
mod counts;
mod faults;
mod forecast;
mod mock;
mod precision;
mod resume;
mod rounds;
mod stops;
