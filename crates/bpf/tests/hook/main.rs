//! People's own programs at their own hooks: listed, loaded, attached, counted.

#[path = "../require/mod.rs"]
mod require;

mod attached;
mod lab;
mod listed;
