//! Cases and pairs of `pool`: a pool under a load, the loop without a pool, and cache lines that CPUs change in
//! turn.

use std::collections::BTreeMap;

use bpfcost_threads::{CacheLine, PoolKind};

use super::{load::PoolLoad, space::Space};
use bpfcost_model::{Case, Pair, Role, Sizing};

/// Parameters of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolCase {
    /// A pool under a load.
    Pool(PoolKind, PoolLoad),
    /// The same loop, each thread with its own object.
    Alone(PoolLoad),
    /// A cache line that is changed.
    Line(CacheLine),
}

/// Cache lines: who changes them, their names, and what that means.
const LINES: [(CacheLine, &str, &str); 3] = [
    (CacheLine::Own, "own", "changed by one CPU alone"),
    (
        CacheLine::Near,
        "near",
        "changed in turn with another core of the socket: half a round trip",
    ),
    (
        CacheLine::Far,
        "far",
        "changed in turn with a core of another socket: half a round trip",
    ),
];

impl PoolCase {
    pub(super) fn name(self) -> String {
        let named = |first: &str, point: PoolLoad| {
            let head = format!("{first}/{}", point.threads);
            [vec![head], point.unusual()].concat().join("/")
        };
        match self {
            PoolCase::Pool(kind, point) => named(kind.name(), point),
            PoolCase::Alone(point) => named("none", point),
            PoolCase::Line(line) => format!("line/{}", LINES[line as usize].1),
        }
    }

    /// The case of that meaning.
    pub(super) fn case(self) -> Case {
        let threads = |count: usize| match count {
            1 => "1 thread".to_owned(),
            more => format!("{more} threads"),
        };
        let (group, factors, about) = match self {
            PoolCase::Pool(kind, point) => {
                let mut factors = point.factors();
                factors.insert("pool".into(), kind.name().into());
                factors.insert("objects".into(), point.objects.to_string());
                let about = format!("{}: {}", threads(point.threads), kind.about());
                (point.group(), factors, about)
            }
            PoolCase::Alone(point) => {
                let about = format!("{}, each with an object", threads(point.threads));
                ("no pool".to_owned(), point.factors(), about)
            }
            PoolCase::Line(line) => {
                let (_, name, about) = LINES[line as usize];
                let factors = BTreeMap::from([("line".to_owned(), name.to_owned())]);
                ("cache lines".to_owned(), factors, about.to_owned())
            }
        };
        Case {
            name: self.name(),
            group,
            factors,
            about,
            role: match self {
                PoolCase::Alone(_) => Role::Floor,
                PoolCase::Pool(..) | PoolCase::Line(_) => Role::Case,
            },
            floor: match self {
                PoolCase::Pool(_, point) => Some(PoolCase::Alone(point.bare()).name()),
                PoolCase::Alone(_) | PoolCase::Line(_) => None,
            },
            sizing: Sizing::Calibrated { most: None },
            ..Case::default()
        }
    }
}

/// Every case: pools load by load, cache lines, floors.
pub(super) fn all(space: &Space) -> Vec<PoolCase> {
    let mut ways = Vec::new();
    let mut floors: Vec<PoolCase> = Vec::new();
    for (kinds, points) in space.loads() {
        for &kind in kinds {
            ways.extend(points.iter().map(|&point| PoolCase::Pool(kind, point)));
        }
        for floor in points.iter().map(|point| PoolCase::Alone(point.bare())) {
            if !floors.contains(&floor) {
                floors.push(floor);
            }
        }
    }
    ways.extend(LINES.map(|line| PoolCase::Line(line.0)));
    ways.extend(floors);
    ways
}

/// Pairs that are compared: our pools with the peer and with the list that they replaced, and arrays with and without
/// cache lines of their own for the slots.
const COMPARED: [(PoolKind, PoolKind); 7] = [
    (PoolKind::Array, PoolKind::CrossbeamArray),
    (PoolKind::Array, PoolKind::Freelist),
    (PoolKind::ArrayPadded, PoolKind::CrossbeamArray),
    (PoolKind::ArrayPadded, PoolKind::Freelist),
    (PoolKind::ArrayPadded, PoolKind::Array),
    (PoolKind::Percpu, PoolKind::CrossbeamArray),
    (PoolKind::Percpu, PoolKind::Freelist),
];

/// The comparisons, at each number of threads of the first load: more of them would make each less sure.
pub(super) fn pairs(space: &Space) -> Vec<Pair> {
    let Some((kinds, points)) = space.loads().into_iter().next() else {
        return Vec::new();
    };
    let there = |pair: &&(PoolKind, PoolKind)| kinds.contains(&pair.0) && kinds.contains(&pair.1);
    COMPARED
        .iter()
        .filter(there)
        .flat_map(|&(kind, against)| {
            points.iter().map(move |&point| Pair {
                case: PoolCase::Pool(kind, point).name(),
                baseline: PoolCase::Pool(against, point).name(),
                about: format!("{} against {}", kind.name(), against.name()),
            })
        })
        .collect()
}
