//! Numbers and text as people read them, the same everywhere. A leaf: it knows nothing of what the numbers are of.
#![forbid(unsafe_code)]

mod clean;
mod did_you_mean;
pub mod number;

pub use clean::{block, line, printable, wrap};
pub use did_you_mean::suggest;
