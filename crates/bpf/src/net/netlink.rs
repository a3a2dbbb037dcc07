//! Questions and requests to the kernel about interfaces (rtnetlink(7)).

use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsFd as _, AsRawFd as _},
};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
    NlasIterator,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::RouteType,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::Namespace;

/// An interface's address on its wire.
pub type Mac = [u8; 6];

/// One end of a veth.
#[derive(Clone, Copy)]
pub(crate) struct VethEnd<'a> {
    /// The kernel's number of the interface.
    pub(crate) index: u32,
    pub(crate) name: &'a str,
    pub(crate) mac: Mac,
}

/// A socket for requests about the namespace in which it was opened.
pub(crate) struct Netlink(Socket);

impl Netlink {
    /// Opens one for the calling thread's namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink(socket))
    }

    /// Makes a veth, its second end `beyond` where that is. Interfaces get the numbers of its ends.
    pub(crate) fn make_veth(
        &self,
        ends: [VethEnd<'_>; 2],
        beyond: Option<&Namespace>,
    ) -> io::Result<()> {
        let [mut one, mut other] = ends.map(link);
        let beyond = beyond.map(|namespace| LinkAttribute::NetNsFd(namespace.as_fd().as_raw_fd()));
        other.attributes.extend(beyond);
        let pair = InfoData::Veth(InfoVeth::Peer(other));
        one.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(pair),
        ]));
        self.request(RouteNetlinkMessage::NewLink(one), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Asks for a veth with an address that stands for many: the kernel's veth refuses it.
    pub(crate) fn make_impossible_veth(&self) -> io::Result<()> {
        const OF_MANY: Mac = [1, 0, 0, 0, 0, 0];
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::Address(OF_MANY.to_vec()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]),
        ];
        self.request(
            RouteNetlinkMessage::NewLink(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Has an interface send and receive.
    pub(crate) fn set_up(&self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Deletes an interface, and with it the other end of its veth.
    pub(crate) fn delete(&self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.request(RouteNetlinkMessage::DelLink(message), 0)
    }

    /// Gives an interface an address, and the network of that length.
    pub(crate) fn add_address(&self, index: u32, address: Ipv4Addr, length: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = length;
        message.header.index = index;
        message.attributes = vec![
            AddressAttribute::Local(address.into()),
            AddressAttribute::Address(address.into()),
        ];
        self.request(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Adds a permanent neighbour entry, so that there are no ARP requests.
    pub(crate) fn add_neighbour(&self, index: u32, address: Ipv4Addr, mac: Mac) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        self.request(
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_EXCL,
        )
    }

    /// Returns the number of packets that an interface dropped because they were another machine's; `None` where the
    /// kernel doesn't report it (before Linux 5.19).
    pub(crate) fn strangers_dropped(&self, index: u32) -> io::Result<Option<u64>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.send(RouteNetlinkMessage::GetLink(message), 0)?;
        let (answer, _) = self.0.recv_from_full()?;
        refusal(&answer)?;
        Ok(stranger_count(&answer))
    }

    /// Asks for something to be done, and waits for the kernel's answer.
    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, flags | NLM_F_ACK)?;
        let (answer, _) = self.0.recv_from_full()?;
        refusal(&answer)
    }

    fn send(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0).map(drop)
    }
}

fn link(end: VethEnd<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = end.index;
    message.attributes = vec![
        LinkAttribute::IfName(end.name.to_owned()),
        LinkAttribute::Address(end.mac.to_vec()),
    ];
    message
}

/// The error that an answer is, where it is one.
fn refusal(answer: &[u8]) -> io::Result<()> {
    /// NLMSG_ERROR, also where there is none.
    const ERROR: [u8; 2] = 2u16.to_ne_bytes();
    if answer.get(4..6) != Some(&ERROR) {
        return Ok(());
    }
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    match message.payload {
        NetlinkPayload::Error(error) if error.raw_code() != 0 => Err(error.to_io()),
        _ => Ok(()),
    }
}

/// Finds `rx_otherhost_dropped` in the kernel's reply about an interface. All else in it is skipped:
/// newer kernels send more than any library knows.
fn stranger_count(answer: &[u8]) -> Option<u64> {
    /// `struct nlmsghdr` and `struct ifinfomsg`.
    const HEADERS: usize = 16 + 16;
    /// IFLA_STATS64, and the place in `struct rtnl_link_stats64`.
    const STATISTICS: u16 = 23;
    const PLACE: usize = 24 * 8;
    let attributes = answer.get(HEADERS..)?;
    let statistics = NlasIterator::new(attributes)
        .map_while(std::result::Result::ok)
        .find(|attribute| attribute.kind() == STATISTICS)?;
    let count = statistics.value().get(PLACE..PLACE + 8)?;
    count.try_into().ok().map(u64::from_ne_bytes)
}
