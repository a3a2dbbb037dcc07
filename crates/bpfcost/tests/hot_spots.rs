//! Hot spots by a made-up tracer: what it saw becomes lines and calls, and a trace that is not that of the runs is refused.

#[path = "../../bpf/tests/require/mod.rs"]
mod require;

use std::{path::Path, process::Command, rc::Rc};

use anyhow::Result;
use bpfcost::builtin::program::Programs;
use bpfcost_bpf::program::ObjectFile;
use bpfcost_model::{Case, Experiment, Fault, Observed, Role, Setup};
use bpfcost_model::{HotCall, HotSpots};
use bpfcost_program::{Event, InstructionTracer, OwnPrograms, ProgramTrace, Trace, Watch, inputs};

/// Calls a helper in one line.
const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
static unsigned long (*now)(void) = (void *)5;
SEC("xdp") int asks(void *context)
{
	return now() ? 2 : 1;
}
"#;

/// Sees so many runs: in each the instruction at the entry, and what is called at each address of the program.
#[derive(Debug)]
struct MadeUp {
    runs: usize,
    runs_it: bool,
}

impl InstructionTracer for MadeUp {
    fn trace(&self, watch: &Watch, run: &mut dyn FnMut() -> Result<()>) -> Result<Trace> {
        if self.runs_it {
            run()?;
        }
        let main = &watch.programs[0].code.functions[0];
        let typical = Event {
            own: [(main.start, 8)].into(),
            called: (main.start..main.end).map(|at| (at, 1)).collect(),
            ..Event::default()
        };
        let program = ProgramTrace {
            events: vec![typical.parts(); self.runs],
            typical,
            ..ProgramTrace::default()
        };
        Ok(Trace {
            programs: vec![program],
            ..Trace::default()
        })
    }
}

fn observed(tracer: MadeUp) -> Result<Observed, Fault> {
    let folder = tempfile::TempDir::new().expect("a folder");
    let (source, object) = (folder.path().join("x.c"), folder.path().join("x.bpf.o"));
    std::fs::write(&source, SOURCE).expect("a file");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let compiler = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .args([source.as_path(), Path::new("-o"), object.as_path()])
        .status();
    assert!(compiler.expect("clang runs").success());
    let programs = OwnPrograms {
        objects: vec![ObjectFile::read(&object).expect("an object")],
        programs: vec!["asks".to_owned()],
        inputs: inputs(&["builtin:udp".to_owned()]).expect("a packet"),
        hot_spots: true,
        ..OwnPrograms::default()
    };
    let experiment = Programs::new(programs).expect("it can be run");
    let experiment = experiment.with_tracer(Rc::new(tracer));
    let cases = experiment.cases();
    let case: Case = cases
        .iter()
        .find(|case| case.role == Role::Case)
        .expect("one")
        .clone();
    let setup = Setup {
        cases,
        cpus: vec![bpfcost_bpf::allowed_cpus()[0]],
        seed: 7,
        epoch: 0,
        exact: false,
    };
    let mut epoch = experiment.load(&setup).expect("load");
    epoch.prepare(&case)?;
    let observed = epoch.observed(&case);
    epoch.unload().expect("unload");
    observed
}

#[test]
fn what_a_tracer_sees_becomes_lines_and_calls() {
    if !require::host() {
        return;
    }
    let observed = observed(MadeUp {
        runs: 3,
        runs_it: true,
    })
    .expect("hot spots");
    assert_eq!(observed.warnings, []);
    let facts = observed.facts.expect("what it does");
    assert_eq!(facts["code"], 2, "what runs do is still there");
    let spots: HotSpots = serde_json::from_value(facts["hot_spots"].clone()).expect("hot spots");
    // 8 at the entry, and one call at each address.
    let of_calls: u64 = spots.calls.iter().map(|call| call.instructions).sum();
    assert_eq!(spots.instructions, 8 + of_calls);
    let own: u64 = spots.lines.iter().map(|line| line.own).sum();
    assert_eq!(own, 8);
    let names: Vec<&str> = spots
        .calls
        .iter()
        .map(|HotCall { name, .. }| &**name)
        .collect();
    assert!(
        names.contains(&"ktime_get_ns") && names.contains(&"unknown"),
        "{names:?}"
    );
    let asking = spots.lines.iter().find(|line| line.text.contains("now()"));
    let asking = asking.expect("the line that calls");
    assert!(asking.called > 0 && asking.line == 7 && asking.file.ends_with("x.c"));
}

#[test]
fn a_trace_of_other_runs_is_refused() {
    if !require::host() {
        return;
    }
    let problem = |tracer| match observed(tracer) {
        Err(Fault::Invalid(problem)) => problem,
        other => panic!("{other:?}"),
    };
    for runs in [2, 4] {
        let problem = problem(MadeUp {
            runs,
            runs_it: true,
        });
        assert_eq!(problem.check, "traced runs");
        assert_eq!(problem.got, runs.to_string());
    }
    // A tracer that does not run the program has nothing to show.
    assert_eq!(
        problem(MadeUp {
            runs: 3,
            runs_it: false
        })
        .check,
        "runs of the program"
    );
}
