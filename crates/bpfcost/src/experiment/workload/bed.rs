//! An epoch of a workload: a server that runs, its clients, and the probes that go on and off beside it.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::{LOAD, VARIANT, window};
use crate::{
    experiment::{Batch, Case, Fault, Loaded, Setup, Trial},
    probe::{self, Probe},
    workload::{Client, Definition, Load, OFF, Process, Scene, Server, Variant, free_port},
};

/// How long a command that prepares a session may take.
const PREPARATION: std::time::Duration = std::time::Duration::from_secs(120);

/// A running workload.
pub(super) struct Bed {
    definition: Definition,
    /// The probes that were opened, by variant. Gone before the server is.
    probes: BTreeMap<String, Box<dyn Probe>>,
    server: Option<Server>,
    scene: Scene,
    _dir: TempDir,
}

impl Bed {
    /// Makes files, starts the server, warms it.
    pub(super) fn open(definition: &Definition, _setup: &Setup) -> Result<Self> {
        let dir =
            TempDir::with_prefix("bpfcost-").context("no room for the files of the workload")?;
        let cpus = bpfcost_bpf::allowed_cpus();
        let own = definition.server.as_ref().map_or(0, |server| server.cpus);
        let (server_cpus, client_cpus) = match own > 0 && cpus.len() > own {
            true => (cpus[..own].to_vec(), cpus[own..].to_vec()),
            false => (Vec::new(), Vec::new()),
        };
        let mut scene = Scene {
            dir: dir.path().to_owned(),
            port: free_port()?,
            server_cpus,
            client_cpus,
            window_ms: definition.window_ms,
            ..Scene::default()
        };
        for (name, text) in &definition.files {
            let path = scene.dir.join(name);
            fs::write(&path, scene.fill(text)?)
                .with_context(|| format!("can't write {}", path.display()))?;
        }
        for command in &definition.prepare {
            let command = scene.command(command)?;
            let mut process = Process::start(&command, &[], &[])?;
            if !process.wait(PREPARATION)?.success() {
                bail!("{} failed\n{}", command.join(" "), process.printed()?);
            }
        }
        let server = match &definition.server {
            Some(spec) if !spec.command.is_empty() => Some(Server::start(spec, &scene)?),
            _ => None,
        };
        scene.pids = server.as_ref().map(Server::pids).unwrap_or_default();
        let bed = Bed {
            definition: definition.clone(),
            probes: BTreeMap::new(),
            server,
            scene,
            _dir: dir,
        };
        Ok(bed)
    }

    fn client(&self, case: &Case) -> Option<&Client> {
        let load = case.factors.get(LOAD);
        let mut clients = self.definition.clients.iter();
        match load {
            Some(load) => clients.find(|client| client.name == *load),
            None => clients.next(),
        }
    }

    fn variant(&self, case: &Case) -> Result<Variant> {
        let name = case.factors.get(VARIANT).map_or(OFF, String::as_str);
        let mut variants = self.definition.variants.iter();
        variants
            .find(|variant| variant.name == name)
            .cloned()
            .with_context(|| format!("there is no variant {name}"))
    }

    /// The scene of one case.
    fn scene(&self, case: &Case, batch: Batch) -> Scene {
        Scene {
            pids: self.server.as_ref().map(Server::pids).unwrap_or_default(),
            window_ms: batch.0,
            factors: case.factors.clone(),
            ..self.scene.clone()
        }
    }
}

impl Loaded for Bed {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        let variant = self.variant(case)?;
        if variant.probe.is_empty() || self.probes.contains_key(&variant.name) {
            return Ok(());
        }
        let probe = probe::open(&variant.probe.parse()?, &self.scene)
            .with_context(|| format!("loading the probe {}", variant.probe))?;
        self.probes.insert(variant.name, probe);
        Ok(())
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let variant = self.variant(case)?;
        let scene = self.scene(case, batch);
        let client = self.client(case).context("there is no client")?.clone();
        let probe = self.probes.get_mut(&variant.name);
        window::run(
            &self.definition,
            &variant,
            &scene,
            &Load::of(&client),
            probe,
        )
    }

    fn unload(mut self: Box<Self>) -> Result<()> {
        self.probes.clear();
        self.server = None;
        Ok(())
    }
}
