//! An epoch of a workload: starts the servers (one for each network and start command), opens the probes, runs windows.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    Bases, VARIANT,
    rehearsal::{LoadMaker, Rehearsal},
    server_instance::ServerInstance,
    variant,
    watch::WatchedService,
    window::{self, Window},
};
use bpfcost_model::{ABORTED, Batch, Case, Fault, LoadedEpoch, OFF, Observed, Setup, Trial};
use bpfcost_probe::Probe;
use bpfcost_process::RunContext;
use bpfcost_workload::{
    Base, Client, Definition, LoadClient, LoadResult, Output, OwnServer, Variant,
    outside::{self, Outside},
};

/// A window is at least so many times as long as it takes to switch a probe on.
const SHARE_OF_ATTACHING: u32 = 3;

/// The code of the warning of a probe whose attachments the kernel does not list.
const UNSEEN: &str = "unseen-attachments";
/// The code of the warning of a server that listens not on loopback alone.
const EXPOSED: &str = "open-port";

pub(super) struct WorkloadFixture {
    definition: Definition,
    /// The probes that were opened, by variant. Gone before the server is.
    probes: BTreeMap<String, Box<dyn Probe>>,
    /// Servers, by the networks that they are on and how they are started.
    instances: BTreeMap<InstanceKey, ServerInstance>,
    /// Service that was already running, if no server is started.
    watched: Option<WatchedService>,
    /// Results of the rehearsal of each case's probe, by the case's name.
    rehearsals: BTreeMap<String, Rehearsal>,
    /// The case whose probe is switched under load in this epoch, and how long an operation took then at most,
    /// beyond what it takes without, in milliseconds.
    stirred: Option<String>,
    hiccup_ms: Option<f64>,
    _bases: Vec<Rc<Base>>,
}

/// A network, and what a server is started with there, where that is a variant's own.
type InstanceKey = (String, Option<OwnServer>);

/// Key of the server instance that a case runs on: its network and its variant's server.
fn instance_key(definition: &Definition, case: &Case) -> Result<InstanceKey> {
    let server = variant(definition, case).and_then(|variant| variant.server.clone());
    Ok((definition.network_of(&case.factors)?, server))
}

impl WorkloadFixture {
    /// Starts each server that there are cases for, and warms it.
    pub(super) fn open(
        bases: &Bases,
        definition: &Definition,
        setup: &Setup,
        outside: Option<&Rc<dyn Outside>>,
        watched: Option<WatchedService>,
    ) -> Result<Self> {
        let port = outside.map(|_| outside::END.port);
        let places = setup
            .cases
            .iter()
            .map(|case| instance_key(definition, case));
        let places: BTreeSet<InstanceKey> = places.collect::<Result<_>>()?;
        let mut instances = BTreeMap::new();
        for (server, base) in bases {
            let definition = definition.with_server(server.as_ref());
            let places = places.iter().filter(|(_, one)| one == server);
            instances.extend(base.on_a_port(&definition, port, |context| {
                let open = |place: &InstanceKey| {
                    ServerInstance::open(&definition, context, &place.0, outside)
                };
                let instances = places
                    .clone()
                    .map(|place| Ok((place.clone(), open(place)?)));
                instances.collect::<Result<Vec<_>>>()
            })?);
        }
        // Without that, nothing is seen of a probe's comings and goings.
        let tells_latency = definition.clients.first().is_some_and(|client| {
            client.output != Output::Text || client.metrics.contains_key("latency_max_us")
        });
        if let Some(watched) = &watched {
            let instances = instances.values_mut();
            instances.for_each(|instance: &mut ServerInstance| instance.watch(watched.accounts()));
        }
        let mut fixture = WorkloadFixture {
            definition: definition.clone(),
            probes: BTreeMap::new(),
            instances,
            watched,
            rehearsals: BTreeMap::new(),
            stirred: stirred(setup).filter(|_| tells_latency),
            hiccup_ms: None,
            _bases: bases.values().cloned().collect(),
        };
        let mut warm = BTreeSet::new();
        for case in &setup.cases {
            if fixture.watched.is_none() && warm.insert(instance_key(definition, case)?) {
                fixture.warm_up(case).context("warming up")?;
            }
        }
        Ok(fixture)
    }

    fn warm_up(&mut self, case: &Case) -> Result<()> {
        let client = self.client(case)?;
        let window_ms = self.definition.window_ms;
        let instance = self.instance(case)?;
        instance.ready()?;
        let context = instance.context(case, window_ms);
        let warmed = instance.warm_up(&client, &context);
        instance.answer(warmed)
    }

    /// The client of a case.
    fn client(&self, case: &Case) -> Result<Client> {
        Ok(self.definition.client(&case.factors)?.clone())
    }

    fn variant(&self, case: &Case) -> Result<Variant> {
        let variant = variant(&self.definition, case).cloned();
        variant.with_context(|| format!("there is no variant of {}", case.name))
    }

    /// Returns the server instance that a case runs on.
    fn instance(&mut self, case: &Case) -> Result<&mut ServerInstance> {
        let instance = self
            .instances
            .get_mut(&instance_key(&self.definition, case)?);
        instance.context("there is no server")
    }

    /// The context of a case.
    fn context(&mut self, case: &Case, window_ms: u64) -> Result<RunContext> {
        let attach = self.rehearsals.values().map(|rehearsal| rehearsal.attach);
        let attach = attach.max().unwrap_or_default();
        let window_ms = long_enough(window_ms, attach, self.definition.period_ms);
        let mut context = self.instance(case)?.context(case, window_ms);
        if let Some(watched) = &self.watched {
            context.pids = watched.pids();
        }
        Ok(context)
    }

    /// Rehearses with the load of a case.
    fn with_load<T>(
        &mut self,
        case: &Case,
        context: &RunContext,
        mut rehearse: impl FnMut(LoadMaker<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let client = self.client(case);
        self.instance(case)?.ready()?;
        let place = instance_key(&self.definition, case)?;
        let instance = self.instances.get(&place).context("there is no server")?;
        let watched = self.watched.as_ref();
        let rehearsed = until_judged(watched, context, || {
            rehearse(&mut |context| make(watched, &client, instance, context, true))
        });
        rehearsed.map(|(rehearsed, _)| rehearsed)
    }

    /// Asks how much longer operations wait when the probe of a case is switched under load.
    fn stir(&mut self, case: &Case) -> Result<(), Fault> {
        let variant = self.variant(case)?;
        let client = self.client(case)?;
        let place = instance_key(&self.definition, case)?;
        let instance = self
            .instances
            .get_mut(&place)
            .context("there is no server")?;
        let context = instance.context(case, self.definition.window_ms);
        if instance.is_outside() {
            // The middle of a load that is made elsewhere can't be met.
            return Ok(());
        }
        if let Some(probe) = self.probes.get_mut(&variant.name) {
            let stirred = window::stir(instance, &context, &LoadClient::new(&client), &mut **probe);
            self.hiccup_ms = instance.answer(stirred)?;
        }
        Ok(())
    }
}

/// Milliseconds of a window: no fewer than three times what switching a probe on takes, or a run would be spent on
/// that; and whole periods, where there are any.
fn long_enough(window_ms: u64, attach: Duration, period_ms: Option<u64>) -> u64 {
    let least = SHARE_OF_ATTACHING * attach;
    let least_ms = u64::try_from(least.as_millis()).unwrap_or(u64::MAX);
    let window_ms = if window_ms >= least_ms {
        window_ms
    } else {
        // Whole seconds, which is what many clients take.
        least_ms.div_ceil(1000) * 1000
    };
    period_ms.map_or(window_ms, |period_ms| window_ms.next_multiple_of(period_ms))
}

/// Makes the load of one window, or watches the service; `on`: whether the probe is attached.
fn make(
    watched: Option<&WatchedService>,
    client: &Result<Client>,
    instance: &ServerInstance,
    context: &RunContext,
    on: bool,
) -> Result<LoadResult, Fault> {
    match (watched, client) {
        (Some(watched), _) => watched.window(context, on),
        (None, Ok(client)) => Ok(instance.load(client, context)?),
        (None, Err(error)) => Err(anyhow::anyhow!("{error:#}").into()),
    }
}

/// Runs a window until it is not cut off, or the probe is not to be attached again; how often it was cut off.
fn until_judged<T>(
    watched: Option<&WatchedService>,
    context: &RunContext,
    mut window: impl FnMut() -> Result<T, Fault>,
) -> Result<(T, u32), Fault> {
    let mut cut_off = 0;
    loop {
        match (window(), watched) {
            (Err(cut @ Fault::Enough { code: ABORTED, .. }), Some(watched)) => {
                watched.judge(context, cut)?;
                cut_off += 1;
            }
            (outcome, _) => return outcome.map(|outcome| (outcome, cut_off)),
        }
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

impl LoadedEpoch for WorkloadFixture {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        let variant = self.variant(case)?;
        let Some(spec) = variant.probe else {
            return Ok(());
        };
        let context = self.context(case, self.definition.rehearsal_ms())?;
        if let Some(watched) = &self.watched {
            watched.learn(&context)?;
        }
        let mut probe = match self.probes.remove(&variant.name) {
            Some(probe) => probe,
            None => {
                bpfcost_probe::open(&spec).with_context(|| format!("loading the probe {spec}"))?
            }
        };
        // Built-in ones prove themselves in each window.
        if !spec.is_built_in() {
            let rehearsed = self.with_load(case, &context, |make| {
                Rehearsal::new(&context, make, &mut *probe)
            });
            self.rehearsals.insert(case.name.clone(), rehearsed?);
        }
        self.probes.insert(variant.name, probe);
        if self.stirred.as_ref() == Some(&case.name) {
            self.stir(case)?;
        }
        Ok(())
    }

    fn observed(&mut self, case: &Case) -> Result<Observed, Fault> {
        let mut warnings = Vec::new();
        if let Some(address) = self.instance(case)?.exposed() {
            let text = format!(
                "{} listens on {address} while it is measured, where other machines may reach it: start it with an option \
                 like --bind 127.0.0.1",
                self.definition.name
            );
            warnings.push((EXPOSED, text));
        }
        if (self.rehearsals.get(&case.name)).is_some_and(|rehearsal| rehearsal.is_unseen) {
            let text = format!(
                "the kernel does not list where the programs of {} are attached: each window proves that they are loaded, \
                 not that they are attached",
                case.name
            );
            warnings.push((UNSEEN, text));
        }
        Ok(Observed {
            facts: None,
            warnings,
        })
    }

    fn conclude(&mut self, case: &Case) -> Result<(), Fault> {
        let Some(rehearsal) = self.rehearsals.get(&case.name).cloned() else {
            return Ok(());
        };
        let variant = self.variant(case)?;
        let context = self.context(case, self.definition.rehearsal_ms())?;
        let mut probe = (self.probes.remove(&variant.name)).context("its probe is not open")?;
        let repeated = self.with_load(case, &context, |make| {
            rehearsal.repeat(&context, make, &mut *probe)
        });
        self.probes.insert(variant.name, probe);
        self.instance(case)?.answer(repeated)
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let variant = self.variant(case)?;
        let client = self.client(case);
        let context = self.context(case, batch.0)?;
        let place = instance_key(&self.definition, case)?;
        let instance = self
            .instances
            .get_mut(&place)
            .context("there is no server")?;
        instance.ready()?;
        let mut probe = self.probes.get_mut(&variant.name);
        let on = probe.is_some();
        let watched = self.watched.as_ref();
        let window = Window {
            definition: &self.definition,
            variant: &variant,
            instance,
            context: &context,
            rehearsal: self.rehearsals.get(&case.name),
        };
        let outcome = until_judged(watched, &context, || {
            window.run(
                &mut |context| make(watched, &client, window.instance, context, on),
                probe.as_mut().map(|probe| &mut ***probe as &mut dyn Probe),
            )
        });
        let (mut trial, cut) = instance.answer(outcome)?;
        if cut > 0 {
            trial
                .secondary
                .insert("windows_cut_off".to_owned(), f64::from(cut));
        }
        if self.stirred.as_ref() == Some(&case.name)
            && let Some(hiccup_ms) = self.hiccup_ms
        {
            trial.secondary.insert("hiccup_ms".to_owned(), hiccup_ms);
        }
        Ok(trial)
    }

    fn unload(mut self: Box<Self>) -> Result<()> {
        self.probes.clear();
        self.instances.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_thrice_as_long_as_switching_on() {
        let window_ms = |attach_ms| long_enough(300, Duration::from_millis(attach_ms), None);
        assert_eq!(window_ms(0), 300);
        assert_eq!(window_ms(100), 300);
        assert_eq!(window_ms(101), 1000);
        assert_eq!(window_ms(1500), 5000);
    }

    #[test]
    fn with_a_period_they_are_no_shorter_and_hold_whole_periods() {
        for (attach_ms, period_ms) in [(0, 700), (500, 300), (1500, 700), (4000, 10_000)] {
            let window_ms = |period_ms| {
                let definition = Definition {
                    window_ms: 1000,
                    period_ms,
                    ..Definition::default()
                };
                let attach = Duration::from_millis(attach_ms);
                long_enough(definition.trial_ms(), attach, period_ms)
            };
            let whole = window_ms(Some(period_ms));
            assert!(
                whole >= window_ms(None),
                "{attach_ms}, {period_ms}: {whole}"
            );
            assert_eq!(whole % period_ms, 0);
        }
    }
}
