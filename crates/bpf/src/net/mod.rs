//! Networks of the tool's own, in namespaces that nobody else is in and that end with whoever holds them,
//! whatever way that is.

mod namespace;
mod netlink;
mod network;

use std::io;

pub(crate) use namespace::Namespace;
pub(crate) use netlink::{End, Mac, Netlink};
pub use network::{Link, Network};

use crate::error::Error;

/// What could not be done, and to what.
pub(crate) fn failed(what: &str, action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Attach {
        what: what.to_owned(),
        action,
        source: source.into(),
    }
}
