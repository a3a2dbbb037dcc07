//! What is measured of a person's own programs.

use std::path::PathBuf;

use bpfcost_bpf::program::{LoopForm, ObjectFile, ProgramKind, Settings};
use bpfcost_model::MIX;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Expected, Input, expectation};

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
        digest_of(given)
    }
}

/// A digest of what programs are given.
pub(super) fn digest_of(given: Vec<serde_json::Value>) -> String {
    let digest = Sha256::digest(serde_json::Value::from(given).to_string());
    let bytes = digest.iter().take(4);
    bytes.map(|byte| format!("{byte:02x}")).collect()
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

/// Objects as their paths and their bytes.
pub(super) mod objects {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{ObjectFile, ProgramKind};
    use crate::input::base64_bytes;

    #[derive(Serialize, Deserialize)]
    struct Stored {
        path: PathBuf,
        #[serde(with = "base64_bytes")]
        bytes: Vec<u8>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        type_of_unnamed: Option<ProgramKind>,
    }

    pub(crate) fn serialize<S: Serializer>(
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

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<ObjectFile>, D::Error> {
        let stored = Vec::<Stored>::deserialize(deserializer)?;
        let object =
            |one: Stored| ObjectFile::new(&one.path, one.bytes).with_type(one.type_of_unnamed);
        Ok(stored.into_iter().map(object).collect())
    }
}
