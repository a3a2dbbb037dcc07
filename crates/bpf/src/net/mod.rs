//! Networks of the tool's own, in namespaces that nobody else is in and that end with whoever holds them,
//! whatever way that is; and the card of a guest.

mod card;
mod namespace;
mod netlink;
mod network;

use std::io;

pub use card::Card;
pub(crate) use namespace::Namespace;
pub use netlink::Mac;
pub(crate) use netlink::{End, Netlink};
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
