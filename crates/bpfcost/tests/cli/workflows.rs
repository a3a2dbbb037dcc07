//! Workflows for CI: what is refused before one is written. What its steps do is shown with guests.

use crate::tool::Tool;

const ASKED: &str = "init-ci lb.bpf.o --source https://example.org/bpfcost.git";

/// The workflow that was written, in which nothing is left open and all of these words are.
fn written(tool: &Tool, wanted: &[&str]) -> String {
    let written = std::fs::read_to_string(tool.path("ci.yml")).expect("it was written");
    for words in wanted {
        assert!(written.contains(words), "no `{words}` in {written}");
    }
    for open in ["{%", "{{"] {
        assert!(!written.contains(open), "`{open}` in {written}");
    }
    written
}

#[test]
fn mistakes_are_named_before_anything_is_written() {
    let tool = Tool::new();
    tool.refuses(ASKED, 2, &["top folder of a git repository"]);
    std::fs::create_dir(tool.path(".git")).expect("a folder");
    tool.refuses("init-ci lb.bpf.o", 2, &["--source"]);
    for (more, words) in [
        ("--on exact:6.12", "Name exact:SUITE"),
        ("--on vm:trixie", "Name exact:SUITE"),
        ("--on guest", "guest"),
        ("--on exact:sid --on host", "Write two workflows"),
    ] {
        tool.refuses(&format!("{ASKED} {more}"), 2, &[words]);
    }
    for object in ["/lb.bpf.o", "../lb.bpf.o"] {
        let asked = ASKED.replace("lb.bpf.o", object);
        tool.refuses(&asked, 2, &["is not a path in the repository"]);
    }
    let lines = tool.shell(&format!("$BPFCOST {ASKED} --build \"a\nb\""));
    assert_eq!(lines.code, Some(2), "{lines:?}");
    lines.complains(&["--build has to be one line"]);
    assert_eq!(tool.names(), [".git"]);
}

#[test]
fn a_workflow_for_a_host_needs_no_guest() {
    let tool = Tool::new();
    std::fs::create_dir(tool.path(".git")).expect("a folder");
    let asked =
        "$BPFCOST init-ci 'my lb.bpf.o' --source 'git@host:b c.git' --on host --output ci.yml";
    let said = tool.shell(asked);
    assert_eq!(said.code, Some(0), "{said:?}");
    let written = written(
        &tool,
        &[
            "runs-on: self-hosted",
            "git clone --depth 1 'git@host:b c.git' ",
            "make 'my lb.bpf.o'\n",
            "program 'my lb.bpf.o' --against \"$RUNNER_TEMP/base/\"'my lb.bpf.o' ",
            "--on host --budget 2% ",
        ],
    );
    for words in ["container", "kernel add", "cache@"] {
        assert!(!written.contains(words), "`{words}` in {written}");
    }
    // What is there is not overwritten.
    let again = tool.shell(asked);
    assert_eq!(again.code, Some(2), "{again:?}");
    again.complains(&["ci.yml exists already"]);
}

#[test]
fn a_workflow_may_be_for_several_kernels() {
    let tool = Tool::new();
    std::fs::create_dir(tool.path(".git")).expect("a folder");
    let asked = "--on exact:bookworm --on exact:trixie --output ci.yml";
    let said = tool.says(&format!("{ASKED} {asked}"));
    assert_eq!(said.code, Some(0), "{said:?}");
    written(
        &tool,
        &[
            "on exact:bookworm, exact:trixie. Written",
            "-bookworm-trixie\n",
            "- name: Fetch the kernels\n",
            "bpfcost kernel add bookworm\n          bpfcost kernel add trixie\n",
            "--on exact:bookworm --on exact:trixie --budget 0% ",
        ],
    );
}
