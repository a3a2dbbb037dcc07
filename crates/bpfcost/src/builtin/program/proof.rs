//! Compares what a batch did with what the program did alone.

use std::collections::BTreeSet;

use bpfcost_bpf::program::{Ran, STATE_WORDS};

use crate::builtin::packet_diff;
use bpfcost_model::{Problem, differs};

/// Expected result of each run.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// Return code.
    pub(super) code: u32,
    /// The packet that it leaves.
    pub(super) output: Vec<u8>,
    /// Changes of the words of the context's state.
    pub(super) changes: [i64; STATE_WORDS],
    /// Packets that take turns. Then the code above is that of the first, and the rest is of the last.
    pub(super) turns: Vec<Turn>,
    /// Tables to which the first run of all added entries, and later ones more.
    pub(super) grew: BTreeSet<String>,
}

/// A packet that takes turns with others.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// Name of the packet.
    pub(super) name: String,
    /// Return code of each run on this packet.
    pub(super) code: u32,
}

/// Returns the first difference between the runs of a batch and a run of the program alone, or `None`.
pub(super) fn problem(expected: &Expected, ran: &Ran, ops: u64) -> Option<Problem> {
    let tail_calls = differs(
        "tail calls that the kernel did not make",
        0,
        ran.fallen,
        "runs of a window made more tail calls than the kernel allows (33): the program makes more of them in some runs than in \
         its first",
    );
    let runs = || {
        differs(
            "runs of the program",
            ops,
            ran.runs,
            "the loop does not run the program as often as it says",
        )
    };
    tail_calls
        .or_else(runs)
        .or_else(|| turns(&expected.turns, ran, ops))
        .or_else(|| codes(expected, ran, ops))
        .or_else(|| packet_diff::problem("the last run", &expected.output, &ran.seen.output))
        .or_else(|| {
            let words = |changes: &[i64]| {
                let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
                words.join(" ")
            };
            let detail = "head, tail or metadata of the frame, or fields of the skb, are not as one run leaves them";
            differs(
                "state after the last run",
                words(&expected.changes),
                words(&ran.changes),
                detail,
            )
        })
}

/// That each packet had its turn as often as any other: it was the first one's again behind each round but the last.
fn turns(turns: &[Turn], ran: &Ran, ops: u64) -> Option<Problem> {
    let rounds = ops.checked_div(turns.len() as u64)?;
    let detail = "packets did not take turns, so that the mean is not that of all";
    differs(
        "rounds of packets",
        rounds.saturating_sub(1),
        ran.rounds,
        detail,
    )
}

/// The codes of all runs.
fn codes(wanted: &Expected, ran: &Ran, ops: u64) -> Option<Problem> {
    let code = signed(ran.wrong_code);
    let turn = wanted.turns.get(ran.wrong_turn as usize);
    (ran.wrong > 0).then(|| Problem {
        check: "return codes".into(),
        expected: match turn {
            None => format!("{} in each of {ops} runs", signed(wanted.code)),
            Some(_) => format!("in each of {ops} runs what its packet returns alone"),
        },
        got: match turn {
            None => format!("{code} in {} of them", ran.wrong),
            Some(Turn { name, code: wanted }) => format!(
                "other codes in {} of them: at last {code}, where {name} alone returns {}",
                ran.wrong,
                signed(*wanted)
            ),
        },
        detail: "the program's answer depends on more than the packet: on the time, on chance, or on what earlier runs \
                 left in its maps"
            .into(),
    })
}

/// A code as C has it.
fn signed(code: u32) -> i32 {
    code.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::batch::proved;

    #[test]
    fn each_difference_is_a_problem() {
        let expected = Expected {
            code: 2,
            output: vec![1; 60],
            changes: [0; STATE_WORDS],
            grew: BTreeSet::new(),
            turns: Vec::new(),
        };
        let right = Ran {
            seen: proved(1000, 1, vec![1; 60]),
            runs: 1000,
            wrong: 0,
            wrong_code: 0,
            wrong_turn: 0,
            rounds: 0,
            fallen: 0,
            changes: [0; STATE_WORDS],
            undone: [0; STATE_WORDS],
        };
        let name = |change: fn(&mut Ran)| {
            let mut ran = right.clone();
            change(&mut ran);
            problem(&expected, &ran, 1000).map(|problem| problem.check)
        };
        assert_eq!(name(|_| ()), None);
        assert_eq!(name(|ran| ran.wrong = 1).as_deref(), Some("return codes"));
        // The batch says 1000 operations all the same.
        for runs in [999, 1001] {
            let ran = Ran {
                runs,
                ..right.clone()
            };
            let check = problem(&expected, &ran, 1000).map(|problem| problem.check);
            assert_eq!(check.as_deref(), Some("runs of the program"));
        }
        assert_eq!(
            name(|ran| ran.fallen = 1).as_deref(),
            Some("tail calls that the kernel did not make")
        );
        assert_eq!(
            name(|ran| ran.seen.output[59] = 2).as_deref(),
            Some("packet of the last run")
        );
        assert_eq!(
            name(|ran| ran.changes[11] = 1).as_deref(),
            Some("state after the last run")
        );
    }

    #[test]
    fn a_wrong_code_names_its_packet() {
        let turn = |name: &str, code| Turn {
            name: name.to_owned(),
            code,
        };
        let expected = Expected {
            code: 2,
            output: Vec::new(),
            changes: [0; STATE_WORDS],
            grew: BTreeSet::new(),
            turns: vec![turn("udp", 2), turn("tcp", 3)],
        };
        let ran = Ran {
            seen: proved(1000, 1, Vec::new()),
            runs: 1000,
            wrong: 7,
            wrong_code: 1,
            wrong_turn: 1,
            rounds: 499,
            fallen: 0,
            changes: [0; STATE_WORDS],
            undone: [0; STATE_WORDS],
        };
        let rounds = Ran {
            rounds: 500,
            ..ran.clone()
        };
        let check = problem(&expected, &rounds, 1000).map(|problem| problem.check);
        assert_eq!(check.as_deref(), Some("rounds of packets"));
        let problem = problem(&expected, &ran, 1000).expect("a problem");
        assert_eq!(
            problem.got,
            "other codes in 7 of them: at last 1, where tcp alone returns 3"
        );
    }
}
