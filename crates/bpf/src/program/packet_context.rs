//! Fields of a packet's context that the kernel's test run takes beside its bytes: `mark` of an skb, `ingress_ifindex` of an
//! XDP frame.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::ProgramKind;
use crate::run::BesidePacket;

/// Bytes of `struct __sk_buff` and of `struct xdp_md`.
const SKB_BYTES: usize = 192;
const XDP_BYTES: usize = 24;
/// Offset of the packet's end in `struct xdp_md`: its length, as it begins at 0.
const XDP_END: usize = 4;
/// The largest index of a network interface.
const MAX_INDEX: u64 = i32::MAX as u64;

/// A field of a context.
struct Field {
    name: &'static str,
    /// Offset and size, in bytes.
    at: usize,
    bytes: usize,
    most: u64,
}

const fn field(name: &'static str, at: usize, bytes: usize, most: u64) -> Field {
    Field {
        name,
        at,
        bytes,
        most,
    }
}

/// Those of an skb that `bpf_prog_test_run_skb` takes.
const SKB: [Field; 14] = [
    field("mark", 8, 4, u32::MAX as u64),
    field("priority", 32, 4, u32::MAX as u64),
    field("ingress_ifindex", 36, 4, MAX_INDEX),
    field("ifindex", 40, 4, MAX_INDEX),
    field("cb[0]", 48, 4, u32::MAX as u64),
    field("cb[1]", 52, 4, u32::MAX as u64),
    field("cb[2]", 56, 4, u32::MAX as u64),
    field("cb[3]", 60, 4, u32::MAX as u64),
    field("cb[4]", 64, 4, u32::MAX as u64),
    field("tstamp", 152, 8, u64::MAX),
    field("wire_len", 160, 4, 1 << 16),
    field("gso_segs", 164, 4, u16::MAX as u64),
    field("gso_size", 176, 4, u16::MAX as u64),
    field("hwtstamp", 184, 8, u64::MAX),
];

/// Those of an XDP frame that `bpf_prog_test_run_xdp` takes.
const XDP: [Field; 2] = [
    field("ingress_ifindex", 12, 4, MAX_INDEX),
    field("rx_queue_index", 16, 4, u32::MAX as u64),
];

/// Values of fields, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PacketContext(BTreeMap<String, u64>);

/// The fields that programs of a type have.
fn fields(kind: ProgramKind) -> &'static [Field] {
    match kind {
        ProgramKind::Xdp => &XDP,
        ProgramKind::Tc | ProgramKind::CgroupSkb | ProgramKind::SocketFilter => &SKB,
        ProgramKind::RawTracepoint | ProgramKind::Syscall => &[],
    }
}

/// The names of the fields of a type, in a sentence.
fn names(kind: ProgramKind) -> String {
    let names: Vec<&str> = fields(kind).iter().map(|field| field.name).collect();
    match names.is_empty() {
        true => format!(
            "{} programs get all of their context from --input",
            kind.word()
        ),
        false => format!("{} programs take {}", kind.word(), names.join(", ")),
    }
}

impl PacketContext {
    /// Adds the fields of `NAME=VALUE,…` for programs of these types, or returns why it can't.
    pub fn add(&mut self, words: &str, kinds: &[ProgramKind]) -> Result<(), String> {
        let taken = || {
            let names: Vec<String> = kinds.iter().map(|kind| names(*kind)).collect();
            names.join("\n  ")
        };
        for word in words.split(',') {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("{word}: write FIELD=VALUE\n  {}", taken()))?;
            let mut own = kinds.iter().flat_map(|kind| fields(*kind));
            let Some(field) = own.find(|field| field.name == name) else {
                let mut all = SKB.iter().chain(&XDP);
                let why = if all.any(|field| field.name == name) {
                    format!("{name} is a field of packets of other programs")
                } else {
                    format!("there is no field {name} that a test run takes")
                };
                return Err(format!("{why}\n  {}", taken()));
            };
            let number = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => value.parse(),
            };
            let number = number.map_err(|_| {
                format!("{word}: {value} is not a whole number\n  Write it as C does: 66, 0x42")
            })?;
            if number > field.most {
                return Err(format!("{word}: {name} takes 0 to {}", field.most));
            }
            if self.0.insert(name.to_owned(), number).is_some() {
                return Err(format!("{name} is given twice\n  Give it once"));
            }
        }
        // The kernel refuses a queue of no interface.
        let is_xdp_alone = kinds.iter().all(|kind| *kind == ProgramKind::Xdp);
        if is_xdp_alone
            && self.0.contains_key("rx_queue_index")
            && !self.0.contains_key("ingress_ifindex")
        {
            return Err(
                "rx_queue_index is a queue of an interface, which is not named\n  Name it too: ingress_ifindex=1"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Returns true if there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields that programs of a type get, as a person writes them; empty if there are none.
    pub fn words(&self, kind: ProgramKind) -> String {
        let own = fields(kind).iter();
        let words = own.filter_map(|field| {
            let value = self.0.get(field.name)?;
            Some(format!("{}={value}", field.name))
        });
        words.collect::<Vec<_>>().join(",")
    }

    /// The bytes of the context of a type, up to the last field.
    pub(crate) fn beside(&self, kind: ProgramKind) -> BesidePacket {
        let mut context = vec![0; SKB_BYTES];
        let mut end = 0;
        for field in fields(kind) {
            let Some(value) = self.0.get(field.name) else {
                continue;
            };
            let bytes = &value.to_ne_bytes()[..field.bytes];
            context[field.at..field.at + field.bytes].copy_from_slice(bytes);
            end = end.max(field.at + field.bytes);
        }
        let is_xdp = kind == ProgramKind::Xdp && end > 0;
        context.truncate(if is_xdp { XDP_BYTES } else { end });
        BesidePacket {
            bytes: context,
            length_at: is_xdp.then_some(XDP_END),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(words: &str, kinds: &[ProgramKind]) -> Result<PacketContext, String> {
        let mut context = PacketContext::default();
        context.add(words, kinds).map(|()| context)
    }

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        let words = "mark=0x42,priority=7,gso_segs=3";
        let skb = context(words, &[ProgramKind::Tc]).expect("fields");
        let beside = skb.beside(ProgramKind::Tc);
        assert_eq!((beside.bytes.len(), beside.length_at), (168, None));
        assert_eq!(
            (beside.bytes[8], beside.bytes[32], beside.bytes[164]),
            (0x42, 7, 3)
        );
        assert_eq!(skb.words(ProgramKind::Tc), "mark=66,priority=7,gso_segs=3");
        // Not those of other types.
        assert!(skb.beside(ProgramKind::Xdp).bytes.is_empty());
        let both = [ProgramKind::Tc, ProgramKind::Xdp];
        let both = context("ingress_ifindex=1,rx_queue_index=0,mark=1", &both).expect("fields");
        let beside = both.beside(ProgramKind::Xdp);
        assert_eq!((beside.bytes.len(), beside.length_at), (24, Some(4)));
        assert_eq!(
            both.words(ProgramKind::Xdp),
            "ingress_ifindex=1,rx_queue_index=0"
        );
    }

    #[test]
    fn mistakes_say_what_can_be_written() {
        let (xdp, tc, raw) = (
            [ProgramKind::Xdp],
            [ProgramKind::Tc],
            [ProgramKind::RawTracepoint],
        );
        for (words, kinds, says) in [
            ("mark", &tc, "FIELD=VALUE"),
            ("len=3", &tc, "no field len"),
            ("len=3", &tc, "tc programs take mark, priority"),
            ("mark=3", &xdp, "of other programs"),
            (
                "mark=3",
                &xdp,
                "xdp programs take ingress_ifindex, rx_queue_index",
            ),
            ("mark=3", &raw, "from --input"),
            ("mark=x", &tc, "not a whole number"),
            ("mark=-1", &tc, "not a whole number"),
            ("mark=0x100000000", &tc, "0 to 4294967295"),
            ("gso_segs=65536", &tc, "0 to 65535"),
            ("mark=1,mark=2", &tc, "given twice"),
            ("rx_queue_index=1", &xdp, "ingress_ifindex=1"),
        ] {
            let why = context(words, kinds).expect_err(words);
            assert!(why.contains(says), "{why}");
        }
    }
}
