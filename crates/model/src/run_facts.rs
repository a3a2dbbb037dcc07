//! Facts of one run of a program, as records hold them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The word for all packets in turn, where names of cases have that of one.
pub const MIX: &str = "mix";

/// Effects of one run of a program on a packet, and on its maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behaviour {
    /// The returned code.
    pub code: i32,
    /// That code for people, by its name if it has one; `None` if packets take turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<String>,
    /// Bytes of the packet or context that it leaves.
    pub length: usize,
    /// That packet or context, in hexadecimal digits.
    #[serde(with = "digits")]
    pub packet: Vec<u8>,
    /// Amounts by which one run changes numbers in maps and variables, by their places; null if by different amounts.
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

/// Difference of a table from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drift {
    /// Runs add entries, or remove some.
    Grows {
        /// Entries when this was seen.
        entries: u64,
        /// The most that it can have.
        room: u64,
    },
    /// Runs replace entries by others.
    Replaced,
    /// Runs added entries until there was no more room.
    Full {
        /// The most entries that it can have.
        room: u64,
    },
}

/// The lines and calls in which the instructions of one run are spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotSpots {
    /// All instructions of the run.
    pub instructions: u64,
    /// Lines of the source, those with the most instructions first.
    pub lines: Vec<HotLine>,
    /// Functions of the kernel that were called, those with the most instructions first.
    pub calls: Vec<HotCall>,
}

/// A line, and the instructions of one run that it is compiled to or calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotLine {
    /// The source file, as the compiler was given it.
    pub file: String,
    /// The line's number; 0 if it is not known.
    pub line: u32,
    /// Its text.
    pub text: String,
    /// Instructions of the program.
    pub own: u64,
    /// Instructions of what it calls in the kernel.
    pub called: u64,
}

/// A function of the kernel, and its instructions in one run, with all that it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotCall {
    /// The name: for a helper without `bpf_`.
    pub name: String,
    /// The instructions.
    pub instructions: u64,
}

/// A typical event of a program at its hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventFacts {
    /// The stimulus that led to it.
    pub stimulus: String,
    /// Functions that lead from the hook to the program and back, those with the most instructions first.
    pub dispatch: Vec<HotCall>,
    /// Functions that the program calls, those with the most instructions first.
    pub helpers: Vec<HotCall>,
    /// Lines of the source; `None` of an object without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<ReachedLines>,
    /// The lines and calls of the event, where they are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_spots: Option<HotSpots>,
    /// The cost outside of events; `None` where it differs from time to time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
    /// Calls of the event, where they are wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<FoldedStack>,
    /// Ways through the program that the stimulus does not lead to, and others do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_ways: Vec<OtherWay>,
}

/// A function of an event by the functions that it was called through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoldedStack {
    /// Their names, the outermost first, with `;` between them.
    pub functions: String,
    /// Instructions of the function itself.
    pub instructions: u64,
}

/// A way through a program: the dearest event by another stimulus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherWay {
    /// The stimulus.
    pub stimulus: String,
    /// Instructions from the hook to the program and back.
    pub dispatch: u64,
    /// Instructions of the program.
    pub body: u64,
    /// Instructions of what the program calls.
    pub helpers: u64,
    /// Lines of the source that no stimulus before it reached.
    pub lines: usize,
}

/// Lines of a program's source that its events reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedLines {
    /// Number of lines that were.
    pub reached: usize,
    /// Number of lines that are compiled to machine code.
    pub all: usize,
    /// The first that was not, as `FILE:LINE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_missed: Option<String>,
}

/// The cost outside of events that attached programs have: other system calls take a longer way, for example.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// The programs that are attached together.
    pub programs: Vec<String>,
    /// Instructions of an operation of the stimulus.
    pub instructions: f64,
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
