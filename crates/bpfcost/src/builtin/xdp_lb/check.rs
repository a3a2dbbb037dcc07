//! Compares what a batch did with what was expected, and reports each difference.

use std::ops::RangeInclusive;

use bpfcost_bpf::lb::{Flood, LbCounters, LruEntry};

use super::model::Expected;
use bpfcost_model::Problem;

/// Maximum number of wrong counters that a problem lists.
const SHOWN: usize = 8;

/// Period over which the datapath counts new connections before it starts again from zero.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

const ACTIONS: [&str; 5] = [
    "XDP_ABORTED",
    "XDP_DROP",
    "XDP_PASS",
    "XDP_TX",
    "XDP_REDIRECT",
];
const EVENTS: [&str; 4] = [
    "VIP packets",
    "lru misses",
    "TCP lru misses",
    "flooded connections",
];

/// Checks a table's entry of the flow that was used last.
pub(super) fn entry(
    expected: Option<u32>,
    used_since_ns: Option<u64>,
    got: Option<LruEntry>,
) -> Option<Problem> {
    let server = |server: Option<u32>| {
        server.map_or("no entry".to_owned(), |server| {
            format!("an entry with server {server}")
        })
    };
    let problem = |expected, got| Problem {
        check: "lru entry of the last flow".into(),
        expected,
        got,
        detail: "the flow table was not used as this scenario expects".into(),
    };
    if expected != got.map(|entry| entry.real) {
        return Some(problem(
            server(expected),
            server(got.map(|entry| entry.real)),
        ));
    }
    let last_use_ns = got?.last_use_ns;
    match used_since_ns {
        None if last_use_ns == 0 => None,
        None => Some(problem(
            "no time of use".into(),
            format!("{last_use_ns} ns"),
        )),
        Some(since) if last_use_ns >= since => None,
        Some(since) => Some(problem(
            format!("used since {since} ns"),
            format!("{last_use_ns} ns"),
        )),
    }
}

/// The new connections that a CPU counted of so many misses, from `before` on, whose second is over. The first miss
/// begins another second; a batch that was held up may have met one more, and then the count began again.
pub(super) fn flood(
    misses: u64,
    before: Flood,
    got: Flood,
    during_ns: RangeInclusive<u64>,
) -> Option<Problem> {
    let held_up = during_ns.end() - during_ns.start() > SECOND_NS;
    let start = got.second_start_ns;
    let right = match misses {
        0 => start == before.second_start_ns && got.connections == before.connections,
        _ if held_up => (1..=misses).contains(&got.connections) && during_ns.contains(&start),
        _ => got.connections == misses && during_ns.contains(&start),
    };
    (!right).then(|| Problem {
        check: "new connections of this second".into(),
        expected: if misses == 0 { before.connections } else { misses }.to_string(),
        got: got.connections.to_string(),
        detail: format!(
            "the datapath checks each miss for a flood; the second that it counts began at {start} ns, \
             the batch at {} ns",
            during_ns.start()
        ),
    })
}

/// The action that an operation ended with.
pub(super) fn action(what: &str, expected: u32, got: u32) -> Option<Problem> {
    let name = |action: u32| {
        ACTIONS
            .get(action as usize)
            .map_or(action.to_string(), ToString::to_string)
    };
    (expected != got).then(|| Problem {
        check: format!("action of {what}"),
        expected: name(expected),
        got: name(got),
        detail: "the datapath took another path; nothing is reported for this case".into(),
    })
}

/// Every counter of a CPU between `before` and `after`.
pub(super) fn counters(
    expected: &Expected,
    before: &LbCounters,
    after: &LbCounters,
    ops: u64,
) -> Option<Problem> {
    let flat = |counters: &LbCounters| -> Vec<(String, u64)> {
        let events = counters.events.iter().enumerate();
        let actions = counters.actions.iter().enumerate();
        let misses = counters.real_misses.iter().enumerate();
        let name =
            |names: &[&str], i: usize| names.get(i).map_or(i.to_string(), ToString::to_string);
        let mut all: Vec<(String, u64)> = Vec::with_capacity(2 * counters.reals.len() + 256);
        all.extend(events.map(|(i, &n)| (name(&EVENTS, i), n)));
        all.extend(actions.map(|(i, &n)| (name(&ACTIONS, i), n)));
        for (what, traffic) in [("VIP", &counters.vips), ("server", &counters.reals)] {
            for (i, &[packets, bytes]) in traffic.iter().enumerate() {
                all.push((format!("packets of {what} {i}"), packets));
                all.push((format!("bytes of {what} {i}"), bytes));
            }
        }
        all.extend(misses.map(|(i, &n)| (format!("watched misses of server {i}"), n)));
        all
    };
    if gained(before, after).as_ref() == Some(&expected.counters) {
        return None;
    }
    let wrong: Vec<(String, u64, u64)> = flat(&expected.counters)
        .into_iter()
        .zip(flat(before).into_iter().zip(flat(after)))
        .map(|((name, want), ((_, old), (_, new)))| (name, want, new.wrapping_sub(old)))
        .filter(|(_, want, got)| want != got)
        .collect();
    let (name, want, got) = wrong
        .first()
        .cloned()
        .unwrap_or_else(|| ("number of counters".into(), 0, 0));
    let mut detail: Vec<String> = wrong
        .iter()
        .take(SHOWN)
        .map(|(name, want, got)| format!("{name}: expected {want}, got {got}"))
        .collect();
    if wrong.len() > SHOWN {
        detail.push(format!("and {} more counters", wrong.len() - SHOWN));
    }
    Some(Problem {
        check: name,
        expected: want.to_string(),
        got: format!("{got} in {ops} operations"),
        detail: detail.join("\n"),
    })
}

/// Returns the increase of each counter; `None` if the two have different numbers of counters.
fn gained(before: &LbCounters, after: &LbCounters) -> Option<LbCounters> {
    fn minus(before: &[u64], after: &[u64]) -> Option<Vec<u64>> {
        (before.len() == after.len()).then(|| {
            after
                .iter()
                .zip(before)
                .map(|(new, old)| new.wrapping_sub(*old))
                .collect()
        })
    }
    fn minus2(before: &[[u64; 2]], after: &[[u64; 2]]) -> Option<Vec<[u64; 2]>> {
        (before.len() == after.len()).then(|| {
            let both = after.iter().zip(before);
            both.map(|(n, o)| [n[0].wrapping_sub(o[0]), n[1].wrapping_sub(o[1])])
                .collect()
        })
    }
    Some(LbCounters {
        events: minus(&before.events, &after.events)?,
        actions: minus(&before.actions, &after.actions)?,
        vips: minus2(&before.vips, &after.vips)?,
        reals: minus2(&before.reals, &after.reals)?,
        real_misses: minus(&before.real_misses, &after.real_misses)?,
    })
}
