//! What is measured of a person's own programs.

use std::path::PathBuf;

use bpfcost_bpf::program::ObjectFile;
use serde::{Deserialize, Serialize};

/// Programs of an object, and the packets that each is run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnPrograms {
    /// The object, and behind it the one that it is compared with, if there is one.
    pub objects: Vec<ObjectVersion>,
    /// The programs by name: each object has all.
    pub programs: Vec<String>,
    /// The packets.
    pub inputs: Vec<Input>,
    /// Whether programs may do what is seen outside of their maps and packets.
    #[serde(default)]
    pub allow_effects: bool,
}

/// An object file with its bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectVersion {
    /// Where it was read.
    pub path: PathBuf,
    /// What is in it.
    #[serde(with = "base64_bytes")]
    pub bytes: Vec<u8>,
}

/// A packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// A word for names of cases.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// From the Ethernet header on.
    #[serde(with = "base64_bytes")]
    pub bytes: Vec<u8>,
}

impl ObjectVersion {
    /// As it is loaded.
    pub fn file(&self) -> ObjectFile {
        ObjectFile::of(&self.path, self.bytes.clone())
    }
}

/// Bytes as base64.
mod base64_bytes {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_holds_all_bytes() {
        let input = Input {
            name: "all".to_owned(),
            about: String::new(),
            bytes: (0..=255).collect(),
        };
        let text = serde_json::to_string(&input).unwrap();
        assert_eq!(serde_json::from_str::<Input>(&text).unwrap(), input);
        let broken = text.replace("AAEC", "A!EC");
        assert!(serde_json::from_str::<Input>(&broken).is_err());
    }
}
