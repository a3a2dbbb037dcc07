//! Networks in namespaces of bpfcost's own, which end with the process that holds them, however it ends; and the
//! network card of a guest.

mod card;
mod namespace;
mod netlink;
mod network;

pub use card::Card;
pub(crate) use namespace::Namespace;
pub use netlink::Mac;
pub(crate) use netlink::{Netlink, VethEnd};
pub use network::{Link, NetNamespaces};

/// Asks for a veth that can't be, in a namespace that ends with the calling thread. The kernel's answer:
/// EADDRNOTAVAIL where it knows what a veth is.
pub(crate) fn refused_veth() -> std::io::Result<()> {
    Namespace::here()?;
    Netlink::open()?.make_impossible_veth()
}
