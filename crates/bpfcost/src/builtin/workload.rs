//! Workloads as experiments: a definition (`experiments/*.toml`, or a command line). Cases are variants (probes) times
//! factor values; each variant is compared with `off` at equal factors.
//!
//! An epoch is a server. Probes go on and off on it in adjacent windows, in random order.

mod fixture;
mod guard;
mod rehearsal;
mod server_instance;
mod watch;
mod window;

use super::needs::needs;
use serde::Deserialize as _;
use std::{
    cell::RefCell,
    collections::{BTreeMap, btree_map::Entry},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result};

use self::{guard::Guard, watch::WatchedService};
use bpfcost_model::{
    Case, Description, Experiment, LoadedEpoch, Metric, Need, Overhead, Pair, ProbedWorkload, Role,
    Setup, Sizing, Subject, Waivers,
};
use bpfcost_model::{Headline, LOAD, OFF, SECOND, VARIANT};
use bpfcost_probe::Spec;
use bpfcost_workload::{Base, Definition, OwnServer, Variant, allowed, outside::Outside};

/// Differences of CPU time per operation below this count as none.
const CPU_MARGIN: f64 = 0.03;
/// The same of throughput and latency.
const RATE_MARGIN: f64 = 0.05;
/// Reason why a case whose load comes from outside of a guest does not run elsewhere.
const NO_GUEST: &str = "its datagrams enter a guest through a port that QEMU forwards. Run it in a guest: --on \
    vm:6.12 (get that kernel once: bpfcost kernel add trixie)";

/// The reason to have no sentinel.
const NO_SENTINEL: &str = "each probe is compared with no probe, on the same server and in turn";

const BUILT_IN: &[&str] = &[
    include_str!("../../../../experiments/busy.toml"),
    include_str!("../../../../experiments/iperf3.toml"),
    include_str!("../../../../experiments/l7-go.toml"),
    include_str!("../../../../experiments/nginx-ssl.toml"),
    include_str!("../../../../experiments/redis.toml"),
    include_str!("../../../../experiments/syscount.toml"),
];

/// The bases of a session, by the variant's own server.
type Bases = BTreeMap<Option<OwnServer>, Rc<Base>>;

/// A workload as an experiment.
#[derive(Debug)]
pub struct Workload {
    definition: Definition,
    /// Made with the first epoch, and kept for the others: one for each way to start the server.
    bases: RefCell<Bases>,
    /// Who makes load from outside, where this is a guest.
    outside: Option<Rc<dyn Outside>>,
    /// Guard of a running service's limit. It is kept for all epochs, with the noise of the service that it has
    /// learned.
    guard: Option<Rc<RefCell<Guard>>>,
}

/// The built-in workloads.
pub fn built_in() -> impl Iterator<Item = Workload> {
    // Tests read them all.
    BUILT_IN
        .iter()
        .filter_map(|text| Definition::parse(text).ok())
        .map(Workload::new)
}

/// The variant of a case.
fn variant<'a>(definition: &'a Definition, case: &Case) -> Option<&'a Variant> {
    let name = case.factors.get(VARIANT).map_or(OFF, String::as_str);
    definition.variants.iter().find(|one| one.name == name)
}

/// The guard of a running service, where it has a limit.
fn guard(definition: &Definition) -> Option<Guard> {
    let watch = definition.server.as_ref()?.watch.as_ref()?;
    let window = Duration::from_millis(definition.trial_ms());
    Some(Guard::new(watch.abort_above?, window))
}

/// Returns how long a running service is watched before the first probe; `None` if it has no limit.
pub(crate) fn learning_time(definition: &Definition) -> Option<Duration> {
    guard(definition).map(|guard| guard.learning_time())
}

impl Workload {
    /// The workload that a plan is for.
    pub fn definition_of(subject: &Subject) -> Result<Option<Definition>> {
        match subject {
            Subject::Workload(definition) => Ok(Some(Definition::deserialize(definition)?)),
            _ => Ok(None),
        }
    }

    /// That workload.
    pub fn new(definition: Definition) -> Self {
        Workload {
            guard: guard(&definition).map(|guard| Rc::new(RefCell::new(guard))),
            definition,
            bases: RefCell::default(),
            outside: None,
        }
    }

    /// All combinations of factor values that there are, in order.
    fn points(&self) -> Vec<BTreeMap<String, String>> {
        let mut points = vec![BTreeMap::new()];
        let loads = self
            .definition
            .clients
            .iter()
            .map(|client| client.name.clone());
        let loads: Vec<String> = loads.collect();
        let several = [(LOAD.to_owned(), loads)]
            .into_iter()
            .filter(|(_, loads)| loads.len() > 1);
        let factors = self.definition.factors.iter();
        let factors = factors.map(|factor| (factor.name.clone(), factor.values.clone()));
        for (name, values) in factors.chain(several) {
            let with = |point: &BTreeMap<String, String>, value: &String| {
                let mut point = point.clone();
                point.insert(name.clone(), value.clone());
                point
            };
            points = points
                .iter()
                .flat_map(|point| {
                    values
                        .iter()
                        .map(|value| with(point, value))
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        let usual = self.definition.clients.first();
        points.retain(|point| {
            let mut clients = self.definition.clients.iter();
            let client = clients.find(|client| Some(&client.name) == point.get(LOAD));
            client
                .or(usual)
                .is_none_or(|client| allowed(&client.only, point))
        });
        points
    }

    /// The case's name: variant, then factor values in the definition's order.
    fn case_name(&self, variant: &str, point: &BTreeMap<String, String>) -> String {
        let factors = self
            .definition
            .factors
            .iter()
            .map(|factor| factor.name.as_str());
        let values = factors.chain([LOAD]).filter_map(|name| point.get(name));
        let usual = self.definition.clients.first().map(|client| &client.name);
        let values = values.filter(|value| Some(*value) != usual);
        [variant]
            .into_iter()
            .chain(values.map(String::as_str))
            .collect::<Vec<_>>()
            .join("/")
    }

    fn case(&self, variant: &Variant, point: &BTreeMap<String, String>) -> Case {
        let mut factors = point.clone();
        factors.insert(VARIANT.to_owned(), variant.name.clone());
        let values: Vec<String> = point
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        Case {
            name: self.case_name(&variant.name, point),
            group: if values.is_empty() {
                self.definition.name.clone()
            } else {
                values.join(", ")
            },
            factors,
            about: variant.about.clone(),
            role: Role::Case,
            floor: None,
            sizing: Sizing::Window(self.definition.trial_ms()),
            ..Case::default()
        }
    }

    /// The probes of all variants.
    fn probes(&self) -> impl Iterator<Item = &Spec> {
        let variants = self.definition.variants.iter();
        variants.filter_map(|variant| variant.probe.as_ref())
    }

    /// The probe of a case, where it has one.
    fn probe(&self, case: &Case) -> Option<&Spec> {
        variant(&self.definition, case)?.probe.as_ref()
    }

    /// Points and the variants that each of them has.
    fn tables(&self) -> Vec<(BTreeMap<String, String>, Vec<&Variant>)> {
        let variants = |point: &BTreeMap<String, String>| {
            let all = self.definition.variants.iter();
            all.filter(|variant| allowed(&variant.only, point))
                .collect()
        };
        self.points()
            .into_iter()
            .map(|point| (point.clone(), variants(&point)))
            .collect()
    }

    /// With load that comes from outside of this guest.
    pub fn with_outside(self, outside: Rc<dyn Outside>) -> Self {
        Workload {
            outside: Some(outside),
            ..self
        }
    }

    /// The factors of its cases, and what each of them means.
    fn factors(&self) -> Vec<(&str, &str)> {
        let factors = self.definition.factors.iter();
        let mut all: Vec<(&str, &str)> = vec![(VARIANT, "the probe; off is none")];
        all.extend(factors.map(|factor| (factor.name.as_str(), factor.about.as_str())));
        if self.definition.clients.len() > 1 {
            all.push((LOAD, "the kind of load"));
        }
        all
    }

    /// Returns the metrics that are compared in addition to CPU time.
    fn metrics(&self) -> Vec<Metric> {
        let metric = |name: &str, about: &str, unit: &str, more_is_better, margin| Metric {
            name: name.to_owned(),
            about: about.to_owned(),
            unit: unit.to_owned(),
            more_is_better,
            margin,
        };
        let asked = self.definition.compared.iter();
        // The better direction of such a number is unknown.
        let asked = asked.map(|name| metric(name, name, "", None, RATE_MARGIN));
        let metrics = vec![
            metric(
                "machine_ns",
                "CPU time of the machine",
                "ns/op",
                Some(false),
                CPU_MARGIN,
            ),
            metric("ops_per_s", "throughput", "op/s", Some(true), RATE_MARGIN),
            metric(
                "latency_p50_us",
                "latency, median",
                "us",
                Some(false),
                RATE_MARGIN,
            ),
            metric(
                "latency_p99_us",
                "latency, 99th percentile",
                "us",
                Some(false),
                RATE_MARGIN,
            ),
        ];
        let moot = |metric: &Metric| match metric.name.as_str() {
            // The headline is compared once.
            "machine_ns" => self.definition.headline == Headline::Machine,
            // Seconds as operations always have a rate of one per second.
            "ops_per_s" => self.definition.operation == SECOND,
            _ => false,
        };
        let all = metrics.into_iter().chain(asked);
        all.filter(|metric| !moot(metric)).collect()
    }

    /// Returns the time that a load and a window take in addition to the window itself.
    fn overhead(&self) -> Overhead {
        // The server's start and end; a window that warms it, and two in which a probe is switched under load.
        let windows = match self.definition.variants.len() {
            1 => 1.0,
            _ => 3.0,
        };
        let variants = self.definition.variants.iter();
        let specs: Vec<&Spec> = variants.filter_map(|one| one.probe.as_ref()).collect();
        let sum = |seconds: fn(&Spec) -> f64| specs.iter().copied().map(seconds).sum::<f64>();
        // Probes that take time to start are rehearsed too, before the rounds and after them.
        let rehearsed = 2.0 * specs.iter().filter(|spec| spec.start_s() > 0.0).count() as f64;
        let starts_s = sum(Spec::start_s);
        let switched_s = starts_s + sum(bpfcost_probe::switch_s);
        Overhead {
            load_s: 0.5
                + windows * self.definition.window_ms as f64 / 1e3
                + rehearsed * self.definition.rehearsal_ms() as f64 / 1e3
                + 2.0 * starts_s,
            trial_s: 0.05 + switched_s / self.definition.variants.len() as f64,
            batches: 1.0,
        }
    }

    /// Returns whether `--quick` runs this case if no cases are named.
    fn is_quick(&self, case: &Case) -> bool {
        let variant = |one: &Variant| one.quick && case.factors.get(VARIANT) == Some(&one.name);
        let taken = self.definition.factors.iter().all(|factor| {
            let value = case.factors.get(&factor.name);
            factor.quick.is_empty() || value.is_some_and(|value| factor.quick.contains(value))
        });
        let usual = self.definition.clients.first().map(|client| &client.name);
        let load = case.factors.get(LOAD);
        let mut clients = self.definition.clients.iter();
        let loaded = load.is_none()
            || load == usual
            || clients.any(|client| client.quick && Some(&client.name) == load);
        taken && loaded && self.definition.variants.iter().any(variant)
    }

    /// Returns the layout by which reports read the results.
    fn layout(&self) -> ProbedWorkload {
        let definition = &self.definition;
        let variants = definition.variants.iter();
        ProbedWorkload {
            operation: definition.operation.clone(),
            headline: definition.headline,
            about: definition.about.clone(),
            subject: definition.subject.clone(),
            prose: definition.prose.clone(),
            variants: variants
                .map(|variant| (variant.name.clone(), variant.about.clone()))
                .collect(),
            over: definition.over.clone(),
        }
    }
}

impl Experiment for Workload {
    fn description(&self) -> Description {
        let definition = &self.definition;
        Description {
            subject: Subject::workload(definition),
            layout: self.layout().into(),
            metrics: self.metrics(),
            margin: CPU_MARGIN,
            overhead: self.overhead(),
            adjacent: Some(VARIANT.to_owned()),
            rounds: Some(definition.windows()),
            counts: false,
            waivers: Waivers {
                sentinel: Some(NO_SENTINEL.to_owned()),
                ..Waivers::default()
            },
            host_files: true,
            observes_others: self.probes().any(|probe| !probe.is_built_in()),
            ..Description::new(&definition.name, &definition.about, &self.factors())
        }
    }

    fn cases(&self) -> Vec<Case> {
        let tables = self.tables();
        let cases = |(point, variants): &(BTreeMap<String, String>, Vec<&Variant>)| {
            let cases = variants.iter().map(|variant| self.case(variant, point));
            let marked = cases.map(|case| Case {
                slow: !self.is_quick(&case),
                ..case
            });
            marked.collect::<Vec<_>>()
        };
        tables.iter().flat_map(cases).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for (point, variants) in self.tables() {
            let against = |case: &Variant, baseline: &Variant| Pair {
                case: self.case_name(&case.name, &point),
                baseline: self.case_name(&baseline.name, &point),
                about: format!("{} against {}", case.name, baseline.name),
            };
            let Some((off, probes)) = variants.split_first() else {
                continue;
            };
            pairs.extend(probes.iter().map(|probe| against(probe, off)));
            for probe in probes {
                let others = probes
                    .iter()
                    .filter(|other| probe.against.contains(&other.name));
                pairs.extend(others.map(|other| against(probe, other)));
            }
            if self.definition.against_each_other {
                for (index, probe) in probes.iter().enumerate() {
                    pairs.extend(probes[..index].iter().map(|other| against(probe, other)));
                }
            }
        }
        pairs
    }

    fn needs(&self, case: &Case) -> Vec<Need> {
        // Probes that cannot be read are an error when the case is asked for.
        let features = self.probe(case).map(bpfcost_probe::needs);
        needs(features.and_then(Result::ok).unwrap_or_default())
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        if self.outside.is_none() && self.definition.is_outside(&case.factors) {
            return Ok(Some(NO_GUEST.to_owned()));
        }
        let Some(spec) = self.probe(case) else {
            return Ok(None);
        };
        match self.missing(&needs(bpfcost_probe::needs(spec)?))? {
            Some(reason) => Ok(Some(reason)),
            None => bpfcost_probe::absent(spec),
        }
    }

    fn programs(&self) -> Result<Option<String>> {
        let sources = bpfcost_workload::sources();
        Ok(Some(if self.probes().any(Spec::is_built_in) {
            let build = bpfcost_bpf::BUILD;
            format!("{sources}. Built-in probes: BPF programs of build {build}")
        } else {
            sources
        }))
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        let starting = || format!("starting the workload {}", self.definition.name);
        let mut bases = self.bases.borrow_mut();
        for case in &setup.cases {
            let server = variant(&self.definition, case).and_then(|one| one.server.clone());
            if let Entry::Vacant(place) = bases.entry(server) {
                let definition = self.definition.with_server(place.key().as_ref());
                place.insert(Rc::new(Base::open(&definition).with_context(starting)?));
            }
        }
        let outside = self.outside.as_ref();
        let server = self.definition.server.as_ref();
        let watch = server.and_then(|server| server.watch.as_ref());
        let open = |watch| WatchedService::open(watch, self.guard.as_ref());
        let watched = watch.map(open).transpose().with_context(starting)?;
        let fixture =
            fixture::WorkloadFixture::open(&bases, &self.definition, setup, outside, watched)
                .with_context(starting)?;
        Ok(Box::new(fixture))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_workload_can_be_read() {
        for text in BUILT_IN {
            Definition::parse(text).unwrap_or_else(|error| panic!("{error}"));
        }
        assert_eq!(built_in().count(), BUILT_IN.len());
    }

    #[test]
    fn what_leads_is_compared_once() {
        for workload in built_in() {
            let compared = workload.metrics();
            let compared = compared.iter().any(|metric| metric.name == "machine_ns");
            assert_eq!(compared, workload.definition.headline == Headline::Server);
        }
    }

    #[test]
    fn off_is_always_there_and_first() {
        for workload in built_in() {
            assert_eq!(workload.definition.variants[0].name, OFF);
            for pair in workload.pairs() {
                assert!(
                    workload
                        .cases()
                        .iter()
                        .any(|case| case.name == pair.baseline)
                );
            }
        }
    }
}
