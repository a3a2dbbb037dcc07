//! Wrappers for tests in other languages, and the action: each calls this program and reads what it prints. Their examples
//! run here for real, with a BPF program.

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

use yaml_rust2::{Yaml, YamlLoader};

use crate::{
    docs::root,
    program::{SOURCE, compile},
    require,
    tool::{Said, Tool, said},
};

const BPFCOST: &str = env!("CARGO_BIN_EXE_bpfcost");

/// A command line that measures a BPF program; without privileges, one that needs none.
fn example(tool: &Tool) -> String {
    if !require::host() {
        return "run pool --case line/own --quick".to_owned();
    }
    compile(tool, "x", SOURCE);
    format!(
        "program {} --program counts --quick --seed 7",
        tool.path("x.bpf.o").display()
    )
}

/// A command in a wrapper's folder, which finds this program and the example.
fn wrapper(tool: &Tool, name: &str, program: &str, line: &str) -> Command {
    let mut command = tool.with_caches(tool.wrapped(program, line));
    command
        .current_dir(root().join("wrappers").join(name))
        .env("BPFCOST", BPFCOST)
        .env("BPFCOST_EXAMPLE", example(tool));
    command
}

#[test]
fn a_go_benchmark_reports_what_bpfcost_measured() {
    let tool = Tool::new();
    let said = said(
        &wrapper(&tool, "go", "go", "test -count=1 -bench=.")
            .output()
            .expect("go runs; scripts/setup.sh run installs it"),
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut lines = said.out.lines();
    let line = lines.find(|line| line.starts_with("BenchmarkCosts/") && line.contains("ns/op"));
    let line = line.unwrap_or_else(|| panic!("no benchmark: {said:?}"));
    for words in [" ns/op", " low-ns/op", " high-ns/op"] {
        assert!(line.contains(words), "{line}");
    }
    // A mistake fails the benchmark, with what bpfcost says of it.
    let mut mistaken = wrapper(&tool, "go", "go", "test -count=1 -run=TestCosts");
    mistaken.env("BPFCOST_EXAMPLE", "run no-such-experiment");
    let said = crate::tool::said(&mistaken.output().expect("go runs"));
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("exit code 2"), "{said:?}");
    assert!(said.out.contains("no-such-experiment"), "{said:?}");
}

#[test]
fn a_test_of_pytest_sees_what_bpfcost_measured() {
    let tool = Tool::new();
    let mut able = Command::new("python3");
    able.args(["-m", "pytest", "--version"])
        .stdout(Stdio::null());
    // Another Python may come before Debian's.
    let has_pytest = able.stderr(Stdio::null()).status();
    let python = match has_pytest.is_ok_and(|status| status.success()) {
        true => "python3",
        false => "/usr/bin/python3",
    };
    let line = "-B -m pytest -p pytest_bpfcost -p no:cacheprovider -q";
    let said = said(
        &wrapper(&tool, "python", python, line)
            .output()
            .expect("python3 runs; scripts/setup.sh test installs it"),
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("2 passed"), "{said:?}");
    // All costs stand at the end of the session.
    let line = said.out.lines();
    let mut line = line.filter(|line| line.starts_with("test_costs: "));
    let line = line.next().unwrap_or_else(|| panic!("no cost: {said:?}"));
    assert!(line.contains(" ns/op ["), "{line}");
}

#[test]
fn the_helper_for_rust_gives_what_bpfcost_measured() {
    let tool = Tool::new();
    let costs = bpfcost_bench::run_by(BPFCOST, &example(&tool)).expect("costs");
    let costs: Vec<_> = costs.values().flatten().collect();
    assert!(!costs.is_empty());
    for (unit, cost) in costs {
        assert_eq!(unit, "ns-per-op");
        assert!(
            cost.low <= cost.value && cost.value <= cost.high,
            "{cost:?}"
        );
        assert!(cost.low > 0.0, "{cost:?}");
    }
    let failed = bpfcost_bench::run_by(BPFCOST, "run no-such-experiment");
    let Err(bpfcost_bench::Error::Failed { code, message, .. }) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("no-such-experiment"), "{message}");
    let absent = bpfcost_bench::run_by(tool.path("nothing"), "list");
    assert!(
        matches!(absent, Err(bpfcost_bench::Error::NotStarted(_))),
        "{absent:?}"
    );
}

/// The scripts of the action's steps with their environment, inputs filled in.
fn steps(inputs: &[(&str, &str)]) -> Vec<(String, Vec<(String, String)>)> {
    let text = std::fs::read_to_string(root().join("action.yml")).expect("the action");
    let action = &YamlLoader::load_from_str(&text).expect("it is YAML")[0];
    let known = action["inputs"].as_hash().expect("inputs");
    for (name, _) in inputs {
        let name = Yaml::from_str(name);
        assert!(known.contains_key(&name), "{name:?} is no input");
    }
    let input = |text: &str| {
        let name = text.strip_prefix("${{ inputs.")?.strip_suffix(" }}")?;
        let given = inputs.iter().find(|(given, _)| *given == name);
        let default = action["inputs"][name]["default"].as_str();
        given
            .map(|(_, value)| *value)
            .or(default)
            .map(str::to_owned)
    };
    let steps = action["runs"]["steps"].as_vec().expect("steps").iter();
    let step = |step: &Yaml| {
        assert_eq!(step["shell"].as_str(), Some("bash"));
        let environment = step["env"].as_hash().expect("variables").iter();
        let variable = |(name, value): (&Yaml, &Yaml)| {
            let value = value.as_str().expect("text");
            let value = input(value).unwrap_or_else(|| panic!("{value} is not given"));
            (name.as_str().expect("a name").to_owned(), value)
        };
        let script = step["run"].as_str().expect("a script").to_owned();
        // What a pull request says must not become a part of a script.
        assert!(!script.contains("${{"), "{script}");
        (script, environment.map(variable).collect())
    };
    steps.map(step).collect()
}

/// Runs the action as a job does, with this program in its PATH.
fn act(tool: &Tool, inputs: &[(&str, &str)]) -> Vec<Said> {
    let folder = PathBuf::from(BPFCOST)
        .parent()
        .expect("a folder")
        .to_owned();
    let path = env::var("PATH").expect("there is a PATH");
    let run = |(script, environment): (String, Vec<(String, String)>)| {
        let mut bash = tool.wrapped("bash", "--noprofile --norc -eo pipefail");
        bash.arg("-c")
            .arg(script)
            .envs(environment)
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("GITHUB_ACTION_PATH", root())
            .env("GITHUB_PATH", tool.path("path"))
            .env("GITHUB_STEP_SUMMARY", tool.path("summary.md"))
            .env("RUNNER_TEMP", tool.path("temporary"));
        said(&bash.output().expect("bash runs"))
    };
    steps(inputs).into_iter().map(run).collect()
}

#[test]
fn the_action_writes_the_summary_of_the_job() {
    let tool = Tool::new();
    tool.write("a b.txt", "");
    // Words are quoted as in a shell, and nothing in them is expanded.
    let line = "run pool --case 'line/own' --quick --out \"$(touch 'bad') a b.json\"";
    let said = act(&tool, &[("run", line)]);
    let codes: Vec<_> = said.iter().map(|said| said.code).collect();
    assert_eq!(codes, [Some(0); 3], "{said:?}");
    let names = tool.names();
    assert!(
        names.contains(&"$(touch 'bad') a b.json".to_owned()),
        "{names:?}"
    );
    assert!(!names.contains(&"bad".to_owned()), "{names:?}");
    let summary = std::fs::read_to_string(tool.path("summary.md")).expect("a summary");
    assert!(summary.contains("line/own"), "{summary}");
    let failed = act(&tool, &[("run", "run no-such-experiment")]);
    assert_eq!(failed.last().and_then(|said| said.code), Some(2));
}
