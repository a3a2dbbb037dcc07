//! Programs of a person's own object, each at its own hook.

use anyhow::Result;
use bpfcost_bpf::{
    hook::Hook,
    program::{ObjectFile, Settings},
};
use serde::{Deserialize, Serialize};

use super::{
    LoaderCommand,
    definition::{digest_of, objects},
};

/// Programs of an object that run at hooks, and what leads to their events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookedPrograms {
    /// The object, and behind it the one that it is compared with, if there is one.
    #[serde(with = "objects")]
    pub objects: Vec<ObjectFile>,
    /// The programs by name: each object has all.
    pub programs: Vec<String>,
    /// Hooks that programs are attached at instead of those that their sections name.
    #[serde(default)]
    pub targets: Vec<(String, String)>,
    /// Sources of events: each program has a case for each; empty to find one for each program.
    #[serde(default)]
    pub stimuli: Vec<StimulusSource>,
    /// True if the lines and calls of events are wanted.
    #[serde(default)]
    pub hot_spots: bool,
    /// True if the calls of events are wanted.
    #[serde(default)]
    pub calls: bool,
    /// Settings with which each object is loaded.
    #[serde(default)]
    pub settings: Settings,
    /// Fills maps of each object before its programs are attached.
    #[serde(default)]
    pub setup: Option<LoaderCommand>,
}

/// Something that leads to events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StimulusSource {
    /// One of the menu, by its name.
    Menu(String),
    /// A command, which ends by itself.
    Command(LoaderCommand),
}

impl StimulusSource {
    /// Name of a menu's stimulus; of a command, that of its program.
    pub fn name(&self) -> &str {
        match self {
            StimulusSource::Menu(name) => name,
            StimulusSource::Command(command) => {
                let program = command.command.first().map_or("", String::as_str);
                program.rsplit('/').next().unwrap_or(program)
            }
        }
    }
}

impl HookedPrograms {
    /// A digest of what programs are given beside their code: variables, maps, and what makes their events if it was named.
    /// Costs with another one are costs of something else.
    pub fn given(&self, stimulus: Option<&StimulusSource>) -> String {
        let mut given = vec![
            serde_json::json!(self.settings.variables),
            serde_json::json!(self.settings.maps),
            serde_json::json!(self.settings.slots),
            serde_json::json!(stimulus),
        ];
        if let Some(setup) = &self.setup {
            given.push(serde_json::json!(setup.command));
        }
        digest_of(given)
    }

    /// All programs of an object with their hooks.
    pub fn hooks(&self, object: usize) -> Result<Vec<Hook>> {
        let hooks = self.objects[object].hooks()?.into_iter();
        let aimed = |hook: Hook| {
            let mut targets = self.targets.iter();
            let target = targets.find(|(program, _)| *program == hook.program);
            target.map_or_else(|| Ok(hook.clone()), |(_, target)| Ok(hook.at(target)?))
        };
        hooks.map(aimed).collect()
    }
}
