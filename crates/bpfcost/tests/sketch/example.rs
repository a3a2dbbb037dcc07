//! `example`: what does it cost to hash an Ethernet header? Source: …
use bpfcost::builtin::needs::needs;
use bpfcost::builtin::timed::{self, TimedCases, TimedEpoch};
use bpfcost_bpf::timed::{OpenObject, TimedObject};
use bpfcost_bpf::timing::{Loop, Observation, Request};
use bpfcost_model::*;

pub struct Example;

impl Experiment for Example {
    fn description(&self) -> Description {
        Description {
            most_cpus: Some(1), // Defaults for the rest: layout, margin, metrics, targets, …
            ..Description::new("example", "hash of an Ethernet header", &[])
        }
    }

    fn cases(&self) -> Vec<Case> {
        vec![Case {
            name: "example".into(), // floors too, with Role::Floor
            group: "hash".into(),
            ..Case::default()
        }]
    }

    fn pairs(&self) -> Vec<Pair> {
        Vec::new() // cases to compare
    }

    fn needs(&self, _: &Case) -> Vec<Need> {
        needs(timed::NEEDS) // if one is missing, the case is unsupported
    }

    fn load(&self, setup: &Setup) -> anyhow::Result<Box<dyn LoadedEpoch>> {
        TimedEpoch::load(setup, || {
            let mut open = OpenObject::open("example", Loop::probe()?)?; // bpf/example.bpf.c
            for case in &setup.cases {
                open.time(&case.name)?; // TIMED_PROGRAM("xdp", example, …)
            }
            Ok(Hashes(open.load()?))
        })
    }
}

struct Hashes(TimedObject);

impl TimedCases for Hashes {
    type Batch = Vec<Observation>;

    fn batch(&mut self, case: &Case, request: &Request<'_>) -> Result<Self::Batch, Fault> {
        self.0.set_variable("hash", 0)?;
        Ok(self.0.batch(&case.name, request, &[vec![0; 64]])?)
    }

    fn check(&mut self, _: &Case, _: &Request<'_>, _: &Self::Batch) -> Result<(), Fault> {
        let hash = self.0.variable("hash")?;
        prove(differs("hash", 0xbaf9_078c, hash, "another packet"))
    }

    fn has_reset(&self, _: &Case) -> bool {
        true // sets the hash to 0
    }
}
