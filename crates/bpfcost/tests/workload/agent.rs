//! An agent in its process, as the program talks to it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
};

use bpfcost_process::RunContext;
use serde_json::{Value, json};

/// A process that is gone with its owner.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Agent {
    process: Running,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Agent {
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bpfcost"))
            .args(["agent", name])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the agent starts");
        let ask = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        Agent {
            process: Running(child),
            ask,
            answers,
        }
    }

    pub(crate) fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    }

    fn says(&mut self, ask: &Value) -> Value {
        writeln!(self.ask, "{ask}").expect("it listens");
        self.hear()
    }

    pub(crate) fn attach(&mut self, context: &RunContext) -> Value {
        self.says(&json!({ "attach": context }))
    }

    /// Switches it off; what it answers.
    pub(crate) fn detach(&mut self) -> Value {
        self.says(&json!("detach"))
    }

    /// Switches it off; its counts.
    pub(crate) fn counts(&mut self) -> Value {
        let seen = self.detach();
        assert_eq!(seen["detached"]["lost"], 0, "{seen}");
        seen["detached"]["counts"].clone()
    }

    /// Lets go of it.
    pub(crate) fn end(mut self) -> ExitStatus {
        drop(self.ask);
        self.process.0.wait().expect("its end")
    }
}
