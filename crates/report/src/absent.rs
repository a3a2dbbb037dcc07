//! Cases without a number in a view: those that can't run anywhere as one line per reason instead of rows, the
//! others by footnotes.

use std::collections::BTreeSet;

/// A reason of a case that can't run, and the way out that follows it, if there is one.
pub(crate) fn split_remedy(reason: &str) -> (&str, Option<&str>) {
    match reason.split_once(". ") {
        Some((why, remedy)) => (why, Some(remedy)),
        None => (reason, None),
    }
}

/// Names with their reasons as lines, those of one reason together.
fn reasons(absent: &[(String, String)]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in absent {
        let (why, _) = split_remedy(reason);
        match reasons.iter_mut().find(|one| one.0 == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    let line = |(why, names): (&str, Vec<&str>)| {
        let names = names.join(", ");
        format!("Not here: {names}: {}.", why.trim_end_matches('.'))
    };
    reasons.into_iter().map(line).collect()
}

/// The ways out, each once.
pub(crate) fn remedies(absent: &[(String, String)]) -> Vec<String> {
    let mut remedies: Vec<&str> = Vec::new();
    for (_, reason) in absent {
        let remedy = split_remedy(reason).1;
        remedies.extend(remedy.filter(|remedy| !remedies.contains(remedy)));
    }
    let line = |remedy: &str| format!("{}.", remedy.trim_end_matches('.'));
    remedies.into_iter().map(line).collect()
}

/// Index of the footnote that gives a reason; each reason is added once.
pub(crate) fn footnote(footnotes: &mut Vec<String>, why: &str) -> usize {
    let place = footnotes.iter().position(|note| note == why);
    place.unwrap_or_else(|| {
        footnotes.push(why.to_owned());
        footnotes.len() - 1
    })
}

/// Notes on missing numbers, one line each: rows that can't run, and the footnotes at some indices.
pub(crate) fn notes(
    absent: &[(String, String)],
    footnotes: &[String],
    places: impl Iterator<Item = usize>,
) -> Vec<String> {
    let places: BTreeSet<usize> = places.collect();
    let marked = places.into_iter().filter_map(|place| {
        let note = footnotes.get(place)?;
        Some(format!("{} {note}", mark(Some(place))))
    });
    reasons(absent).into_iter().chain(marked).collect()
}

/// The mark of a footnote: its number, raised.
pub(crate) fn mark(footnote: Option<usize>) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digits = footnote.map_or_else(String::new, |place| (place + 1).to_string());
    digits
        .bytes()
        .filter_map(|digit| RAISED.get(usize::from(digit - b'0')))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_reason() {
        let of = |name: &str, reason: &str| (name.to_owned(), reason.to_owned());
        let absent = [
            of("a", "no kprobes (needs 4.17; this is 6.18.5). Go there"),
            of("b", "no stacks"),
            of("c", "no kprobes (needs 4.17; this is 6.18.5). Go there"),
        ];
        assert_eq!(
            reasons(&absent),
            [
                "Not here: a, c: no kprobes (needs 4.17; this is 6.18.5).",
                "Not here: b: no stacks."
            ]
        );
        assert_eq!(remedies(&absent), ["Go there."]);
    }
}
