//! The JSON Schema of workload files, for editors: `docs/workload.schema.json` is made from the types, and
//! `docs/workload-files.md` names each of its keys.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use schemars::schema_for;
use serde_json::Value;

use crate::Definition;

/// Variable that makes the test write the file instead of comparing it.
const WRITE: &str = "BPFCOST_WRITE_SCHEMA";

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

fn page() -> String {
    fs::read_to_string(docs("workload-files.md")).expect("the page can be read")
}

/// The examples of the page: blocks of TOML. Each is a whole file.
fn examples(page: &str) -> Vec<&str> {
    let blocks = page.split("```toml\n").skip(1);
    blocks
        .map(|block| block.split("```").next().expect("a block ends"))
        .collect()
}

/// Adds the names of all properties in a schema, and of all values that it lists.
fn names(schema: &Value, into: &mut BTreeSet<String>) {
    match schema {
        Value::Object(all) => {
            for (key, value) in all {
                match (key.as_str(), value) {
                    ("properties", Value::Object(properties)) => {
                        into.extend(properties.keys().cloned());
                    }
                    ("const", Value::String(name)) => {
                        into.insert(name.clone());
                    }
                    ("enum", Value::Array(names)) => {
                        into.extend(names.iter().filter_map(Value::as_str).map(str::to_owned));
                    }
                    _ => {}
                }
                names(value, into);
            }
        }
        Value::Array(all) => all.iter().for_each(|one| names(one, into)),
        _ => {}
    }
}

#[test]
fn the_file_is_made_from_the_types() {
    let schema = serde_json::to_string_pretty(&schema_for!(Definition)).expect("JSON") + "\n";
    let file = docs("workload.schema.json");
    if env::var_os(WRITE).is_some() {
        fs::write(&file, &schema).expect("the schema can be written");
    }
    let kept = fs::read_to_string(&file).expect("the schema can be read");
    assert!(
        kept == schema,
        "docs/workload.schema.json is not that of the types\n  Write it again: {WRITE}=1 cargo test -p bpfcost-workload \
         schema"
    );
}

#[test]
fn the_page_names_each_key_and_value() {
    let schema = serde_json::to_value(schema_for!(Definition)).expect("JSON");
    let mut all = BTreeSet::new();
    names(&schema, &mut all);
    assert!(all.len() > 50, "{all:?}");
    let page = page();
    let missing: Vec<_> = (all.iter())
        .filter(|name| !page.contains(&format!("`{name}`")) && !page.contains(&format!("[{name}]")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_examples_of_the_page_are_definitions() {
    let page = page();
    let examples = examples(&page);
    assert!(examples.len() >= 3, "{examples:?}");
    for example in examples {
        let definition = Definition::parse(example);
        assert!(definition.is_ok(), "{definition:?}\n{example}");
    }
}

#[test]
fn a_key_that_the_page_names_is_refused_where_it_does_not_belong() {
    let page = page();
    let example = examples(&page)[0];
    let wrong = format!("within-s = 3\n{example}");
    let problem = Definition::parse(&wrong).expect_err("within-s is a key of [[client]]");
    assert!(problem.what.contains("docs/workload-files.md"), "{problem}");
}
