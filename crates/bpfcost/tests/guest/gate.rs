//! The workflow that `init-ci` writes, in a repository: its steps pass a change that costs nothing, and fail one more
//! instruction. The installation of bpfcost is left out, as this build is what is tested; so is fetching the kernel, which
//! `require` does by the same command.

use std::{fs, path::Path, process::Command};

use yaml_rust2::{Yaml, YamlLoader};

use crate::{
    require,
    tool::{Said, Tool, said},
    visit::{assert_nothing_left, command},
};

const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
unsigned long runs;
SEC("xdp") int counts(void *context) { runs++; return 2; }
"#;

const MAKEFILE: &str =
    "src/%.bpf.o: src/%.c\n\t$(or $(CLANG),clang-19) -O2 -g -target bpf -c $< -o $@\n";

/// Preparation of the repository: the base is a commit of the branch main of its origin.
const REPOSITORY: &str = "
    export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    git init -q -b main ours
    cd ours
    mkdir src
    mv ../Makefile .
    mv ../counts.c src/
    git add .
    git commit -qm base
    git clone -q --bare . ../origin.git
    git remote add origin ../origin.git
    git fetch -q origin
";

/// The scripts of the workflow's steps, by name.
fn steps(workflow: &str) -> Vec<(String, String)> {
    let parsed = YamlLoader::load_from_str(workflow).expect("it is YAML");
    assert_eq!(parsed[0]["on"].as_str(), Some("pull_request"));
    let job = &parsed[0]["jobs"]["gate"];
    assert_eq!(job["container"].as_str(), Some("rust:1-trixie"));
    let steps = job["steps"].as_vec().expect("steps").iter();
    let script = |step: &Yaml| {
        let text = |key: &str| step[key].as_str().map(str::to_owned);
        assert!(text("run").is_some() != text("uses").is_some(), "{step:?}");
        Some((text("name")?, text("run")?))
    };
    steps.filter_map(script).collect()
}

/// Runs a step's script in the repository, as the workflow does.
fn run(tool: &Tool, script: &str, temporary: &Path) -> Said {
    let binary = Path::new(env!("CARGO_BIN_EXE_bpfcost"))
        .parent()
        .expect("its folder");
    let path = std::env::var("PATH").expect("there is a PATH");
    let mut shell = Command::new("bash");
    shell
        .args(["--noprofile", "--norc", "-eo", "pipefail", "-c", script])
        .current_dir(tool.path("ours"));
    for (name, value) in command(tool, "").get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
        .env("PATH", format!("{}:{path}", binary.display()))
        .env("RUNNER_TEMP", temporary)
        .env("GITHUB_BASE_REF", "main")
        .env("GITHUB_STEP_SUMMARY", tool.path("summary.md"));
    said(&shell.output().expect("bash runs"))
}

#[test]
fn the_workflow_passes_the_same_program_and_fails_one_more_instruction() {
    if !require::version("6.12", "trixie") {
        return;
    }
    let tool = Tool::new();
    tool.write("counts.c", SOURCE);
    tool.write("Makefile", MAKEFILE);
    let made = tool.shell(&format!("set -e; {REPOSITORY}"));
    assert_eq!(made.code, Some(0), "{made:?}");
    let asked = "init-ci src/counts.bpf.o --source https://example.org/bpfcost.git";
    let written = tool.shell(&format!("cd ours && $BPFCOST {asked}"));
    assert_eq!(written.code, Some(0), "{written:?}");
    assert!(
        written.out.contains("wrote .github/workflows/bpfcost.yml"),
        "{written:?}"
    );
    let workflow = fs::read_to_string(tool.path("ours/.github/workflows/bpfcost.yml"));
    let all = steps(&workflow.expect("it was written"));
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let [install, fetch, build, compare] = names[..] else {
        panic!("{names:?}");
    };
    assert_eq!((install, fetch), ("Install bpfcost", "Fetch the kernel"));
    assert!(all[1].1.contains("kernel add trixie"));
    assert_eq!(
        (build, compare),
        ("Build the base and the change", "Compare")
    );
    // Each change adds this much to a run.
    for (more, code, words) in [
        ("runs++", 0, "same"),
        ("runs++; runs ^= 5", 1, "costs more"),
    ] {
        tool.write("ours/src/counts.c", SOURCE.replace("runs++", more));
        let temporary = tool.path(if code == 0 { "first" } else { "second" });
        fs::create_dir(&temporary).expect("a folder");
        let built = run(&tool, &all[2].1, &temporary);
        assert_eq!(built.code, Some(0), "{built:?}");
        let compared = run(&tool, &all[3].1, &temporary);
        assert_eq!(compared.code, Some(code), "{compared:?}");
        let summary = fs::read_to_string(tool.path("summary.md")).expect("a summary");
        assert!(summary.contains(words), "{summary}");
    }
    assert_nothing_left(&tool);
}
