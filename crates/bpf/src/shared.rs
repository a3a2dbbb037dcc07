//! Types that BPF programs share with this crate, with the names that they have in `bpf/`. A test compares each with the
//! types in the compiled object.

#![allow(non_camel_case_types, unsafe_code)]

use std::mem::{size_of, zeroed};

use crate::plain::Plain;

/// Defines types of an object, which are plain values.
macro_rules! shared {
    ($($object:literal: $($(#[$about:meta])* $vis:vis struct $name:ident { $($(#[$note:meta])* $field:ident: $type:ty),* $(,)? })*)*) => {
        $($(
            $(#[$about])*
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            $vis struct $name {
                $($(#[$note])* $vis $field: $type),*
            }

            // SAFETY: integers, arrays of them and plain values; the next line shows that there is nothing between them.
            unsafe impl Plain for $name {}
            const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*);

            impl Default for $name {
                fn default() -> Self {
                    // SAFETY: every bit pattern of a plain value is one.
                    unsafe { zeroed() }
                }
            }
        )*)*

        /// Each type: object, name, size, and the offset of each field.
        #[cfg(test)]
        fn types() -> Vec<(&'static str, &'static str, usize, Vec<(&'static str, usize)>)> {
            vec![$($((
                $object,
                stringify!($name),
                size_of::<$name>(),
                vec![$((stringify!($field), std::mem::offset_of!($name, $field))),*],
            )),*),*]
        }
    };
}

shared! {
    "counter":
    pub(crate) struct counter_counts {
        hits: u64,
        other_hits: u64,
        busy_ns: u64,
    }

    "l7":
    pub(crate) struct l7_count {
        lost: u64,
        switches: u64,
    }
    pub(crate) struct l7_event {
        connection: u64,
        time_ns: u64,
        goroutine: u64,
        length: u64,
        process: u32,
        tls: u32,
        kind: u32,
        kept: u32,
        payload: [u8; 512],
    }

    "probe":
    /// Section of variables of the object.
    pub(crate) struct bss {
        errors: u64,
        stack_id: i64,
        hits: u64,
        drops: u64,
        other_hits: u64,
        function: u64,
    }

    "sslsniff":
    pub(crate) struct sslsniff_counts {
        hits: u64,
        calls: [u64; 2],
        bytes: [u64; 2],
        lost: [u64; 2],
    }
    pub(crate) struct sslsniff_head {
        time_ns: u64,
        took_ns: u64,
        connection: u64,
        offset: u64,
        process: u32,
        thread: u32,
        length: u32,
        written: u32,
    }

    "stack":
    pub(crate) struct unwind_rule {
        sp_offset: i16,
        bp_offset: i16,
        sp: u8,
        bp: u8,
        kind: u8,
        exact: u8,
    }
    pub(crate) struct unwind_node {
        ip: u64,
        step: u32,
        next: u32,
        parent: u32,
        bp_place: i32,
        rule: unwind_rule,
        next_turn: u32,
        depth: u32,
        count: u64,
        cut: u64,
        turn: u32,
        spare: u32,
    }
    pub(crate) struct unwind_state {
        base: u64,
        generated: u64,
        ranges: u32,
        keeps_frames: u32,
        known: u32,
        roots: u32,
        used: u64,
        lost: u64,
        full: u64,
        stale: u64,
        changes: u32,
        zero: u32,
    }
    pub(crate) struct unwind_stack {
        depth: u32,
        end: u32,
        ip: [u64; 128],
    }

    "stack_counter":
    pub(crate) struct stack_counter_counts {
        events: u64,
        counted: u64,
        reported: u64,
        lost: u64,
    }
    pub(crate) struct stack_counter_event {
        leaf: u64,
        ns: u64,
        process: u32,
        thread: u32,
        cpu: u32,
        depth: u32,
        comm: [i8; 16],
    }

    "stack_tracer":
    pub(crate) struct stack_tracer_counts {
        events: u64,
        delivered: u64,
        lost: u64,
        frames: u64,
    }

    "unwind_truth":
    pub(crate) struct truth_counts {
        events: u64,
        equal: u64,
        unlisted: u64,
        different: u64,
        nested: u64,
        unheard: u64,
        ns: u64,
        frames: u64,
        deepest: u64,
    }
    pub(crate) struct truth_stacks {
        helper_depth: u64,
        walked: unwind_stack,
        helper: [u64; 128],
    }

    "xdp_lb":
    /// An IPv6 address, or an IPv4 address in its first word.
    pub struct address {
        /// In network byte order.
        word: [u32; 4],
    }
    /// A flow, as tables of flows have it.
    pub struct flow_key {
        /// Source address.
        source: address,
        /// Destination address.
        destination: address,
        /// In network byte order.
        source_port: u16,
        /// In network byte order.
        destination_port: u16,
        /// Protocol number of IP.
        protocol: u8,
        /// Zero.
        pad: [u8; 3],
    }
    /// Destination of a flow.
    pub struct lru_entry {
        /// Time of the last packet, in ns of the kernel's clock.
        last_use_ns: u64,
        /// Number of the server.
        real: u32,
        /// Zero.
        pad: u32,
    }
    /// An address and port that packets are balanced for.
    pub struct vip_key {
        /// The address.
        address: address,
        /// In network byte order.
        port: u16,
        /// Protocol number of IP.
        protocol: u8,
        /// Zero.
        pad: u8,
    }
    /// Treatment of packets for such an address.
    pub struct vip {
        /// Flags.
        flags: u32,
        /// Number of its ring.
        number: u32,
    }
    /// A server.
    pub struct real {
        /// The address.
        address: address,
        /// Flags.
        flags: u32,
    }
    /// Settings of the balancer.
    pub struct control {
        /// Hardware address that packets are sent to.
        router_mac: [u8; 6],
        /// Zero.
        pad: [u8; 2],
        /// Number of the ring whose packets are counted.
        watched_vip: u32,
    }
    /// Packets that were seen.
    pub struct traffic {
        /// Packets.
        packets: u64,
        /// Their bytes.
        bytes: u64,
    }
    /// New connections in the present second.
    pub struct flood {
        /// Beginning of the second, in ns of the kernel's clock.
        second_start_ns: u64,
        /// Connections since then.
        connections: u64,
    }
    pub(crate) struct replayed {
        action: u32,
        length: u32,
        packet: [u8; 136],
    }
}

/// Kinds of calls of `l7`.
pub(crate) mod l7_kind {
    pub(crate) const L7_READ: u32 = 0;
    pub(crate) const L7_WRITE: u32 = 1;
    pub(crate) const L7_CLOSE: u32 = 2;
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::{
        HasSize as _,
        types::{DataSec, Enum, MemberAttr, Struct, Var},
    };

    use super::*;
    use crate::object::OpenNamed;

    #[test]
    fn types_are_those_of_the_objects() {
        for (object, name, size, fields) in types() {
            let open = OpenNamed::open(object).expect("an object");
            let btf = open.types().expect("its types");
            let (found_size, found) = if name == "bss" {
                let section = btf
                    .type_by_name::<DataSec<'_>>(".bss")
                    .expect("its section");
                let found: Vec<_> = section
                    .iter()
                    .map(|variable| {
                        let named = btf.type_by_id::<Var<'_>>(variable.ty);
                        let named = named.expect("a variable").name().expect("a name");
                        (
                            named.to_string_lossy().into_owned(),
                            variable.offset as usize,
                        )
                    })
                    .collect();
                (section.len(), found)
            } else {
                let found = btf
                    .type_by_name::<Struct<'_>>(name)
                    .unwrap_or_else(|| panic!("{name}"));
                let fields = found.iter().map(|member| {
                    let MemberAttr::Normal { offset } = member.attr else {
                        panic!("{name} has bit fields");
                    };
                    let named = member.name.expect("a name");
                    (named.to_string_lossy().into_owned(), offset as usize / 8)
                });
                (found.size(), fields.collect())
            };
            let expected: Vec<_> = fields
                .iter()
                .map(|(field, at)| ((*field).to_owned(), *at))
                .collect();
            assert_eq!(found, expected, "{name}");
            if name != "bss" {
                assert_eq!(found_size, size, "{name}");
            }
        }
    }

    #[test]
    fn kinds_are_those_of_the_object() {
        let open = OpenNamed::open("l7").expect("an object");
        let btf = open.types().expect("its types");
        let kinds = btf.type_by_name::<Enum<'_>>("l7_kind").expect("an enum");
        let kinds: Vec<_> = kinds
            .iter()
            .map(|kind| {
                (
                    kind.name.expect("a name").to_string_lossy().into_owned(),
                    kind.value,
                )
            })
            .collect();
        let expected = [
            ("L7_READ", l7_kind::L7_READ),
            ("L7_WRITE", l7_kind::L7_WRITE),
            ("L7_CLOSE", l7_kind::L7_CLOSE),
        ];
        assert_eq!(
            kinds,
            expected.map(|(name, value)| (name.to_owned(), value.into()))
        );
    }
}
