//! `xdp-lb`: what does a load balancer's datapath cost, on each of its paths?
//!
//! Source: study 002 and the kernel's own benchmark of the same datapath (after Katran). Twenty-four
//! scenarios are theirs; `lru-insert-empty` is added, because inserting into an empty table is a
//! different, cheaper thing than into a full one.

mod check;
mod epoch;
mod model;
mod packet;
mod proof;
mod scenario;
mod sequence;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bpfcost_bpf::{
    Feature,
    lb::{Datapath, LbVariant, Reset},
    timing::Loop,
};

use self::{
    epoch::XdpLbEpoch,
    scenario::{Action, Layer4, LruState, PacketShape, Scenario},
};
use super::{needs::needs, timed::TimedEpoch};
use bpfcost_model::{
    Case, Description, Experiment, LoadedEpoch, Need, Overhead, Pair, Role, Setup, Sizing,
};

/// The experiment. Its datapath is the right one, and its loop the cheapest, but in tests.
#[derive(Debug)]
pub struct XdpLb {
    datapath: Datapath,
    looping: Option<Loop>,
}

impl Default for XdpLb {
    fn default() -> Self {
        XdpLb::with_fault(Datapath::Right)
    }
}

impl XdpLb {
    /// With a datapath that is wrong on purpose.
    pub fn with_fault(datapath: Datapath) -> Self {
        XdpLb {
            datapath,
            looping: None,
        }
    }

    /// With a loop that this kernel has, but would not need.
    pub fn with_loop(looping: Loop) -> Self {
        XdpLb {
            looping: Some(looping),
            ..XdpLb::default()
        }
    }

    fn variant(&self) -> bpfcost_bpf::Result<LbVariant> {
        let cheapest = LbVariant::for_datapath(self.datapath)?;
        Ok(LbVariant {
            looping: self.looping.unwrap_or(cheapest.looping),
            ..cheapest
        })
    }
}

impl Experiment for XdpLb {
    fn description(&self) -> Description {
        Description {
            overhead: Overhead {
                // Programs, rings, 100,000 foreign flows, and a replay of each case.
                load_s: 0.35,
                // Counters, and the model of a batch.
                trial_s: 0.004,
                // An eighth to warm up; the batch; and, where there is a reset, one with it done twice.
                batches: 2.0,
            },
            ..Description::new(
                "xdp-lb",
                "code paths of an XDP load balancer (after Katran), timed inside the kernel",
                &[
                    (
                        "scenario",
                        "the packet and the state that it meets; the name of the case",
                    ),
                    (
                        "group",
                        "single flow, diverse flows, TCP flags, LRU stress, early exits, floors",
                    ),
                    ("protocol", "tcp, udp, icmp or none"),
                    ("family", "ipv4, ipv6 or none"),
                    (
                        "reset",
                        "what the reset undoes between two operations; each reset has a floor",
                    ),
                ],
            )
        }
    }

    fn cases(&self) -> Vec<Case> {
        let scenarios = scenario::all()
            .into_iter()
            .map(|scenario| scenario_case(&scenario));
        scenarios.chain(RESETS.map(floor_case)).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        /// A comparison a line: the case, its baseline, and what that is about.
        macro_rules! list {
            ($($case:literal, $baseline:literal, $about:literal;)+) => {
                vec![$(Pair {
                    case: $case.into(),
                    baseline: $baseline.into(),
                    about: $about.into(),
                }),+]
            };
        }
        list! {
            "tcp-v4-ch", "tcp-v4-lru-hit", "consistent hash against LRU hit";
            "tcp-v6-ch", "tcp-v6-lru-hit", "consistent hash against LRU hit, IPv6";
            "tcp-v6-lru-hit", "tcp-v4-lru-hit", "IPv6 against IPv4";
            "udp-v4-lru-hit", "tcp-v4-lru-hit", "UDP (a clock read more) against TCP";
            "tcp-v4v6-lru-hit", "tcp-v4-lru-hit", "outer IPv6 against outer IPv4";
            "tcp-v4-lru-diverse", "tcp-v4-lru-hit", "4096 flows against one";
            "tcp-v4-lru-miss", "tcp-v4-lru-diverse", "LRU miss against hit";
            "tcp-v4-lru-miss", "lru-insert-empty", "insert into a full table against an empty one";
        }
    }

    fn needs(&self, _case: &Case) -> Vec<Need> {
        // All cases share their maps, and are replayed before they are timed. The loop is can_loop where
        // there is one.
        needs([
            Feature::Btf,
            Feature::XdpTestRun,
            Feature::BpfLoop,
            Feature::XdpLoadBytes,
            Feature::LruHash,
            Feature::MmapableArray,
            Feature::PercpuBatch,
            Feature::Ktime,
        ])
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        let variant = LbVariant {
            exact: setup.exact,
            ..self.variant()?
        };
        TimedEpoch::load(setup, || XdpLbEpoch::load(setup, variant))
    }
}

const RESETS: [Reset; 4] = [Reset::None, Reset::Strip, Reset::StripV4, Reset::StripV6];

/// A reset's name, which its floor carries.
fn reset_name(reset: Reset) -> &'static str {
    match reset {
        Reset::None => "none",
        Reset::Strip => "strip",
        Reset::StripV4 => "strip-v4",
        Reset::StripV6 => "strip-v6",
    }
}

fn floor_name(reset: Reset) -> String {
    format!("floor/{}", reset_name(reset))
}

fn floor_case(reset: Reset) -> Case {
    let about = match reset {
        Reset::None => "the loop and the call of an empty body",
        Reset::Strip => "the loop, and stripping the outer header",
        Reset::StripV4 => "the same, and the next IPv4 source",
        Reset::StripV6 => "the same, and the next IPv6 source",
    };
    Case {
        name: floor_name(reset),
        group: "floors".into(),
        factors: factors([
            ("scenario", "floor"),
            ("group", "floors"),
            ("reset", reset_name(reset)),
        ]),
        about: about.into(),
        role: Role::Floor,
        floor: (reset != Reset::None).then(|| floor_name(Reset::None)),
        sizing: Sizing::Calibrated {
            most: Some(scenario::MAX_OPS),
        },
        ..Case::default()
    }
}

fn scenario_case(scenario: &Scenario) -> Case {
    let (protocol, family) = match (scenario.shape, scenario.layer4) {
        (PacketShape::NotIp, _) => ("none", "none"),
        (_, layer4) => (
            match layer4 {
                Layer4::Udp => "udp",
                Layer4::Icmp => "icmp",
                Layer4::Tcp | Layer4::TcpSyn | Layer4::TcpRst => "tcp",
            },
            if scenario.source.is_ipv6() {
                "ipv6"
            } else {
                "ipv4"
            },
        ),
    };
    Case {
        name: scenario.name.into(),
        group: scenario.group.into(),
        factors: factors([
            ("scenario", scenario.name),
            ("group", scenario.group),
            ("protocol", protocol),
            ("family", family),
            ("reset", reset_name(scenario.reset())),
        ]),
        about: scenario.about.into(),
        role: Role::Case,
        floor: Some(floor_name(scenario.reset())),
        sizing: scenario.sizing,
        ..Case::default()
    }
}

fn factors<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs
        .map(|(name, value)| (name.into(), value.into()))
        .into()
}

/// Kind of a case, with what it runs.
#[derive(Clone)]
enum CaseKind {
    Floor(Reset),
    Scenario(Scenario),
}

impl CaseKind {
    /// The table of the instance that it runs on.
    fn table(&self) -> LruState {
        match self {
            CaseKind::Floor(_) => LruState::Warm,
            CaseKind::Scenario(scenario) => scenario.table,
        }
    }
}

fn case_kind(case: &Case) -> Result<CaseKind> {
    let reset = RESETS
        .into_iter()
        .find(|&reset| floor_name(reset) == case.name);
    if let Some(reset) = reset {
        return Ok(CaseKind::Floor(reset));
    }
    let scenario = scenario::all()
        .into_iter()
        .find(|scenario| scenario.name == case.name);
    scenario
        .map(CaseKind::Scenario)
        .with_context(|| format!("xdp-lb has no case {}", case.name))
}

/// The packet under a floor: that of the first scenario with its reset, which an empty body sends
/// back unchanged.
fn floor_packet(reset: Reset) -> Scenario {
    let mut all = scenario::all();
    let of_class = all
        .iter()
        .position(|scenario| scenario.reset() == reset)
        .unwrap_or(0);
    Scenario {
        action: Action::Tx,
        flows: scenario::Flows::Known,
        ..all.swap_remove(of_class)
    }
}
