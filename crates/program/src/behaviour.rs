//! What one run of a program does, as records hold it.

use std::collections::{BTreeMap, BTreeSet};

use bpfcost_bpf::program::{Drift, MapChanges};
use serde::{Deserialize, Serialize};

/// What one run of a program does with a packet, and with its maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviour {
    /// What it returns.
    pub code: i32,
    /// That code for people, by its name if it has one; `None` if packets take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<String>,
    /// Bytes of the packet or context that it leaves.
    pub length: usize,
    /// That packet or context, in hexadecimal digits.
    #[serde(with = "digits")]
    pub packet: Vec<u8>,
    /// By how much one run changes numbers in maps and variables, by their places; null if by different amounts.
    pub per_run: BTreeMap<String, Option<i64>>,
    /// The most runs of a window, if the program runs in such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Tables that no two runs find the same.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drifts: BTreeMap<String, Drift>,
    /// Maps and variables that are too large to be compared.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unread: BTreeSet<String>,
}

impl Behaviour {
    /// What a run returns and leaves, and what it changes; and the most runs of a window, or 0.
    pub fn new(code: u32, packet: &[u8], maps: MapChanges, window: u32) -> Self {
        Behaviour {
            code: code.cast_signed(),
            returned: None,
            length: packet.len(),
            packet: packet.to_vec(),
            per_run: maps.per_run,
            window: (window > 0).then_some(window),
            drifts: maps.drifts,
            unread: maps.unread,
        }
    }
}

/// Bytes as hexadecimal digits.
mod digits {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        serializer.serialize_str(&digits.collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| {
            let digits = str::from_utf8(pair).ok()?;
            u8::from_str_radix(digits, 16).ok()
        };
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes
            .filter(|_| rest.is_empty())
            .ok_or_else(|| D::Error::custom("a packet is not in hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_behaviour_is_kept_as_text() {
        let behaviour = Behaviour {
            code: -1,
            returned: Some("TC_ACT_UNSPEC".to_owned()),
            length: 3,
            packet: vec![0, 0x1f, 0xff],
            per_run: BTreeMap::from([("runs".to_owned(), Some(1)), ("last".to_owned(), None)]),
            window: Some(16),
            drifts: BTreeMap::from([("flows".to_owned(), Drift::Replaced)]),
            unread: BTreeSet::from(["all".to_owned()]),
        };
        let text = serde_json::to_string(&behaviour).unwrap();
        assert!(text.contains(r#""packet":"001fff""#), "{text}");
        assert_eq!(serde_json::from_str::<Behaviour>(&text).unwrap(), behaviour);
        for broken in ["001ff", "001fxx", "001fé"] {
            let broken = text.replace("001fff", broken);
            assert!(
                serde_json::from_str::<Behaviour>(&broken).is_err(),
                "{broken}"
            );
        }
    }
}
