//! Cases and pairs of `attach`: a driver alone, or with an attached program of some body, with or without
//! `bpf_stats`.

use std::collections::BTreeMap;

use bpfcost_bpf::{
    Feature, Space,
    attach::{Attach, Body, BodyMaps, Driver},
};

use bpfcost_model::{Case, Pair, Role, Sizing};

/// Loads of a case with stacks where instructions are counted: what such a program costs goes by how the
/// stack hashes, and so by where the kernel and its programs lie in memory.
const STACK_LOADS: usize = 8;

/// Parameters of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachCase {
    /// A driver's events with nothing attached.
    Alone(Driver),
    /// A program attached to them.
    Program {
        /// Mechanism that attaches the program.
        attach: Attach,
        /// Work that the program does for each event.
        body: Body,
        /// True if `bpf_stats` is on.
        stats: bool,
    },
}

/// Every case, in the order of tables: families together, their floors last.
pub(super) fn all() -> impl Iterator<Item = AttachCase> {
    let programs = Attach::ALL.into_iter().flat_map(|attach| {
        Body::ALL.into_iter().flat_map(move |body| {
            let stats = [false, true]
                .into_iter()
                .filter(move |&on| !on || taxed(attach, body));
            stats.map(move |stats| AttachCase::Program {
                attach,
                body,
                stats,
            })
        })
    });
    programs.chain(Driver::ALL.into_iter().map(AttachCase::Alone))
}

/// Bodies that also run with `bpf_stats` on: those of study 003. The tax belongs to the mechanism; two
/// bodies show whether it is the same for all. The kernel measures no runs in user space.
fn taxed(attach: Attach, body: Body) -> bool {
    attach.space() == Space::Kernel && matches!(body, Body::Empty | Body::Map)
}

impl AttachCase {
    /// Parses the factors of a case; returns `None` if the case does not belong to this experiment.
    pub(super) fn from_case(case: &Case) -> Option<Self> {
        let factor = |name: &str| case.factors.get(name).map(String::as_str);
        let driver = Driver::ALL
            .into_iter()
            .find(|driver| Some(driver.name()) == factor("driver"))?;
        if case.role == Role::Floor {
            return Some(AttachCase::Alone(driver));
        }
        let named = |attach: &Attach| Some(attach.name()) == factor("attach");
        Some(AttachCase::Program {
            attach: Attach::ALL.into_iter().find(named)?,
            body: Body::ALL
                .into_iter()
                .find(|body| Some(body.name()) == factor("body"))?,
            stats: factor("stats") == Some("on"),
        })
    }

    pub(super) fn driver(self) -> Driver {
        match self {
            AttachCase::Alone(driver) => driver,
            AttachCase::Program { attach, .. } => attach.driver(),
        }
    }

    fn name(self) -> String {
        match self {
            AttachCase::Alone(driver) => format!("none/{driver}"),
            AttachCase::Program {
                attach,
                body,
                stats,
            } => format!("{attach}/{body}{}", if stats { "/stats" } else { "" }),
        }
    }

    /// Kernel features that this case needs, the most informative first.
    pub(super) fn needs(self) -> Vec<Feature> {
        match self {
            AttachCase::Alone(driver) => driver.needs().to_vec(),
            AttachCase::Program { attach, body, .. } => {
                [attach.needs(), body.needs().to_vec()].concat()
            }
        }
    }

    /// Returns the reason why this case is measured on no kernel; `None` if it can be measured.
    pub(super) fn never(self) -> Option<&'static str> {
        match self {
            AttachCase::Program {
                attach: Attach::KprobeMultiAll,
                body,
                ..
            } if !matches!(body, Body::Empty | Body::Map) => {
                Some("not measured: attaching to all functions takes seconds each time")
            }
            AttachCase::Program {
                attach: Attach::XdpNative,
                stats: true,
                ..
            } => Some(
                "not measured: a BPF program sends the frames, and bpf_stats would slow it too",
            ),
            AttachCase::Program { attach, body, .. } => attach.refuses(body),
            _ => None,
        }
    }
}

/// The case of that meaning.
pub(super) fn case(way: AttachCase) -> Case {
    let driver = way.driver();
    let mut factors = BTreeMap::from([("driver".to_owned(), driver.name().to_owned())]);
    let (role, about, most) = match way {
        AttachCase::Alone(_) => (Role::Floor, driver.about().to_owned(), driver.most()),
        AttachCase::Program {
            attach,
            body,
            stats,
        } => {
            factors.insert("attach".into(), attach.name().into());
            factors.insert("body".into(), body.name().into());
            factors.insert("stats".into(), if stats { "on" } else { "off" }.into());
            let tax = if stats { ", bpf_stats on" } else { "" };
            let most = [driver.most(), BodyMaps::most(body)]
                .into_iter()
                .flatten()
                .min();
            (Role::Case, format!("{}{tax}", body.about()), most)
        }
    };
    Case {
        name: way.name(),
        group: match role {
            Role::Case => driver.about().into(),
            Role::Floor => "nothing attached".into(),
        },
        factors,
        about,
        role,
        floor: (role == Role::Case).then(|| AttachCase::Alone(driver).name()),
        sizing: Sizing::Calibrated { most },
        loads: match way {
            AttachCase::Program {
                body: Body::Stack, ..
            } => STACK_LOADS,
            _ => 0,
        },
        ..Case::default()
    }
}

/// Returns the pair of a case and its baseline: a body against the empty one, `bpf_stats` on against off. The empty
/// body has no pair: its cost is its net.
pub(super) fn pair(way: AttachCase) -> Option<Pair> {
    if way.never().is_some() {
        return None;
    }
    let AttachCase::Program {
        attach,
        body,
        stats,
    } = way
    else {
        return None;
    };
    let (baseline, about) = match (body, stats) {
        (_, true) => (body, "tax of bpf_stats"),
        (Body::Empty, false) => return None,
        (_, false) => (Body::Empty, "body"),
    };
    Some(Pair {
        case: way.name(),
        baseline: AttachCase::Program {
            attach,
            body: baseline,
            stats: false,
        }
        .name(),
        about: about.to_owned(),
    })
}
