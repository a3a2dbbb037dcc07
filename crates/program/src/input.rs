//! Inputs of programs, and errors in the words for them.

use std::io;

use bpfcost_bpf::program::ProgramKind;
use serde::{Deserialize, Serialize};

/// A packet or a context that a program is run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// A word for names of cases.
    pub name: String,
    /// The description, in a few words.
    pub about: String,
    /// The meaning of the bytes.
    pub form: Form,
    /// A packet from the Ethernet header on, or a context.
    #[serde(with = "base64_bytes")]
    pub bytes: Vec<u8>,
}

/// The meaning of an input's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A packet.
    #[default]
    Packet,
    /// A context: the arguments of a raw tracepoint, the structure of a `syscall` program.
    Context,
    /// Whichever the program takes.
    Bytes,
}

impl Input {
    /// The number of the protocol behind its Ethernet header.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.bytes.get(12..14)
    }

    /// The reason for which a program of this type and section can't be run on it.
    pub fn misfit(&self, kind: ProgramKind, section: &str) -> Option<String> {
        let wanted = match (kind.takes_context(), self.form) {
            (true, Form::Packet) => "a context",
            (false, Form::Context) => "a packet",
            _ => {
                let (bytes, room) = (self.bytes.len(), kind.input_bytes(section));
                let (least, most) = (room.start(), room.end());
                return (!room.contains(&bytes)).then(|| {
                    let frags = match kind {
                        ProgramKind::Xdp if bytes > *most => " (in the section xdp.frags more)",
                        _ => "",
                    };
                    format!(
                        "{} has {bytes} bytes, and {} programs take {least} to {most}{frags}",
                        self.name,
                        kind.word()
                    )
                });
            }
        };
        Some(format!(
            "{} programs take {wanted}, which {} is not",
            kind.word(),
            self.name
        ))
    }
}

/// The reason for which a packet or a file for a map can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file can't be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The path.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Something else than was asked for: the reason, and what to do.
    #[error("{0}")]
    Wrong(String),
}

/// Bytes as base64.
pub(crate) mod base64_bytes {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
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
            form: Form::Bytes,
            bytes: (0..=255).collect(),
        };
        let text = serde_json::to_string(&input).unwrap();
        assert_eq!(serde_json::from_str::<Input>(&text).unwrap(), input);
        let broken = text.replace("AAEC", "A!EC");
        assert!(serde_json::from_str::<Input>(&broken).is_err());
    }

    #[test]
    fn programs_take_packets_or_contexts() {
        let fits = |form, bytes, kind| {
            let input = Input {
                form,
                bytes: vec![0; bytes],
                ..Input::default()
            };
            input.misfit(kind, "").is_none()
        };
        assert!(fits(Form::Packet, 64, ProgramKind::Xdp));
        assert!(fits(Form::Bytes, 64, ProgramKind::Tc));
        assert!(fits(Form::Bytes, 96, ProgramKind::RawTracepoint));
        assert!(fits(Form::Context, 0, ProgramKind::Syscall));
        assert!(!fits(Form::Packet, 64, ProgramKind::Syscall));
        assert!(!fits(Form::Context, 64, ProgramKind::Xdp));
        assert!(!fits(Form::Bytes, 13, ProgramKind::Xdp));
        assert!(!fits(Form::Packet, 3713, ProgramKind::Tc));
        assert!(!fits(Form::Packet, 9014, ProgramKind::Xdp));
        let jumbo = Input {
            bytes: vec![0; 9014],
            ..Input::default()
        };
        assert_eq!(jumbo.misfit(ProgramKind::Xdp, "xdp.frags"), None);
        assert!(!fits(Form::Bytes, 104, ProgramKind::RawTracepoint));
    }
}
