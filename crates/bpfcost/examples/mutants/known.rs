//! Known mutants that survive.

use std::collections::BTreeMap;

/// Lines `= REASON` (no less right), `~ WHERE` (not reached) or `! MEANING` (a gap), and below each the names of its
/// mutants.
const LIST: &str = include_str!("known.txt");

/// Reasons for a mutant to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The mutant is as right as the source.
    Equivalent,
    /// No case of the judge runs it, or with values that make a difference.
    Unreached,
    /// No check sees it.
    Gap,
}

/// The mutants that may survive, by name.
pub(crate) fn read() -> BTreeMap<&'static str, Reason> {
    let mut reason = Reason::Gap;
    let mut known = BTreeMap::new();
    for line in LIST.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.split(' ').next() {
            Some("#") => {}
            Some("=") => reason = Reason::Equivalent,
            Some("~") => reason = Reason::Unreached,
            Some("!") => reason = Reason::Gap,
            _ => assert!(known.insert(line, reason).is_none(), "listed twice: {line}"),
        }
    }
    known
}
