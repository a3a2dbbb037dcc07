//! A run in the background, ended once it has measured what the test wants to see: a whole run takes ten epochs.

use std::{
    fs,
    process::{Child, Command},
    time::Duration,
};

use bpfcost_process::wait_until;

use crate::tool::{Said, Tool, said};

/// No wait in these tests is longer.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A run whose record will be `x.json`.
pub(crate) struct Measuring<'a> {
    tool: &'a Tool,
    child: Option<Child>,
}

impl<'a> Measuring<'a> {
    /// Starts it, with words as a shell would hand them over.
    pub(crate) fn start(tool: &'a Tool, words: &[&str]) -> Self {
        Measuring::started(tool, run(tool, words))
    }

    pub(crate) fn started(tool: &'a Tool, mut command: Command) -> Self {
        let child = command.spawn().expect("the binary runs");
        Measuring {
            tool,
            child: Some(child),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Waits until each of these cases, by index into the plan, has a trial.
    #[track_caller]
    pub(crate) fn until_trials_of(&mut self, cases: &[usize]) {
        self.until(|journal| {
            let trial = |case: &usize| {
                let case = format!("\"case\":{case},");
                let mut lines = journal.lines();
                lines.any(|line| line.contains("\"trial\":") && line.contains(&case))
            };
            cases.iter().all(trial)
        });
    }

    /// Waits for something in the journal.
    #[track_caller]
    pub(crate) fn until(&mut self, is_there: impl Fn(&str) -> bool) {
        let journal = self.tool.path("x.json.journal");
        let mut text = String::new();
        let in_time = wait_until(TIMEOUT, Duration::from_millis(20), || {
            text = fs::read_to_string(&journal).unwrap_or_default();
            if is_there(&text) {
                return true;
            }
            let child = self.child.as_mut().expect("it runs");
            if child.try_wait().expect("a child").is_some() {
                panic!("it ended before: {:?}", self.end());
            }
            false
        });
        assert!(in_time, "it is not there: {text}");
    }

    /// Asks it to end, and waits for that; what it said. Nothing of its probes may be left.
    #[track_caller]
    pub(crate) fn interrupt(mut self) -> Said {
        signal(self.id(), "INT");
        let said = self.end();
        assert_eq!(said.code, Some(130), "{said:?}");
        assert!(
            said.err
                .contains("\ndetached; nothing left behind\nrecord: "),
            "{said:?}"
        );
        said
    }

    /// SIGKILL, which nothing can be done against.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it may be killed");
        child.wait().expect("a child");
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> Said {
        let child = self.child.take().expect("it has not ended");
        said(&child.wait_with_output().expect("a child"))
    }
}

impl Drop for Measuring<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `bpfcost overhead --quick --out x.json` with these words.
pub(crate) fn run(tool: &Tool, words: &[&str]) -> Command {
    let mut command = tool.command("overhead --quick --out x.json");
    command.args(words);
    command
}

/// The output of such a run that ends without a signal.
pub(crate) fn says(tool: &Tool, words: &[&str]) -> Said {
    said(&run(tool, words).output().expect("the binary runs"))
}

/// Sends a signal by its name.
pub(crate) fn signal(id: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &id.to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
}

/// The record of such a run.
pub(crate) fn record(tool: &Tool) -> String {
    fs::read_to_string(tool.path("x.json")).expect("a record")
}
