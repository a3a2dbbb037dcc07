//! Stacks of received packets, by the helper and by `unwind.bpf.h`: datagrams that this test sends to itself. Every
//! packet of the machine is an event, so there are as many as were sent, or more.

mod require;

use std::{cell::RefCell, collections::BTreeSet, net::UdpSocket, rc::Rc};

use bpfcost_bpf::{
    attach::AttachMethod,
    stack_tracer::{StackDelivery, StackTracer, StackWalker, TracedStacks},
    unwind::KernelSymbols,
};

const PACKETS: u64 = 500;
const EVENT: (AttachMethod, &str) = (AttachMethod::RawTp, "net:netif_receive_skb");

/// Sends so many datagrams to itself, and receives each.
fn packets() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let to = socket.local_addr().expect("its address");
    for _ in 0..PACKETS {
        socket.send_to(b"x", to).expect("it sends");
        socket.recv(&mut [0]).expect("it receives");
    }
}

/// Results of a tracer in two windows with packets, and the stacks that came through its ring buffer.
struct Taken {
    windows: [TracedStacks; 2],
    records: Vec<Vec<u64>>,
    in_tree: Vec<(Vec<u64>, u64)>,
    symbols: KernelSymbols,
}

fn take(
    (method, event): (AttachMethod, &str),
    walker: StackWalker,
    delivery: StackDelivery,
) -> Taken {
    let records = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&records);
    let mut tracer = StackTracer::load(method, event, (walker, delivery), move |addresses| {
        into.borrow_mut().push(addresses.to_vec());
    })
    .expect("it loads");
    let symbols = KernelSymbols::read().expect("symbols");
    let windows = [(), ()].map(|()| {
        tracer.attach().expect("it attaches");
        packets();
        tracer.take().expect("records");
        tracer.detach().expect("counts")
    });
    // Off, it takes nothing.
    packets();
    tracer.take().expect("records");
    Taken {
        windows,
        records: records.take(),
        in_tree: tracer.stacks(),
        symbols,
    }
}

impl Taken {
    /// Names of a stack's functions, without those of BPF itself, which the helper has a frame more of.
    fn names(&self, addresses: &[u64]) -> Vec<String> {
        let names = addresses.iter().map(|address| {
            let symbol = self.symbols.symbol(*address);
            symbol.map_or("?".to_owned(), |symbol| symbol.name.to_owned())
        });
        let is_bpf = |name: &String| name.contains("bpf_");
        names.skip_while(is_bpf).collect()
    }

    fn sum(&self, of: impl Fn(&TracedStacks) -> u64) -> u64 {
        self.windows.iter().map(of).sum()
    }
}

fn check(at: (AttachMethod, &str)) {
    let mut by_walker = Vec::new();
    for walker in [StackWalker::Helper, StackWalker::Manual] {
        for delivery in [
            StackDelivery::Drop,
            StackDelivery::Ring,
            StackDelivery::Count,
        ] {
            if (walker, delivery) == (StackWalker::Helper, StackDelivery::Count) {
                continue;
            }
            let taken = take(at, walker, delivery);
            let context = format!("{at:?} {walker:?} {delivery:?}: {:?}", taken.windows);
            for window in &taken.windows {
                assert!(window.events >= PACKETS, "{context}");
                assert_eq!(window.events, window.delivered + window.lost, "{context}");
                assert_eq!(window.lost, 0, "{context}");
                // In softirq from a system call: the receive path alone is some frames.
                assert!(window.frames >= 5 * window.delivered, "{context}");
            }
            let stacks: Vec<Vec<u64>> = match delivery {
                StackDelivery::Drop => {
                    assert!(taken.records.is_empty() && taken.in_tree.is_empty());
                    continue;
                }
                StackDelivery::Ring => {
                    let frames: usize = taken.records.iter().map(Vec::len).sum();
                    assert_eq!(
                        taken.records.len() as u64,
                        taken.sum(|one| one.delivered),
                        "{context}"
                    );
                    assert_eq!(frames as u64, taken.sum(|one| one.frames), "{context}");
                    taken.records.clone()
                }
                StackDelivery::Count => {
                    let counted: u64 = taken.in_tree.iter().map(|(_, count)| count).sum();
                    assert!(taken.records.is_empty());
                    assert_eq!(counted, taken.sum(|one| one.delivered), "{context}");
                    assert_eq!(counted, taken.sum(|one| one.in_tree), "{context}");
                    taken.in_tree.iter().map(|(one, _)| one.clone()).collect()
                }
            };
            let names: BTreeSet<Vec<String>> = stacks.iter().map(|one| taken.names(one)).collect();
            for stack in &names {
                let receives = |name: &String| name.starts_with("__netif_receive_skb");
                assert!(stack.iter().any(receives), "{context}: {stack:?}");
            }
            by_walker.push(names);
        }
    }
    // By all of them, the stacks of a datagram that this test sent.
    let (first, others) = by_walker.split_first().expect("sets of stacks");
    let of_all = |stack: &&Vec<String>| others.iter().all(|one| one.contains(*stack));
    let common: Vec<_> = first.iter().filter(of_all).collect();
    let sends = |name: &String| name.starts_with("udp_sendmsg");
    assert!(
        common.iter().any(|stack| stack.iter().any(sends)),
        "{by_walker:#?}"
    );
}

#[test]
fn every_packet_has_a_stack_and_an_account() {
    if require::host() {
        check(EVENT);
    }
}

#[test]
fn the_same_at_a_function() {
    if !require::host() {
        return;
    }
    let needs = StackTracer::needs(AttachMethod::Kprobe, StackWalker::Manual);
    for feature in needs {
        if let Some(missing) = feature.missing().expect("an answer") {
            return require::skip_as("features", missing);
        }
    }
    check((AttachMethod::Kprobe, "ip_rcv"));
}

#[test]
fn the_helper_counts_no_stacks() {
    let (method, event) = EVENT;
    let how = (StackWalker::Helper, StackDelivery::Count);
    let refused = StackTracer::load(method, event, how, |_| ());
    assert!(
        refused
            .err()
            .is_some_and(|error| error.to_string().contains("no tree"))
    );
}
