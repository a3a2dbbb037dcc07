//! Mistakes on the command line: each gets a sentence that says what, why and what next, and 2.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _};

use crate::{
    privilege::nobody,
    require, sample_parts, sample_record,
    tool::{STATE, Tool, said},
};

#[test]
fn names_that_do_not_exist() {
    let tool = Tool::new();
    tool.refuses(
        "run xdplb",
        2,
        &[
            "no experiment xdplb",
            "did you mean xdp-lb?",
            "bpfcost list",
        ],
    );
    tool.refuses(
        "list xpd-lb",
        2,
        &["no experiment xpd-lb", "did you mean xdp-lb?"],
    );
    tool.refuses(
        "run xdp-lb --case tcp-v4-lru-hits",
        2,
        &[
            "matches tcp-v4-lru-hits",
            "did you mean tcp-v4-lru-hit?",
            "bpfcost list xdp-lb",
        ],
    );
    tool.refuses(
        "run xdp-lb --case tpc-v4-*",
        2,
        &["no case", "did you mean tcp-v4-"],
    );
    tool.refuses(
        "run xdp-lb --case floor/none",
        2,
        &["only floors", "Name a case too"],
    );
    tool.refuses(
        "run xdp-lb --on guest:6.12",
        2,
        &["no target guest:6.12", "host, vm:KERNEL"],
    );
    tool.refuses(
        "run xdp-lb --on vm:/nowhere/vmlinuz",
        2,
        &["/nowhere/vmlinuz"],
    );
    tool.refuses("run xdp-lb xdp-lb", 2, &["named twice", "--out"]);
    tool.refuses(
        "run xdp-lb --on host --on host",
        2,
        &["host is named twice"],
    );
    assert_eq!(tool.names(), [""; 0]);
}

#[test]
fn rates_of_what_has_none() {
    let tool = Tool::new();
    tool.refuses(
        "run xdp-lb --rate 200k",
        2,
        &["--rate", "single operations", "bpfcost run attach --rate"],
    );
    tool.refuses("run attach --budget 1%", 2, &["compare", "--core-share 1%"]);
    tool.write(
        "lb.json",
        serde_json::to_string(&sample_record::clean()).expect("JSON"),
    );
    tool.refuses(
        "report lb.json --rate 200k/s",
        2,
        &["single operations", "bpfcost run attach"],
    );
    tool.write(
        "counts.json",
        serde_json::to_string(&sample_parts::counted()).expect("JSON"),
    );
    for asked in ["--rate 200k/s", "--core-share 1%"] {
        tool.refuses(
            &format!("report counts.json {asked}"),
            2,
            &["nanoseconds", "count instructions", "--on host"],
        );
    }
    tool.write(
        "attach.json",
        serde_json::to_string(&sample_parts::timed(12)).expect("JSON"),
    );
    // One that can answer is enough, and the other says why it can't.
    let said = tool.says("report counts.json attach.json --rate 200k --core-share 1% -o page.html");
    assert_eq!(said.code, Some(0), "{said:?}");
    let page = fs::read_to_string(tool.path("page.html")).expect("the page");
    assert!(page.contains("CPU of one core at 200k") && page.contains("insn are not ns"));
}

#[test]
fn words_that_are_no_text() {
    let tool = Tool::new();
    let word = OsStr::from_bytes(b"\xff\xfe");
    for (line, after, expected) in [
        ("run", None, "UTF-8"),
        ("overhead", None, "UTF-8"),
        ("run --with x --out", Some("redis"), "bpfcost overhead"),
    ] {
        let output = tool.command(line).arg(word).args(after).output();
        let said = said(&output.expect("the binary runs"));
        assert_eq!(said.code, Some(2), "{said:?}");
        said.complains(&[expected]);
    }
}

#[test]
fn numbers_that_make_no_sense() {
    let tool = Tool::new();
    for (precision, words) in [
        ("0%", "above 0%"),
        ("0", "above 0%"),
        ("-1%", "above 0%"),
        ("100%", "below 100%"),
        ("5", "write 5%"),
        ("fine", "write a percentage"),
        ("0.00000001%", "no run gets that precise"),
    ] {
        tool.refuses(
            &format!("run xdp-lb --precision {precision}"),
            2,
            &["--precision", words],
        );
    }
    for (time, words) in [
        ("60", "60s"),
        ("0s", "above 0"),
        ("soon", "60s"),
        ("-1s", "60s"),
    ] {
        tool.refuses(&format!("run xdp-lb --time {time}"), 2, &["--time", words]);
    }
    tool.refuses("run xdp-lb --seed -1", 2, &["-1"]);
    tool.refuses("run xdp-lb --budget 0%", 2, &["--budget", "above 0%"]);
    tool.refuses("program x.bpf.o --budget 0%", 2, &["--against"]);
    for (rate, words) in [
        ("200", "200 has no unit: write 200/s, 200k/s or 200M/s"),
        ("0/s", "above 0"),
        ("-5k", "above 0"),
        ("fast", "events a second"),
    ] {
        tool.refuses(&format!("run attach --rate {rate}"), 2, &["--rate", words]);
        tool.refuses(&format!("report . --rate {rate}"), 2, &["--rate", words]);
    }
    tool.refuses("self-test --runs 1", 2, &["--runs", "2..=1000"]);
}

#[test]
fn cpus_that_cannot_be_used() {
    let tool = Tool::new();
    for (cpus, words) in [
        ("8000", "no CPU 8000"),
        ("4000000000", "above Linux's limit"),
        ("3-1", "backwards"),
        ("a", "0-3,8"),
        ("0,,1", "0-3,8"),
        ("-", "0-3,8"),
    ] {
        let line = format!("run xdp-lb --dry-run --cpus={cpus}");
        tool.refuses(&line, 2, &[words]);
    }
    tool.refuses("run xdp-lb --cpus=", 2, &["0-3,8"]);
}

#[test]
fn places_that_cannot_hold_a_record() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    tool.refuses(
        "run xdp-lb --out no/such/x.json",
        2,
        &["no folder no/such", "mkdir -p"],
    );
    tool.refuses("run xdp-lb --out new/", 2, &["no folder new/", "mkdir -p"]);
    tool.refuses(
        "run xdp-lb --out /dev/null",
        2,
        &["not a regular file", "--out"],
    );
    tool.refuses(
        "run xdp-lb --out /proc/x.json",
        2,
        &["can't write /proc/x.json", "--out"],
    );
    tool.refuses(
        "run xdp-lb --out x.journal",
        2,
        &["the journal of a run", "--out x.json"],
    );
    fs::create_dir_all(tool.path("out/xdp-lb-host.json")).expect("a folder");
    tool.refuses(
        "run xdp-lb --out out",
        2,
        &["out/xdp-lb-host.json is not a regular file"],
    );
    tool.write(STATE, "in the way of the state folder");
    tool.refuses(
        "run xdp-lb",
        2,
        &["cannot make the folder for records", "--out"],
    );
    assert_eq!(tool.names(), ["out"]);
}

#[test]
fn files_that_are_no_records() {
    let tool = Tool::new();
    fs::create_dir(tool.path("empty")).expect("a folder");
    let mut record = serde_json::to_value(sample_record::clean()).expect("JSON");
    tool.write("good.json", record.to_string());
    tool.write("damaged.json", &record.to_string()[..5000]);
    tool.write("other.json", "{\"schema\": 1}");
    tool.write("list.json", "[1, 2]");
    tool.write("binary.json", [0u8, 159, 146, 150]);
    tool.write("run.json.journal", "{}\n");
    record["schema"] = 99.into();
    record["bpfcost"] = "7.0.0".into();
    tool.write("newer.json", record.to_string());
    for (name, words) in [
        ("none.json", ["no file or folder none.json", "--out"]),
        (
            "empty",
            ["the folder empty holds no records", "bpfcost run"],
        ),
        (
            "damaged.json",
            ["damaged.json is damaged at line 1", "measure anew"],
        ),
        ("other.json", ["not a bpfcost record", "--out"]),
        ("list.json", ["not a bpfcost record", "--out"]),
        (
            "binary.json",
            [
                "binary.json is not a record",
                "prints the path of its record",
            ],
        ),
        (
            "newer.json",
            ["newer bpfcost (7.0.0, schema 99", "update this one"],
        ),
        (
            "run.json.journal",
            ["the journal of an unfinished run", "--resume"],
        ),
    ] {
        tool.refuses(&format!("compare good.json {name}"), 2, &words);
        tool.refuses(&format!("report {name} -o page.html"), 2, &words);
    }
    tool.refuses(
        "report good.json -o empty",
        2,
        &["empty is a folder", "-o empty/report.html"],
    );
    tool.refuses("report good.json -o no/x.html", 2, &["no folder no"]);
    tool.answers("report good.json -o picture.svg");
    tool.refuses(
        "report good.json good.json -o picture.svg",
        2,
        &["a picture shows one record", "-o report.html"],
    );
    assert!(!tool.path("page.html").exists());
}

#[test]
fn journals_that_cannot_be_continued() {
    let tool = Tool::new();
    tool.refuses(
        "run --resume x.json",
        2,
        &["no journal x.json.journal", "nothing to resume"],
    );
    tool.refuses(
        "run xdp-lb --resume x.json",
        2,
        &["--resume", "cannot be used with"],
    );
    tool.refuses(
        "run --quick --resume x.json",
        2,
        &["--resume", "cannot be used with"],
    );
    tool.write("empty.journal", "");
    tool.refuses("run --resume empty.journal", 2, &["is empty", "delete it"]);
    tool.write("other.journal", "hello\n");
    tool.refuses("run --resume other.journal", 2, &["damaged at line 1"]);
    tool.write(
        "newer.journal",
        "{\"schema\": 99, \"bpfcost\": \"7.0.0\"}\n",
    );
    tool.refuses(
        "run --resume newer.journal",
        2,
        &["newer bpfcost (7.0.0, schema 99)"],
    );
}

#[test]
fn a_folder_that_was_removed_is_not_full() {
    let tool = Tool::new();
    let record = serde_json::to_string(&sample_record::clean()).expect("JSON");
    tool.write("x.json", record);
    let said = tool.shell(
        "mkdir gone && cd gone && rmdir ../gone && $BPFCOST report ../x.json -o report.html || \
         $BPFCOST report $HOME/x.json -o report.html; echo \"code $?\" >&2",
    );
    said.complains(&["can't write", "its folder was removed", "code 2"]);
    assert!(!said.err.contains("make room"), "{said:?}");
}

/// As a user who could not do it: a guest's first process changes mounts, and ends with the machine.
#[test]
fn what_the_kernel_of_a_guest_starts_is_refused_elsewhere() {
    let Some(said) = nobody(&Tool::new(), "", "guest first") else {
        return;
    };
    assert_ne!(said.code, Some(0), "{said:?}");
    said.complains(&["only the kernel of a guest starts this"]);
}
