//! An epoch of a workload: a server that runs, its clients, and the probes that go on and off beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use anyhow::{Context, Result};

use super::{LOAD, VARIANT, site::Site, window};
use crate::{
    experiment::{Batch, Case, Fault, Loaded, Setup, Trial},
    probe::{self, Probe},
    workload::{Base, Client, Definition, Load, OFF, Scene, Variant},
};

/// A running workload.
pub(super) struct Bed {
    definition: Definition,
    /// The probes that were opened, by variant. Gone before the server is.
    probes: BTreeMap<String, Box<dyn Probe>>,
    /// Servers, by the networks that they are on.
    sites: BTreeMap<String, Site>,
    scene: Scene,
    /// The case whose probe is switched under load in this epoch, and how long an operation took then at most,
    /// beyond what it takes without, in milliseconds.
    stirred: Option<String>,
    hiccup_ms: Option<f64>,
    _base: Rc<Base>,
}

impl Bed {
    /// Starts a server on each network that there are cases for, and warms it.
    pub(super) fn open(base: &Rc<Base>, definition: &Definition, setup: &Setup) -> Result<Self> {
        let (scene, sites) = base.on_a_port(definition, |scene| {
            let mut sites = BTreeMap::new();
            for case in &setup.cases {
                let name = Site::name(definition, scene, case)?;
                if !sites.contains_key(&name) {
                    let site = Site::open(definition, scene, &name)?;
                    sites.insert(name, site);
                }
            }
            Ok((scene.clone(), sites))
        })?;
        let mut bed = Bed {
            definition: definition.clone(),
            probes: BTreeMap::new(),
            sites,
            scene,
            stirred: stirred(setup),
            hiccup_ms: None,
            _base: Rc::clone(base),
        };
        let mut warm = BTreeSet::new();
        for case in &setup.cases {
            if warm.insert(Site::name(definition, &bed.scene, case)?) {
                bed.warm_up(case).context("warming up")?;
            }
        }
        Ok(bed)
    }

    fn warm_up(&mut self, case: &Case) -> Result<()> {
        let client = self.client(case)?;
        let window_ms = self.definition.window_ms;
        let site = self.site(case)?;
        site.ready()?;
        let scene = site.scene(case, window_ms);
        let warmed = site
            .network
            .at_client(|| Load::of(&client).warm_up(&scene))?;
        site.answer(warmed)
    }

    /// The client of a case.
    fn client(&self, case: &Case) -> Result<Client> {
        let load = case.factors.get(LOAD);
        let mut clients = self.definition.clients.iter();
        let client = match load {
            Some(load) => clients.find(|client| client.name == *load),
            None => clients.next(),
        };
        client.cloned().context("there is no client")
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

    /// Asks how much longer operations wait when the probe of a case is switched under load.
    fn stir(&mut self, case: &Case) -> Result<(), Fault> {
        let variant = self.variant(case)?;
        let client = self.client(case)?;
        let name = Site::name(&self.definition, &self.scene, case)?;
        let site = self.sites.get_mut(&name).context("there is no server")?;
        let scene = site.scene(case, self.definition.window_ms);
        if let Some(probe) = self.probes.get_mut(&variant.name) {
            let stirred = window::stir(site, &scene, &Load::of(&client), &mut **probe);
            self.hiccup_ms = site.answer(stirred)?;
        }
        Ok(())
    }
}

/// The case that is stirred: one an epoch, each in its turn.
fn stirred(setup: &Setup) -> Option<String> {
    let probes = setup
        .cases
        .iter()
        .filter(|case| case.factors.get(VARIANT).is_some_and(|name| name != OFF));
    let probes: Vec<&Case> = probes.collect();
    let turn = setup.epoch.checked_rem(probes.len())?;
    Some(probes[turn].name.clone())
}

impl Loaded for Bed {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        let variant = self.variant(case)?;
        if !variant.probe.is_empty() && !self.probes.contains_key(&variant.name) {
            let window_ms = self.definition.window_ms;
            let scene = self.site(case)?.scene(case, window_ms);
            let probe = probe::open(&variant.probe.parse()?, &scene)
                .with_context(|| format!("loading the probe {}", variant.probe))?;
            self.probes.insert(variant.name, probe);
        }
        if self.stirred.as_ref() == Some(&case.name) {
            self.stir(case)?;
        }
        Ok(())
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let variant = self.variant(case)?;
        let client = self.client(case)?;
        let name = Site::name(&self.definition, &self.scene, case)?;
        let site = self.sites.get_mut(&name).context("there is no server")?;
        site.ready()?;
        let scene = site.scene(case, batch.0);
        let outcome = window::run(
            &self.definition,
            &variant,
            site,
            &scene,
            &Load::of(&client),
            self.probes.get_mut(&variant.name),
        );
        let mut trial = site.answer(outcome)?;
        if self.stirred.as_ref() == Some(&case.name)
            && let Some(hiccup_ms) = self.hiccup_ms
        {
            trial.secondary.insert("hiccup_ms".to_owned(), hiccup_ms);
        }
        Ok(trial)
    }

    fn unload(mut self: Box<Self>) -> Result<()> {
        self.probes.clear();
        self.sites.clear();
        Ok(())
    }
}
