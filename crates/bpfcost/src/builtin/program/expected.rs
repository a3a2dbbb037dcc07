//! Compares what runs of a program do with what a person expects of them.

use std::collections::BTreeMap;

use crate::builtin::packet_diff;
use bpfcost_model::Behaviour;
use bpfcost_model::{Problem, differs};

/// Returns the first change of maps and variables that differs from the amounts of the command line. `is_read` returns
/// whether a place is compared at all.
pub(super) fn amounts(
    wanted: &BTreeMap<String, i64>,
    seen: &Behaviour,
    is_read: impl Fn(&str) -> bool,
) -> Option<Problem> {
    let problem = |(place, amount): (&String, &i64)| {
        let got = if is_read(place) {
            said(seen.per_run.get(place).copied().unwrap_or(Some(0)))
        } else {
            UNKNOWN.to_owned()
        };
        let detail = "what a run changes there is not what --expect says";
        differs(
            &format!("{place} in each run"),
            said(Some(*amount)),
            got,
            detail,
        )
    };
    wanted.iter().find_map(problem)
}

/// Text in place of the change of a place that is not compared.
const UNKNOWN: &str = "unknown: there is no such number, or what it is in can't be compared";

/// The map or the variable of a place.
fn name_of(place: &str) -> &str {
    place.split(['[', '@']).next().unwrap_or(place)
}

/// Returns the first difference between the recorded behaviour and that of the runs now.
pub(super) fn behaviour(recorded: &Behaviour, seen: &Behaviour) -> Option<Problem> {
    let code = differs(
        "recorded return code",
        recorded.code,
        seen.code,
        "the program does not return what it returned when that was recorded",
    );
    let packet = || packet_diff::problem("the recorded run", &recorded.packet, &seen.packet);
    code.or_else(packet).or_else(|| {
        let mut places: Vec<&String> = recorded.per_run.keys().chain(seen.per_run.keys()).collect();
        places.sort();
        places.into_iter().find_map(|place| {
            let amount = |all: &Behaviour| all.per_run.get(place).copied().unwrap_or(Some(0));
            let wanted = amount(recorded);
            // Places that changed by different amounts when recorded may do so now, or happen not to.
            wanted?;
            if recorded.unread.contains(name_of(place)) {
                return None;
            }
            let got = if seen.unread.contains(name_of(place)) {
                UNKNOWN.to_owned()
            } else {
                said(amount(seen))
            };
            differs(
                &format!("recorded change of {place} in each run"),
                said(wanted),
                got,
                "a run does not change there what it changed when that was recorded",
            )
        })
    })
}

fn said(amount: Option<i64>) -> String {
    match amount {
        Some(amount) => format!("{amount:+}"),
        None => "different amounts".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Behaviour {
        Behaviour {
            code: 2,
            length: 2,
            packet: vec![1, 2],
            per_run: BTreeMap::from([("stats[0]".to_owned(), Some(1)), ("last".to_owned(), None)]),
            unread: ["large".to_owned()].into(),
            ..Behaviour::default()
        }
    }

    #[test]
    fn amounts_are_compared() {
        let got = |place: &str, amount| {
            let wanted = BTreeMap::from([(place.to_owned(), amount)]);
            let is_read = |place: &str| place != "large[7]@8";
            amounts(&wanted, &seen(), is_read).map(|problem| (problem.expected, problem.got))
        };
        let differ = |wanted: &str, got: &str| Some((wanted.to_owned(), got.to_owned()));
        assert_eq!(got("stats[0]", 1), None);
        assert_eq!(got("stats[1]", 0), None);
        assert_eq!(got("stats[0]", -2), differ("-2", "+1"));
        assert_eq!(got("stats[1]", 1), differ("+1", "+0"));
        assert_eq!(got("last", 1), differ("+1", "different amounts"));
        assert_eq!(got("large[7]@8", 0), differ("+0", UNKNOWN));
    }

    #[test]
    fn each_difference_from_a_recorded_run_is_a_problem() {
        let check = |change: &dyn Fn(&mut Behaviour)| {
            let mut other = seen();
            change(&mut other);
            behaviour(&seen(), &other).map(|problem| problem.check)
        };
        let with = |place: &str, amount: Option<Option<i64>>| {
            check(&|other| {
                other.per_run.remove(place);
                let amount = amount.map(|amount| (place.to_owned(), amount));
                other.per_run.extend(amount);
            })
        };
        assert_eq!(check(&|_| ()), None);
        let code = check(&|other| other.code = 1);
        assert_eq!(code.as_deref(), Some("recorded return code"));
        let packet = check(&|other| other.packet.push(3));
        assert_eq!(packet.as_deref(), Some("packet of the recorded run"));
        let wanted = |place| Some(format!("recorded change of {place} in each run"));
        for amount in [Some(Some(2)), Some(None), None] {
            assert_eq!(with("stats[0]", amount), wanted("stats[0]"));
        }
        assert_eq!(with("flows", Some(Some(1))), wanted("flows"));
        assert_eq!(with("last", None), None);
        assert_eq!(with("last", Some(Some(7))), None);
        // A place that was not compared then is not compared now; one that was compared must be.
        assert_eq!(with("large[1]", Some(Some(1))), None);
        let lost = check(&|other| {
            other.per_run.remove("stats[0]");
            other.unread.insert("stats".to_owned());
        });
        assert_eq!(lost, wanted("stats[0]"));
    }
}
