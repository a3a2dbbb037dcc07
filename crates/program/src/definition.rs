//! What is measured of a person's own programs.

use std::path::PathBuf;

use bpfcost_bpf::program::{LoopForm, ObjectFile, ProgramKind, Settings};
use bpfcost_model::MIX;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Expected, expectation};

/// Programs of an object, and the packets that each is run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnPrograms {
    /// The object, and behind it the one that it is compared with, if there is one.
    #[serde(with = "objects")]
    pub objects: Vec<ObjectFile>,
    /// The programs by name: each object has all.
    pub programs: Vec<String>,
    /// The packets.
    pub inputs: Vec<Input>,
    /// Whether they also take turns, in a case of their own.
    #[serde(default)]
    pub mix: bool,
    /// Whether a run of each is traced, to show where its instructions are spent.
    #[serde(default)]
    pub hot_spots: bool,
    /// How each object is loaded.
    #[serde(default)]
    pub settings: Settings,
    /// What fills its maps then.
    #[serde(default)]
    pub setup: Option<LoaderCommand>,
    /// What runs of the first object's programs must do.
    #[serde(default)]
    pub expected: Expected,
}

impl OwnPrograms {
    /// A digest of the bytes of an input, by its name, or of all.
    pub fn input_digest(&self, name: &str) -> String {
        let named = |input: &&Input| name == MIX || input.name == name;
        let named = self.inputs.iter().filter(named);
        expectation::digest(named.map(|input| input.bytes.as_slice()))
    }

    /// A digest of what programs are given beside their code: inputs, by their places, and the contents of their variables and
    /// maps. Costs with another one are costs of something else.
    pub fn given(&self, inputs: &[usize], form: LoopForm) -> String {
        let bytes = |input: &usize| serde_json::json!(self.inputs[*input].bytes);
        let bytes = match inputs {
            [alone] => bytes(alone),
            several => several.iter().map(bytes).collect(),
        };
        let mut given = vec![
            bytes,
            serde_json::json!(self.settings.variables),
            serde_json::json!(self.settings.maps),
        ];
        if !self.settings.slots.is_empty() {
            given.push(serde_json::json!(self.settings.slots));
        }
        if !self.settings.context.is_empty() {
            given.push(serde_json::json!(self.settings.context));
        }
        if let Some(LoaderCommand { command, .. }) = &self.setup {
            given.push(serde_json::json!(command));
        }
        // The other form costs something else.
        if form == LoopForm::Windows {
            given.push("windows".into());
        }
        let given = serde_json::Value::from(given);
        let digest = Sha256::digest(given.to_string());
        digest
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// A person's loader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it is started.
    pub folder: PathBuf,
    /// Seconds that it may take; `None` where the clock can't say, as it leaps while its machine is idle.
    pub limit_s: Option<u64>,
}

/// What a program is run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// A word for names of cases.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// What the bytes are.
    pub form: Form,
    /// A packet from the Ethernet header on, or a context.
    #[serde(with = "base64_bytes")]
    pub bytes: Vec<u8>,
}

/// What the bytes of an input are.
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

    /// Why a program of this type and section can't be run on it.
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

/// Objects as their paths and their bytes.
mod objects {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{ObjectFile, ProgramKind, base64_bytes};

    #[derive(Serialize, Deserialize)]
    struct Stored {
        path: PathBuf,
        #[serde(with = "base64_bytes")]
        bytes: Vec<u8>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        type_of_unnamed: Option<ProgramKind>,
    }

    pub(super) fn serialize<S: Serializer>(
        objects: &[ObjectFile],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let stored = objects.iter().map(|object| Stored {
            path: object.path().to_owned(),
            bytes: object.bytes().to_vec(),
            type_of_unnamed: object.type_of_unnamed(),
        });
        serializer.collect_seq(stored)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<ObjectFile>, D::Error> {
        let stored = Vec::<Stored>::deserialize(deserializer)?;
        let object =
            |one: Stored| ObjectFile::new(&one.path, one.bytes).with_type(one.type_of_unnamed);
        Ok(stored.into_iter().map(object).collect())
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
