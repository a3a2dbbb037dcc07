//! The walk against the kernel's helper, on this host, with rules that are right and rules that are wrong.

use std::{
    fs,
    net::{Ipv4Addr, UdpSocket},
};

use super::{KernelSymbols, RuleTable, StackTruth, Timed, TruthCounts};
use crate::{attach::AttachMethod, require};

/// Events that are made for a comparison.
const ROUNDS: usize = 200;

/// System calls, files and packets.
fn stir() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    for _ in 0..ROUNDS {
        socket.send_to(&[1; 32], address).unwrap();
        socket.recv(&mut [0; 32]).unwrap();
        drop(fs::read("/proc/self/status").unwrap());
    }
}

fn compared(truth: &mut StackTruth, event: &str) -> TruthCounts {
    truth.attach(event, Timed::Nothing).unwrap();
    stir();
    truth.detach().unwrap()
}

#[test]
fn the_walk_takes_the_stacks_that_the_helper_takes() {
    if !require::host() {
        return;
    }
    let rules = RuleTable::read(&KernelSymbols::read().unwrap()).unwrap();
    let places = [
        "raw_syscalls:sys_enter",
        "net:netif_receive_skb",
        "kmem:kmem_cache_alloc",
        "kmem:kfree",
    ];
    for method in [AttachMethod::RawTp, AttachMethod::Tracepoint] {
        let mut truth = StackTruth::load(method, places[0], &rules).unwrap();
        for place in places {
            let counts = compared(&mut truth, place);
            let same = counts.equal + counts.unlisted;
            assert!(counts.events as usize >= ROUNDS, "{place}: {counts:?}");
            assert_eq!(same, counts.events, "{method:?} {place}: {counts:?}");
            assert!(
                counts.equal > 0 && counts.frames > counts.events,
                "{counts:?}"
            );
        }
    }
}

/// The comparison can fail: rules that are off by a word are found.
#[test]
fn rules_that_are_wrong_are_found() {
    if !require::host() {
        return;
    }
    let symbols = KernelSymbols::read().unwrap();
    let mut rules = RuleTable::read(&symbols).unwrap();
    rules.self_test().unwrap();
    // `sp_offset` is the low half word of a rule: all frames of 32 bytes become larger.
    for rule in rules.rules.iter_mut().filter(|rule| **rule as u16 == 32) {
        *rule += 8;
    }
    let mut truth = StackTruth::load(AttachMethod::RawTp, "net:netif_receive_skb", &rules).unwrap();
    let counts = compared(&mut truth, "net:netif_receive_skb");
    assert!(counts.different > 0, "{counts:?}");
    let difference = &counts.differences[0];
    assert_ne!(difference.walked, difference.helper);
    assert_eq!(
        counts.equal + counts.unlisted + counts.different,
        counts.events
    );
}

/// Without a single rule, walks are lost at once, and counted as such.
#[test]
fn text_without_rules_ends_a_walk() {
    if !require::host() {
        return;
    }
    let symbols = KernelSymbols::read().unwrap();
    let all = RuleTable::read(&symbols).unwrap();
    let mut none = RuleTable::new(all.base, u64::MAX);
    none.add(all.base, all.generated, []);
    let refused = none.self_test().unwrap_err().to_string();
    for words in ["took other stacks", "bpfcost stack --helper"] {
        assert!(refused.contains(words), "{refused}");
    }
    let mut truth = StackTruth::load(AttachMethod::RawTp, "net:netif_receive_skb", &none).unwrap();
    let counts = compared(&mut truth, "net:netif_receive_skb");
    assert_eq!(counts.different, counts.events, "{counts:?}");
    // Its first address, which is not walked from.
    assert!(counts.losses.lost >= counts.events, "{counts:?}");
    assert_eq!(counts.frames, counts.events, "{counts:?}");
}
