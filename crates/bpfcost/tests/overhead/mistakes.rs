//! Wrong or impossible requests: each is an error with a way out, and nothing is left.

use crate::{measuring::says, object::compiled, require, tool::Tool};

#[test]
fn one_form_at_a_time() {
    let tool = Tool::new();
    for (line, words) in [
        (
            "builtin:nothing",
            &["needs something to be measured on", "--watch SERVICE|PID"][..],
        ),
        (
            "builtin:nothing --workload redis -- true",
            &["one thing at a time"],
        ),
        (
            "builtin:nothing --workload xdp-lb",
            &["xdp-lb is not a workload", "Workloads: "],
        ),
        (
            "builtin:nothing redis",
            &["redis is a workload, not a probe", "--workload redis"],
        ),
        (
            "builtin:nothing my.toml -- true",
            &["my.toml is a workload", "--workload my.toml"],
        ),
        (
            "builtin:nothing --server x --client y",
            &["--server has no {port}"],
        ),
        ("builtin:nothing --client x", &["--client needs --server"]),
        (
            "builtin:nothing -- redis-benchmark -p {port}",
            &[
                "there is no --server",
                "redis-server --port {port} --bind 127.0.0.1",
            ],
        ),
        ("builtin:nothing --ops x -- true", &["--ops needs --watch"]),
        (
            "builtin:nothing --abort-above 5% --workload redis",
            &["--abort-above needs --watch"],
        ),
        (
            "builtin:nothing --metric [0-9] -- true",
            &["0 capture groups", "parentheses"],
        ),
        ("builtin:nothing -- iperf3 -c 127.0.0.1", &["--json"]),
        ("--watch 1", &["<PROBE>"]),
        ("bpftrace -e x -- true", &["as one word", "bpftrace -e"]),
        ("builtin:nothing --bogus -- true", &["--bogus"]),
        (
            "builtin:nothing --server x{port}",
            &["--server needs a load"],
        ),
        (
            "off=builtin:nothing -- true",
            &["off is the name of the runs without a probe"],
        ),
        ("builtin:nothin -- true", &["no built-in probe nothin"]),
        (
            "builtin:nothing+builtin:sslsniff -- true",
            &["processes of a server", "--server CMD"],
        ),
        (
            "no-such-tracer -- true",
            &["there is no command no-such-tracer", ".bpf.o"],
        ),
        (
            "nowhere.bpf.o -- true",
            &["there is no file", "nowhere.bpf.o"],
        ),
        (
            "builtin:nothing --watch 4194303",
            &["no process 4194303", "pidof"],
        ),
    ] {
        tool.refuses(&format!("overhead {line}"), 2, words);
    }
}

/// Each window holds a whole number of periods, and what cannot be is refused before anything starts.
#[test]
fn periods_that_cannot_be() {
    let tool = Tool::new();
    for (period, words) in [
        ("0", &["--period"][..]),
        ("0s", &["--period", "it must be above 0"]),
        ("-1s", &["--period"]),
        ("10", &["--period", "with its unit"]),
        ("1500us", &["whole milliseconds"]),
        ("2m", &["it must be at most 60s"]),
        // Ten epochs of two windows of 20 s.
        (
            "10s --time 5m",
            &["--time 300s is too short for --period 10s", "400s and more"],
        ),
        ("10s --time 1s --dry-run", &["--time 1s is too short"]),
    ] {
        let line = format!("overhead builtin:nothing --period {period} -- true");
        tool.refuses(&line, 2, words);
    }
    let line = "overhead builtin:nothing --dry-run --period";
    let answers = |line: &str| tool.answers(line).replace('\u{a0}', " ");
    let plan = answers(&format!("{line} 10s --time 400s -- true"));
    assert!(plan.contains("10 epochs of 43 s"), "{plan}");
    let plan = answers(&format!("{line} 50s -- true"));
    assert!(plan.contains("10 epochs of 103 s"), "{plan}");
}

/// Cases are picked as with `run`.
#[test]
fn some_of_the_cases() {
    let tool = Tool::new();
    let line = "overhead a=builtin:nothing b=builtin:nothing --dry-run";
    let all = tool.answers(&format!("{line} -- true"));
    let some = tool.answers(&format!("{line} --case off --case a -- true"));
    assert!(
        all.contains("\n  a against off") && all.contains("\n  b against off"),
        "{all}"
    );
    assert!(
        some.contains("\n  a against off") && !some.contains("\n  b"),
        "{some}"
    );
    let line = format!("{line} --case c -- true");
    tool.refuses(&line, 2, &["no case of true matches c"]);
}

#[test]
fn run_with_an_option_of_overhead_names_overhead() {
    let tool = Tool::new();
    for option in ["--with agent.service", "--watch 1"] {
        let line = format!("run xdp-lb {option}");
        tool.refuses(&line, 2, &["unexpected argument", "`bpfcost overhead`"]);
    }
}

#[test]
fn commands_that_fail_end_the_run() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let nothing = ["builtin:nothing"];
    for (load, words) in [
        (
            &["--", "sh", "-c", "echo no luck; exit 3"][..],
            &["exit code 3", "no luck"][..],
        ),
        (
            &["--", "no-such-program"],
            &["no-such-program is not installed"],
        ),
        (
            &[
                "--metric",
                "took ([0-9]+) ms",
                "--",
                "sh",
                "-c",
                "sleep 0.1; echo it took long",
            ],
            &["metric matches nothing: took ([0-9]+) ms", "it took long"],
        ),
        (
            &[
                "--metric",
                "took ([0-9]+) ms",
                "--",
                "sh",
                "-c",
                "head -c 20000000 /dev/zero | tr '\\0' x; echo took 5 ms",
            ],
            &["printed 4 MB more than the 16 MiB", "Make it print less"],
        ),
        (
            &[
                "--server",
                "sh -c 'echo {port} is mine; exit 1'",
                "--client",
                "echo {port}",
            ],
            &["is mine", "exit code 1"],
        ),
    ] {
        let said = says(&tool, &[&nothing, load].concat());
        assert_ne!(said.code, Some(0), "{said:?}");
        said.complains(words);
        assert!(
            !tool.path("x.json.journal").exists(),
            "nothing was measured"
        );
    }
}

#[test]
fn objects_that_cannot_be_had() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compiled(&tool);
    tool.write("text.bpf.o", "no object at all");
    tool.write("empty.bpf.o", "");
    // 2: the object is wrong; 4: this kernel lacks what it asks for.
    for (probe, code, words) in [
        ("text.bpf.o", 2, &["it is not a BPF object", "clang"][..]),
        ("empty.bpf.o", 2, &["it is not a BPF object"]),
        (
            "x.bpf.o:no_such",
            2,
            &["no program no_such", "enter, leave, never"],
        ),
        (
            "x.bpf.o:packets",
            2,
            &["none of its sections says where to attach (xdp)"],
        ),
        (
            "x.bpf.o:enter + x.bpf.o:packets",
            2,
            &["none of its sections says where to attach (xdp)"],
        ),
        (
            "x.bpf.o:nowhere",
            4,
            &["nowhere cannot be attached", "no_such"],
        ),
        (
            "builtin:event:tracepoint:no:such:null",
            4,
            &["no:such", "--on vm:KERNEL"],
        ),
    ] {
        let said = says(&tool, &[probe, "--", "sleep", "0.1"]);
        assert_eq!(said.code, Some(code), "{said:?}");
        said.complains(words);
    }
}

#[test]
fn a_probe_that_never_fires_was_not_measured() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compiled(&tool);
    // The kernel counts the runs of the one; the other counts its own.
    let own = "builtin:event:tracepoint:sched:sched_process_hang:null";
    for probe in ["x.bpf.o:never", own] {
        let said = says(&tool, &[probe, "--", "sleep", "0.1"]);
        assert_eq!(said.code, Some(3), "{said:?}");
        assert!(
            said.out
                .contains("The probe fired 0 times: nothing was measured."),
            "{said:?}"
        );
        let _ = std::fs::remove_file(tool.path("x.json"));
    }
}

#[test]
fn tools_that_do_not_stay_or_load_nothing() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let said = says(&tool, &["echo it is broken; exit 7", "--", "sleep", "0.1"]);
    assert_eq!(said.code, Some(5), "{said:?}");
    said.complains(&["exit code 7 during the run", "it is broken"]);
    let said = says(&tool, &["sleep 100", "--", "sleep", "0.1"]);
    assert_eq!(said.code, Some(5), "{said:?}");
    said.complains(&["loaded no BPF program within 10 s", "'process:sleep 100'"]);
}
