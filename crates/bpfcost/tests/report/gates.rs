//! Sentences on comparisons that have no result, and on runs that were aborted.

use bpfcost_record::samples::{aborted, changes, new, old};
use bpfcost_report::{compare, markdown, summary};

#[test]
fn a_case_without_an_interval_fails_the_gate_and_says_so() {
    let mut new_side = new(&[("a", 150.0)]);
    new_side[0].cases[0].raw.as_mut().expect("a cost").ci95 = None;
    let found = changes(&old(&[("a", 100.0)]), &new_side);
    assert_eq!(
        compare::sentence(&found),
        "The gate FAILED, because it could not judge every case: of 1 case 1 is unresolved. A rise of any size could \
         have gone unnoticed in a."
    );
    let junit = compare::junit(&found).expect("a report");
    assert!(
        junit.contains("failures=\"1\"") && junit.contains("could-not-see"),
        "{junit}"
    );
}

#[test]
fn a_gate_without_a_case_in_common_says_so() {
    let found = changes(&old(&[("a", 1.0)]), &new(&[("b", 1.0)]));
    let sentence = compare::sentence(&found);
    assert!(sentence.contains("no case was compared"), "{sentence}");
}

/// If one of two comparisons is undisturbed, the other is marked.
#[test]
fn what_is_compared_as_found_is_marked_beside_others() {
    let values = [("a", 100.0), ("b", 100.0)];
    for undisturbed in [[false, false], [true, false], [true, true]] {
        let mut found = changes(&old(&values), &new(&values));
        for (change, undisturbed) in found.cases.iter_mut().zip(undisturbed) {
            change.undisturbed = undisturbed;
        }
        let shown = markdown::render(&compare::view(&found));
        let marked = shown.matches("; as found").count();
        assert_eq!(marked, usize::from(undisturbed == [true, false]), "{shown}");
    }
}

/// Six epochs are the fewest that bear an interval.
#[test]
fn an_aborted_run_says_what_it_measured() {
    for (epochs, words) in [
        (0, "Nothing was measured before that."),
        (
            5,
            "cost too much. Too little was measured before that for a result.",
        ),
        (6, "cost too much. Before that: "),
    ] {
        let text = summary::sentence(&aborted(epochs));
        let is_end = words.ends_with('.');
        assert!(
            if is_end {
                text.ends_with(words)
            } else {
                text.contains(words)
            },
            "{text}"
        );
    }
}
