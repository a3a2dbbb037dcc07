//! `compare` and `report` on records made for it: answers and exit codes.

use bpfcost_record::Record;

use crate::{require, sample_record, tool::Tool};

/// The sample with one case costing more, by this factor.
fn dearer(factor: f64) -> Record {
    let mut record = sample_record::clean();
    let case = record
        .cases
        .iter_mut()
        .find(|case| case.name == "tcp-v4-ch");
    let case = case.expect("it is in the sample");
    case.samples
        .iter_mut()
        .flatten()
        .for_each(|value| *value *= factor);
    if let Some(raw) = &mut case.raw {
        raw.value *= factor;
        raw.ci95 = raw.ci95.map(|ends| ends.map(|end| end * factor));
    }
    record
}

fn tool(factor: f64) -> Tool {
    let tool = Tool::new();
    let json = |record: &Record| serde_json::to_string(record).expect("JSON");
    tool.write("old.json", json(&sample_record::clean()));
    tool.write("new.json", json(&dearer(factor)));
    tool.write("flawed.json", json(&sample_record::flawed()));
    tool
}

#[test]
fn the_same_passes() {
    let tool = tool(1.0);
    let said = tool.says("compare old.json new.json");
    assert_eq!(said.code, Some(0), "{said:?}");
    insta::assert_snapshot!("compare_same", said.out);
}

/// The reason is shown with the record, and where a comparison would need what is lacking.
#[test]
fn what_an_experiment_gives_up_is_shown_with_the_reason() {
    let tool = tool(1.0);
    let mut record = sample_record::clean();
    record.spread.sentinel = None;
    record.machine.programs = None;
    record.waivers.sentinel = Some("it takes a second".to_owned());
    tool.write(
        "lacking.json",
        serde_json::to_string(&record).expect("JSON"),
    );
    let said = tool.says("report lacking.json -o lacking.html");
    assert_eq!(said.code, Some(0), "{said:?}");
    let page = std::fs::read_to_string(tool.path("lacking.html")).expect("a page");
    assert!(page.contains("No sentinel"), "{page}");
    assert!(page.contains("it takes a second"), "{page}");
    let said = tool.says("compare lacking.json new.json");
    assert_eq!(said.code, Some(0), "{said:?}");
    let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for lack in [
        "1 of 2 records have no sentinel (it takes a second)",
        "1 of 2 records have nothing about the timed programs (they give no reason)",
    ] {
        assert!(text.contains(lack), "{text}");
    }
}

#[test]
fn what_costs_more_fails_the_gate() {
    let tool = tool(1.5);
    for (format, word) in [
        ("table", "tcp-v4-ch"),
        ("markdown", "tcp-v4-ch"),
        ("junit", "<failure"),
        ("json", "\"gate\""),
    ] {
        let said = tool.says(&format!("compare old.json new.json --format {format}"));
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.out.contains(word), "{said:?}");
    }
    let said = tool.says("compare old.json new.json --threshold 80%");
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn tables_have_colours_on_a_terminal_alone() {
    let tool = tool(1.5);
    let seen = |before: &str| {
        // Wide enough that no name is broken.
        let script =
            "script -qec 'stty cols 120; $BPFCOST compare old.json new.json' /dev/null </dev/null";
        tool.shell(&format!("{before} {script}")).out
    };
    let shown = seen("");
    if !shown.contains("tcp-v4-ch") {
        require::skip("there is no `script`, which makes a terminal");
        return;
    }
    assert!(shown.contains("\u{1b}["), "{shown}");
    assert!(!seen("NO_COLOR=1").contains("\u{1b}["));
    assert!(
        !tool
            .says("compare old.json new.json")
            .out
            .contains("\u{1b}[")
    );
}

#[test]
fn an_invalid_case_has_a_code_of_its_own() {
    let said = tool(1.0).says("compare old.json flawed.json");
    assert_eq!(said.code, Some(3), "{said:?}");
}

#[test]
fn a_page_is_written_whole() {
    let tool = tool(1.0);
    let said = tool.says("report old.json new.json -o page.html");
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{said:?}");
    assert!(said.err.contains("wrote page.html"), "{said:?}");
    let page = std::fs::read_to_string(tool.path("page.html")).expect("the page");
    assert!(page.trim_end().ends_with("</html>"));
    assert_eq!(
        tool.names(),
        ["flawed.json", "new.json", "old.json", "page.html"]
    );
    let piped = tool.shell("$BPFCOST report old.json -o /dev/stdout | cat");
    assert!(piped.out.trim_end().ends_with("</html>"));
    let full = tool.shell("$BPFCOST report old.json -o /dev/full");
    assert_eq!(full.code, Some(4), "{full:?}");
    full.complains(&["cannot write /dev/full", "-o"]);
}
