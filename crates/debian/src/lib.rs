//! Packages of a Debian archive, fetched without apt and dpkg, on any Linux and by any user.
//!
//! Everything is checked: the description of a suite by its signature, lists by the hashes in it, packages by the
//! hashes in those. This crate knows nothing of what the packages are for.

#![forbid(unsafe_code)]

mod archive;
mod deb;
mod error;
mod fetch;
pub mod fuzz;
mod http;
mod keys;
mod lookup;
mod observer;
pub mod openpgp;
mod packages;
mod release;
mod settings;
mod sources;
mod stanza;
mod time;
mod unpack;
mod url;
mod version;

pub use archive::Archive;
pub use deb::{extract, is_package};
pub use error::Error;
pub use fetch::{Client, Wanted};
pub use observer::Observer;
pub use openpgp::Keyring;
pub use packages::Package;
pub use release::sha256_digits;
pub use sources::mirror;
pub use url::Url;
