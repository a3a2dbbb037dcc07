//! Runs that can't be continued: another experiment, another machine, damage; and that nothing is lost
//! by trying.

use std::fs;

use crate::{
    finished::finished,
    journals::{assert_holds, record, trials},
    require,
    tool::Tool,
};

/// A run that was killed in its last epoch, its journal changed.
fn killed(change: impl Fn(&str) -> String) -> (Tool, String) {
    let tool = Tool::new();
    let journal = &finished().journal;
    let end = journal.find("\n{\"stopped\"").expect("it ended") + 1;
    let text = change(&journal[..end]);
    tool.write("x.json.journal", &text);
    (tool, text)
}

/// The header's value under these keys, in place of what it is.
fn header(text: &str, keys: [&str; 2], value: &str) -> String {
    let (first, rest) = text.split_once('\n').expect("a header");
    let mut header: serde_json::Value = serde_json::from_str(first).expect("JSON");
    header[keys[0]][keys[1]] = value.into();
    format!("{header}\n{rest}")
}

#[test]
fn another_experiment_or_machine_is_refused_and_kept() {
    if !require::host() {
        return;
    }
    for (keys, words) in [
        (["plan", "experiment"], "no experiment other"),
        (["machine", "kernel"], "another machine or kernel (other"),
        (["machine", "cpu"], "another machine or kernel (other"),
    ] {
        let (tool, text) = killed(|text| header(text, keys, "other"));
        tool.refuses("run --resume x.json", 2, &[words]);
        let left = fs::read_to_string(tool.path("x.json.journal")).expect("the journal");
        assert!(left.starts_with(&text), "nothing is lost");
    }
}

#[test]
fn another_number_of_rounds_is_refused() {
    if !require::host() {
        return;
    }
    let third = "\"round\":2,";
    let (tool, _) = killed(|text| {
        assert!(text.contains(third), "{text}");
        let lines = text.split_inclusive('\n');
        lines.filter(|line| !line.contains(third)).collect()
    });
    let words = ["have 2 rounds", "start anew without --resume"];
    tool.refuses("run --resume x.json", 2, &words);
}

#[test]
fn damage_is_told_with_a_way_to_keep_what_comes_before() {
    if !require::host() {
        return;
    }
    let (tool, text) = killed(|text| {
        let lines = text.lines().count();
        let damaged = |(index, line): (usize, &str)| {
            if index + 5 == lines {
                line[..line.len() / 2].to_owned() + "\n"
            } else {
                line.to_owned() + "\n"
            }
        };
        text.lines().enumerate().map(damaged).collect()
    });
    let said = tool.refuses("run --resume x.json", 2, &["damaged at line", "head -n"]);
    let left = fs::read_to_string(tool.path("x.json.journal")).expect("the journal");
    assert_eq!(left, text, "nothing is changed");
    // The way out that it names works.
    let cut = said
        .split_once("(head")
        .and_then(|(_, rest)| rest.split_once(')'));
    let (cut, _) = cut.expect("a command in brackets");
    let cut = &format!("head{cut}");
    assert_eq!(tool.shell(cut).code, Some(0), "{cut}");
    let kept = fs::read_to_string(tool.path("new.journal")).expect("what came before");
    let whole = record(&tool.answers("run --resume new.journal --format json"));
    assert_holds(&whole, &trials(&kept));
    assert_eq!(whole["stop"], "rounds");
}
