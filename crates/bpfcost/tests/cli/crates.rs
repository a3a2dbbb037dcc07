//! The crates of this workspace and their arrows are those that ARCHITECTURE.md draws, and each arrow leads down. Those
//! that may be published can be packaged.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use regex::Regex;
use serde_json::Value;

use crate::docs::{plain, root};

/// Between a crate and those that it uses.
const ARROW: &str = " ──▶";

/// The crates that each crate uses, without the common beginning of their names.
type Arrows = BTreeMap<String, Vec<String>>;

fn short(name: &str) -> String {
    name.strip_prefix("bpfcost-").unwrap_or(name).to_owned()
}

fn name(value: &Value) -> String {
    value["name"].as_str().expect("a name").to_owned()
}

/// Output of Cargo, which must succeed.
fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--offline", "--quiet"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn packages() -> Vec<Value> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version=1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// As Cargo has them; crates for tests alone left out.
fn of_cargo() -> Arrows {
    let packages = packages();
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

/// The files of a package are all that its sources include, with a page and licences.
fn check_files(package: &Value, including: &Regex) {
    let name = name(package);
    let list = cargo(&["package", "--list", "--allow-dirty", "--package", &name]);
    let files: Vec<&Path> = list.lines().map(Path::new).collect();
    for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        assert!(files.contains(&file.as_ref()), "{name} lacks {file}");
    }
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    let folder = manifest.parent().expect("a folder");
    let sources = files.iter().map(|file| folder.join(file));
    for source in sources.filter(|file| file.extension() == Some("rs".as_ref())) {
        let text = fs::read_to_string(&source).expect("a source");
        for path in including.captures_iter(&text) {
            let path = plain(&source.with_file_name(&path[1]));
            let own = path.strip_prefix(folder);
            let packaged = own.is_ok_and(|path| files.contains(&path));
            assert!(packaged, "{source:?} includes {path:?}, not in the package");
        }
    }
}

#[test]
fn crates_without_publish_false_can_be_packaged() {
    let mut packages = packages();
    packages.retain(|package| package["publish"].is_null());
    let names: Vec<String> = packages.iter().map(name).collect();
    let folder = tempfile::TempDir::new().expect("a folder");
    let folder = folder.path().to_str().expect("text");
    let mut command = vec!["package", "--no-verify", "--allow-dirty"];
    command.extend(["--target-dir", folder]);
    command.extend(names.iter().flat_map(|name| ["--package", name]));
    cargo(&command);
    let including = Regex::new(r#"(?:include(?:_str|_bytes)?!\(\s*|#\[path = )"([^"]+)""#);
    let including = including.expect("a pattern");
    for package in &packages {
        check_files(package, &including);
    }
}
