//! Names of the menu.

use std::collections::BTreeSet;

use bpfcost_stimulus::{Context, all, find};

#[test]
fn names_are_unique_and_in_kebab_case() {
    let names: BTreeSet<_> = all().map(|stimulus| stimulus.name).collect();
    assert_eq!(names.len(), all().count());
    for stimulus in all() {
        let kebab = |c: char| c == '-' || c.is_ascii_lowercase() || c.is_ascii_digit();
        assert!(stimulus.name.chars().all(kebab), "{}", stimulus.name);
        assert!(!stimulus.about.contains('\n'), "{}", stimulus.name);
        assert_eq!(
            find(stimulus.name).map(|found| found.name),
            Some(stimulus.name)
        );
    }
}

#[test]
fn an_unknown_name_finds_nothing() {
    assert!(find("opens").is_none());
    assert!(find("").is_none());
}

#[test]
fn no_process_is_killed_where_others_may_run() {
    let kills = all()
        .find(|one| one.name == "oom-kill")
        .expect("it is in the menu");
    let refused = kills.prepare(&Context::new(std::env::temp_dir()));
    let refused = refused.expect_err("this is no guest").to_string();
    assert!(refused.contains("for guests alone"), "{refused}");
}
