//! A network card of this machine: found by its MAC address, and given an IP address.

use std::{fs, io, net::Ipv4Addr, path::PathBuf};

use super::{Mac, Netlink};
use crate::{
    error::{Result, failed},
    mount::{self, MountedFs},
};

const WHAT: &str = "a network card";

/// A network card that sends and receives.
#[derive(Debug)]
pub struct Card {
    sysfs: MountedFs,
    /// The name of its interface.
    name: String,
}

impl Card {
    /// Finds the card with the address `mac`, gives it this address in a network of so many bits, and has it send
    /// and receive. It stays so.
    pub fn up(mac: Mac, address: Ipv4Addr, bits: u8) -> Result<Self> {
        let sysfs = mount::open("sysfs")?;
        let name = named(&sysfs, mac).map_err(failed(WHAT, "finding the one that was given"))?;
        let card = Card { sysfs, name };
        let index = card
            .index()
            .map_err(failed(WHAT, "asking for its number"))?;
        let netlink = Netlink::open().map_err(failed(WHAT, "asking for an address"))?;
        match netlink.add_address(index, address, bits) {
            // It was given before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            given => given.map_err(failed(WHAT, "giving it an address"))?,
        }
        netlink
            .set_up(index)
            .map_err(failed(WHAT, "setting it up"))?;
        Ok(card)
    }

    /// Returns the number of packets that it has received.
    pub fn received(&self) -> Result<u64> {
        self.number("statistics/rx_packets")
            .map_err(failed(WHAT, "asking what it received"))
    }

    fn index(&self) -> io::Result<u32> {
        self.number("ifindex")
    }

    /// A file of sysfs that holds a number.
    fn number<T: std::str::FromStr>(&self, file: &str) -> io::Result<T> {
        let text = fs::read_to_string(interfaces(&self.sysfs).join(&self.name).join(file))?;
        text.trim()
            .parse()
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{file} is {text}")))
    }
}

/// The folder of all interfaces.
fn interfaces(sysfs: &MountedFs) -> PathBuf {
    sysfs.path("class/net")
}

/// The interface that has this address.
fn named(sysfs: &MountedFs, mac: Mac) -> io::Result<String> {
    let wanted = mac.map(|byte| format!("{byte:02x}")).join(":");
    for entry in fs::read_dir(interfaces(sysfs))? {
        let entry = entry?;
        // Some interfaces have none.
        let address = fs::read_to_string(entry.path().join("address")).unwrap_or_default();
        if address.trim() == wanted {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("none has the address {wanted}; is its driver loaded?"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_is_not_there_is_named() {
        if !crate::require::host() {
            return;
        }
        // As no card has it: an address of many.
        let error = Card::up([1, 0, 0, 0, 0, 0xab], Ipv4Addr::new(192, 0, 2, 1), 24);
        let error = error.expect_err("there is none").to_string();
        assert!(error.contains("01:00:00:00:00:ab"), "{error}");
        assert!(error.contains("driver"), "{error}");
    }
}
