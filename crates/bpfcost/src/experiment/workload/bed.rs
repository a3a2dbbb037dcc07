//! An epoch of a workload: a server that runs, its clients, and the probes that go on and off beside it.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::{LOAD, VARIANT, site::Site, window};
use crate::{
    experiment::{Batch, Case, Fault, Loaded, Setup, Trial},
    probe::{self, Probe},
    workload::{Client, Definition, Load, OFF, Process, Scene, Variant, free_port},
};

/// How long a command that prepares a session may take.
const PREPARATION: std::time::Duration = std::time::Duration::from_secs(120);

/// A running workload.
pub(super) struct Bed {
    definition: Definition,
    /// The probes that were opened, by variant. Gone before the server is.
    probes: BTreeMap<String, Box<dyn Probe>>,
    /// Servers, by the networks that they are on.
    sites: BTreeMap<String, Site>,
    scene: Scene,
    _dir: TempDir,
}

impl Bed {
    /// Makes files, starts a server on each network that there are cases for.
    pub(super) fn open(definition: &Definition, setup: &Setup) -> Result<Self> {
        let dir =
            TempDir::with_prefix("bpfcost-").context("no room for the files of the workload")?;
        let cpus = bpfcost_bpf::allowed_cpus();
        let own = definition.server.as_ref().map_or(0, |server| server.cpus);
        let (server_cpus, client_cpus) = match own > 0 && cpus.len() > own {
            true => (cpus[..own].to_vec(), cpus[own..].to_vec()),
            false => (Vec::new(), Vec::new()),
        };
        let scene = Scene {
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
        let mut sites = BTreeMap::new();
        for case in &setup.cases {
            let name = Site::name(definition, &scene, case)?;
            if !sites.contains_key(&name) {
                let site = Site::open(definition, &scene, &name)?;
                sites.insert(name, site);
            }
        }
        Ok(Bed {
            definition: definition.clone(),
            probes: BTreeMap::new(),
            sites,
            scene,
            _dir: dir,
        })
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

    /// Where that case takes place.
    fn site(&mut self, case: &Case) -> Result<&mut Site> {
        let name = Site::name(&self.definition, &self.scene, case)?;
        let site = self.sites.get_mut(&name);
        site.with_context(|| format!("there is no server on the network {name}"))
    }
}

impl Loaded for Bed {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        let variant = self.variant(case)?;
        if variant.probe.is_empty() || self.probes.contains_key(&variant.name) {
            return Ok(());
        }
        let window_ms = self.definition.window_ms;
        let scene = self.site(case)?.scene(case, window_ms);
        let probe = probe::open(&variant.probe.parse()?, &scene)
            .with_context(|| format!("loading the probe {}", variant.probe))?;
        self.probes.insert(variant.name, probe);
        Ok(())
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let variant = self.variant(case)?;
        let client = self.client(case).context("there is no client")?.clone();
        let name = Site::name(&self.definition, &self.scene, case)?;
        let site = self.sites.get_mut(&name).context("there is no server")?;
        site.ready()?;
        let scene = site.scene(case, batch.0);
        let probe = self.probes.get_mut(&variant.name);
        window::run(
            &self.definition,
            &variant,
            &scene,
            &site.network,
            &Load::of(&client),
            probe,
        )
    }

    fn unload(mut self: Box<Self>) -> Result<()> {
        self.probes.clear();
        self.sites.clear();
        Ok(())
    }
}
