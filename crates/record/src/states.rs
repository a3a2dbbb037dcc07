//! Groups the cases of a workload's record by the state of the server. Within a state, only the probe differs.

use std::collections::BTreeMap;

use crate::{CaseRecord, ComparisonRecord, MetricRecord, Record};
use bpfcost_model::{OFF, ProbedWorkload, VARIANT};

/// The states of a workload, in the record's order; each has a case without a probe and some with one.
#[derive(Debug)]
pub struct States<'a> {
    /// The record of the workload.
    pub record: &'a Record,
    /// The workload that ran.
    pub workload: &'a ProbedWorkload,
    /// The states.
    pub all: Vec<State<'a>>,
}

/// A state of the server: values of all factors but the probe.
#[derive(Debug)]
pub struct State<'a> {
    /// The values by factor.
    pub factors: BTreeMap<&'a str, &'a str>,
    /// The case without a probe.
    pub off: Option<&'a CaseRecord>,
    /// The cases with one, in the record's order.
    pub probes: Vec<ProbedCase<'a>>,
}

/// A case with a probe.
#[derive(Clone, Copy, Debug)]
pub struct ProbedCase<'a> {
    /// The probe's name.
    pub variant: &'a str,
    /// The case.
    pub case: &'a CaseRecord,
}

impl<'a> States<'a> {
    /// The states of a record; `None` where no workload ran.
    pub fn from_record(record: &'a Record) -> Option<Self> {
        let workload = record.layout.workload()?;
        let mut all: Vec<State<'a>> = Vec::new();
        for case in &record.cases {
            let Some(variant) = case.factors.get(VARIANT) else {
                continue;
            };
            let factors = || {
                let others = case.factors.iter().filter(|(name, _)| *name != VARIANT);
                others.map(|(name, value)| (name.as_str(), value.as_str()))
            };
            let position = all.iter().position(|state| factors().eq(state.pairs()));
            let place = position.unwrap_or_else(|| {
                all.push(State {
                    factors: factors().collect(),
                    off: None,
                    probes: Vec::new(),
                });
                all.len() - 1
            });
            match variant.as_str() {
                OFF => all[place].off = Some(case),
                variant => all[place].probes.push(ProbedCase { variant, case }),
            }
        }
        (!all.is_empty()).then_some(States {
            record,
            workload,
            all,
        })
    }

    /// Every probe that some state has, each once.
    pub fn variants(&self) -> Vec<&'a str> {
        let mut names = Vec::new();
        for probed in self.all.iter().flat_map(|state| &state.probes) {
            if !names.contains(&probed.variant) {
                names.push(probed.variant);
            }
        }
        names
    }

    /// The factor along which curves are drawn, where several states lie on one.
    pub fn over(&self) -> Option<&'a str> {
        let over = self.workload.over.as_deref()?;
        let curves = self.curves_over(over);
        curves.iter().any(|curve| curve.len() > 1).then_some(over)
    }

    /// The states that differ in `over` alone, together.
    pub fn curves_over(&self, over: &str) -> Vec<Vec<&State<'a>>> {
        let mut curves: Vec<Vec<&State<'a>>> = Vec::new();
        for state in &self.all {
            let same = |curve: &&mut Vec<&State<'a>>| curve[0].apart(over).eq(state.apart(over));
            match curves.iter_mut().find(same) {
                Some(curve) => curve.push(state),
                None => curves.push(vec![state]),
            }
        }
        curves
    }

    /// The comparison of a case with another: by its own value, or by a metric.
    pub fn comparison(
        &self,
        metric: Option<&'a MetricRecord>,
        case: &str,
        baseline: &str,
    ) -> Option<&'a ComparisonRecord> {
        let all = metric.map_or(&self.record.comparisons, |metric| &metric.comparisons);
        let mut all = all.iter();
        all.find(|one| one.case == case && one.baseline == baseline)
    }
}

impl<'a> State<'a> {
    fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.factors.iter().map(|(name, value)| (*name, *value))
    }

    /// The values of all its factors but one.
    pub fn apart(&self, without: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.pairs().filter(move |(name, _)| *name != without)
    }

    /// The case without a probe, and those with one.
    pub fn cases(&self) -> impl Iterator<Item = &'a CaseRecord> {
        let probes = self.probes.iter().map(|probed| probed.case);
        self.off.into_iter().chain(probes)
    }

    /// The case with a probe.
    pub fn probed(&self, variant: &str) -> Option<ProbedCase<'a>> {
        let mut probes = self.probes.iter();
        probes.find(|probed| probed.variant == variant).copied()
    }
}
