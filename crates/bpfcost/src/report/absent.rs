//! What can't run anywhere in a view, in a line a reason instead of rows without numbers.

/// A reason of a case that can't run, and the way out that follows it, if there is one.
pub(super) fn parted(reason: &str) -> (&str, Option<&str>) {
    match reason.split_once(". ") {
        Some((why, remedy)) => (why, Some(remedy)),
        None => (reason, None),
    }
}

/// Names with their reasons as lines, those of one reason together.
pub(super) fn reasons(absent: &[(String, String)]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in absent {
        let (why, _) = parted(reason);
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
pub(super) fn remedies(absent: &[(String, String)]) -> Vec<String> {
    let mut remedies: Vec<&str> = Vec::new();
    for (_, reason) in absent {
        let remedy = parted(reason).1;
        remedies.extend(remedy.filter(|remedy| !remedies.contains(remedy)));
    }
    let line = |remedy: &str| format!("{}.", remedy.trim_end_matches('.'));
    remedies.into_iter().map(line).collect()
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
