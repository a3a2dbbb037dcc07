//! The crates of this workspace and their arrows are those that ARCHITECTURE.md draws, and each arrow leads down.

use std::{collections::BTreeMap, fs, process::Command};

use serde_json::Value;

use crate::docs::root;

/// Between a crate and those that it uses.
const ARROW: &str = " ──▶";

/// The crates that each crate uses, without the common beginning of their names.
type Arrows = BTreeMap<String, Vec<String>>;

fn short(name: &str) -> String {
    name.strip_prefix("bpfcost-").unwrap_or(name).to_owned()
}

/// As Cargo has them; crates for tests alone left out.
fn of_cargo() -> Arrows {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let names: Vec<String> = packages.iter().map(name).collect();
    let uses = |package: &Value| -> Vec<String> {
        let all = package["dependencies"].as_array().expect("dependencies");
        let built = all.iter().filter(|one| one["kind"] != "dev").map(name);
        let mut own: Vec<String> = (built.filter(|one| names.contains(one)))
            .map(|one| short(&one))
            .collect();
        own.sort();
        own
    };
    let arrows = packages.iter();
    arrows
        .map(|package| (short(&name(package)), uses(package)))
        .collect()
}

/// As the page draws them: a line each, the highest first.
fn drawn() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a page");
    let (_, section) = text.split_once("\n## Crates\n").expect("a section");
    let (section, _) = section.split_once("\n## ").expect("another section");
    let line = |line: &str| {
        let (name, used) = line.split_once(ARROW)?;
        let used = used.split(',').map(|one| one.trim().to_owned());
        let used = used.filter(|one| !one.is_empty());
        Some((name.trim().to_owned(), used.collect()))
    };
    section.lines().filter_map(line).collect()
}

#[test]
fn arrows_are_as_drawn_and_lead_down() {
    let drawn = drawn();
    assert_eq!(drawn.iter().cloned().collect::<Arrows>(), of_cargo());
    for (at, (name, used)) in drawn.iter().enumerate() {
        for one in used {
            let below = drawn[at + 1..].iter().any(|(other, _)| other == one);
            assert!(below, "{name} uses {one}, which is not below it");
        }
    }
}
