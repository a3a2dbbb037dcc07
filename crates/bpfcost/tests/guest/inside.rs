//! A script of a test that runs in a guest, and what it writes there. The guest ends with it.

use std::{fs, path::PathBuf};

use serde_json::json;

use crate::{
    tool::Tool,
    visit::{QUICK, Visit, assert_nothing_left},
};

/// Start of a guest's script, which may use the program, and a folder to write to, which is the current one.
const PROLOGUE: &str = "\
cd /run/bpfcost/results
# Runs it; its answer, errors and exit code are files of that name.
says() { name=$1; shift; \"$BPFCOST\" \"$@\" >$name.out 2>$name.err; echo $? >$name.code; }
# Starts it, and waits until it has its event attached, besides two for modules, or has ended.
starts() {
    name=$1; shift
    \"$BPFCOST\" \"$@\" >$name.out 2>$name.err &
    pid=$!
    until [ $(cat /proc/$pid/fdinfo/* 2>/dev/null | grep -c '^link_type') -ge ${links:-3} ]; do
        kill -0 $pid || return
        sleep 0.1
    done
}
# Ends it.
ends() { kill -INT $pid; wait $pid; echo $? >$name.code; }
";

/// The files that a script wrote.
pub(crate) struct Results(Vec<(String, String)>);

impl Results {
    /// Runs a script of bash in a guest with a kernel, as `--on vm:` takes it.
    #[track_caller]
    pub(crate) fn measure(kernel: &str, script: &str) -> Self {
        let tool = Tool::new();
        tool.write("script", format!("{PROLOGUE}{script}"));
        let before = format!(
            "mkdir /run/bpfcost/results; BPFCOST='{}' bash '{}' >/run/bpfcost/results/said 2>&1; \
             touch /run/bpfcost/done; sleep 1000",
            env!("CARGO_BIN_EXE_bpfcost"),
            tool.path("script").display()
        );
        let hooks = json!({ "before": before, "boot_s": 1000 });
        let line = format!("{QUICK} --on vm:{kernel}");
        let mut visit = Visit::start(&tool, &line, &hooks.to_string());
        let folder = || -> Option<PathBuf> {
            let folders = fs::read_dir(tool.path("scratch")).ok()?.flatten();
            let mut folders = folders.map(|entry| entry.path());
            folders.find(|path| path.join("done").exists())
        };
        visit.wait_for(|_| folder().is_some());
        let results = folder().expect("it is there").join("results");
        let read = |entry: fs::DirEntry| {
            let text = fs::read(entry.path()).expect("a file");
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, String::from_utf8_lossy(&text).into_owned())
        };
        let results = fs::read_dir(results).expect("a folder").flatten();
        let results = Results(results.map(read).collect());
        visit.signal("INT");
        visit.end();
        assert_nothing_left(&tool);
        results
    }

    #[track_caller]
    pub(crate) fn file(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(one, _)| one == name);
        let found = found.unwrap_or_else(|| panic!("no {name} in {:?}", self.0));
        &found.1
    }

    /// The answer of a run that ended well.
    #[track_caller]
    pub(crate) fn answer(&self, name: &str) -> &str {
        let code = self.file(&format!("{name}.code")).trim();
        let errors = self.file(&format!("{name}.err"));
        assert_eq!(code, "0", "{name}: {errors}");
        self.file(&format!("{name}.out"))
    }

    /// A run ended with that code, no answer, and an error with all of these words.
    #[track_caller]
    pub(crate) fn refuses(&self, name: &str, code: i32, words: &[&str]) {
        let file = |ending: &str| self.file(&format!("{name}.{ending}"));
        let errors = file("err");
        assert_eq!(file("code").trim(), code.to_string(), "{name}: {errors}");
        assert_eq!(file("out"), "", "{name}");
        assert!(errors.starts_with("error: "), "{name}: {errors}");
        for word in words {
            assert!(errors.contains(word), "{name}: no `{word}` in {errors}");
        }
    }
}
