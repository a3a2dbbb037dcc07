//! Load from outside a guest, through a port that QEMU's user-mode network forwards (`network = "forwarded"`). The
//! server is in the guest, which requests the load of a window; the client runs on the host, from the host's own
//! definition. This file has what both sides share, and the host's part.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    fs,
    net::{Ipv4Addr, UdpSocket},
    time::Duration,
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Definition, Error, LoadClient, LoadResult, server};
use bpfcost_process::RunContext;

/// The guest's end: a card, its address in QEMU's network, and the port that servers have.
#[derive(Clone, Copy, Debug)]
pub struct GuestEndpoint {
    /// What the card is known by.
    pub mac: [u8; 6],
    /// Its address.
    pub address: Ipv4Addr,
    /// How many bits of it name the network.
    pub bits: u8,
    /// The port there.
    pub port: u16,
}

/// QEMU's user-mode network gives the first guest this address by custom (-netdev user), and cards of guests such
/// names; the port is iperf3's.
pub const END: GuestEndpoint = GuestEndpoint {
    mac: [0x52, 0x54, 0x00, 0x12, 0x34, 0x56],
    address: Ipv4Addr::new(10, 0, 2, 15),
    bits: 24,
    port: 5201,
};

/// A guest has no longer windows: who asks for more would keep the host busy.
const LONGEST_MS: u64 = 60_000;
/// How often a port is looked for that is free for both protocols.
const PORTS: usize = 20;

/// The load of a window, as a guest asks for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadOrder {
    /// Factor values of the case.
    pub factors: BTreeMap<String, String>,
    /// Milliseconds of the window.
    pub window_ms: u64,
    /// Whether it only warms the server.
    pub warm_up: bool,
}

/// Makes load that comes from outside.
pub trait Outside: Debug {
    /// Makes it, and returns the result of a window; `None` for a warm-up. One run of its client may take as
    /// long as `limit`.
    fn load(&self, order: &LoadOrder, limit: Duration) -> Result<Option<LoadResult>>;
}

impl LoadOrder {
    /// Does it, on the host, with the server behind `port`. `factors` are those of the host's own plan.
    pub fn carry_out(
        &self,
        definition: &Definition,
        factors: &BTreeMap<String, String>,
        port: u16,
    ) -> Result<Option<LoadResult>> {
        let client = definition.client(factors)?;
        let mut words = client.command.iter().chain(&client.warm_up);
        if words.any(|word| word.contains("{dir}")) {
            return Err(Error::Definition(format!(
                "a client on the network forwarded runs outside the guest, where there is no \
                 {{dir}}: {}",
                client.command.join(" ")
            ))
            .into());
        }
        if self.window_ms > LONGEST_MS {
            return Err(Error::Definition(format!(
                "a window of {} ms is too long for load from outside the guest: at most \
                 {LONGEST_MS} ms",
                self.window_ms
            ))
            .into());
        }
        let context = RunContext {
            port,
            window_ms: self.window_ms,
            factors: factors.clone(),
            ..RunContext::default()
        };
        let load = LoadClient::new(client);
        if self.warm_up {
            return load.warm_up(&context).map(|()| None);
        }
        let before = dropped(port);
        let mut made = load.run(&context)?;
        // It is spent on a machine that is not measured.
        made.client_ns = None;
        if let Some((before, after)) = before.zip(dropped(port)) {
            let lost = after.saturating_sub(before) as f64;
            made.reading.counts.insert("host_dropped".to_owned(), lost);
        }
        Ok(Some(made))
    }
}

/// A port of 127.0.0.1 on this machine that is free at the moment, for TCP and UDP.
pub fn free_port() -> Result<u16> {
    for _ in 0..PORTS {
        let port = server::free_port()?;
        if UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::Machine("no port is free for both TCP and UDP".to_owned()).into())
}

/// Datagrams dropped so far for lack of room at a port of 127.0.0.1; `None` where the kernel does not report it.
/// Where QEMU listens there, they are those that it did not read in time.
fn dropped(port: u16) -> Option<u64> {
    dropped_at(&fs::read_to_string("/proc/net/udp").ok()?, port)
}

/// The same in a table of /proc/net/udp: addresses are in the machine's byte order, drops in the last column.
fn dropped_at(table: &str, port: u16) -> Option<u64> {
    let address = u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets());
    let at = format!("{address:08X}:{port:04X}");
    let mut sockets = table.lines().skip(1);
    let socket = sockets.find(|line| line.split_whitespace().nth(1) == Some(&at))?;
    socket.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  346: 00000000:1451 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 2 2 0000000000000000 5
 1346: 0100007F:1451 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000000000000000 1603002
";

    #[test]
    #[cfg(target_endian = "little")]
    fn what_a_socket_dropped_is_its_last_column() {
        assert_eq!(dropped_at(TABLE, 0x1451), Some(1_603_002));
        assert_eq!(dropped_at(TABLE, 0x1452), None);
        assert_eq!(dropped_at("", 0x1451), None);
    }

    fn definition(client: &str) -> Definition {
        Definition::parse(&format!(
            "name = 'x'\nabout = ''\noperation = 'datagram'\nnetwork = '{{path}}'\n\
             [[client]]\ncommand = {client}\noutput = 'text'\nops = 1\nwarm-up = ['true']\n\
             [[factor]]\nname = 'path'\nabout = ''\nvalues = ['loopback', 'forwarded']\n\
             [[variant]]\nname = 'nothing'\nabout = ''\nprobe = 'builtin:nothing'"
        ))
        .expect("a definition")
    }

    fn on(path: &str) -> BTreeMap<String, String> {
        [("path".to_owned(), path.to_owned())].into()
    }

    #[test]
    fn cases_are_outside_by_their_network() {
        let definition = definition("['true']");
        assert!(definition.is_outside(&on("forwarded")));
        assert!(!definition.is_outside(&on("loopback")));
        assert!(!definition.is_outside(&BTreeMap::new()));
    }

    #[test]
    fn what_a_guest_may_not_ask_for_is_not_done() {
        let order = |window_ms| LoadOrder {
            factors: on("forwarded"),
            window_ms,
            warm_up: false,
        };
        let refused = |client, window_ms| {
            let made = order(window_ms).carry_out(&definition(client), &on("forwarded"), 1);
            made.expect_err("it is refused").to_string()
        };
        let inside = refused("['cat', '{dir}/file']", 1000);
        assert!(inside.contains("{dir}"), "{inside}");
        let long = refused("['true']", LONGEST_MS + 1);
        assert!(long.contains("too long"), "{long}");
    }

    #[test]
    fn orders_and_answers_survive_the_way() {
        let order = LoadOrder {
            factors: on("forwarded"),
            window_ms: 1000,
            warm_up: true,
        };
        let text = serde_json::to_string(&order).expect("JSON");
        assert_eq!(
            serde_json::from_str::<LoadOrder>(&text).expect("an order"),
            order
        );
    }

    #[test]
    fn a_free_port_is_free_for_both_protocols() {
        let port = free_port().expect("a port");
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("free");
        UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).expect("free");
    }
}
