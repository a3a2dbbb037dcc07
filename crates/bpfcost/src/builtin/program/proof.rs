//! Compares what a batch did with what the program did alone.

use std::collections::BTreeSet;

use bpfcost_bpf::program::{Ran, STATE_WORDS};

use crate::{
    builtin::packet_diff,
    experiment::{Problem, differs},
};

/// What each run must do.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// What it returns.
    pub(super) code: u32,
    /// The packet that it leaves.
    pub(super) output: Vec<u8>,
    /// How it changes the words of its context's state.
    pub(super) changes: [i64; STATE_WORDS],
    /// Tables to which the first run of all added entries, and later ones more.
    pub(super) grew: BTreeSet<String>,
}

/// What a batch did that the program alone did not, if anything.
pub(super) fn problem(expected: &Expected, ran: &Ran, ops: u64) -> Option<Problem> {
    codes(expected.code, ran, ops)
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

/// The codes of all runs.
fn codes(code: u32, ran: &Ran, ops: u64) -> Option<Problem> {
    (ran.wrong > 0).then(|| Problem {
        check: "return codes".into(),
        expected: format!("{} in each of {ops} runs", signed(code)),
        got: format!("{} in {} of them", signed(ran.wrong_code), ran.wrong),
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
        };
        let right = Ran {
            seen: proved(1000, 1, vec![1; 60]),
            wrong: 0,
            wrong_code: 0,
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
        assert_eq!(
            name(|ran| ran.seen.output[59] = 2).as_deref(),
            Some("packet of the last run")
        );
        assert_eq!(
            name(|ran| ran.changes[11] = 1).as_deref(),
            Some("state after the last run")
        );
    }
}
