//! An agent seen from outside: its process, and what is said to it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};

use super::{Answer, Ask};
use crate::{
    experiment::Fault,
    probe::{Probe, Seen},
    workload::Scene,
};

/// How long an agent may take to end after its input did; then it is ended.
const FAREWELL: Duration = Duration::from_secs(10);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(2);

/// An agent in a process of its own.
#[derive(Debug)]
pub(crate) struct Remote {
    name: String,
    child: Child,
    /// Closing it ends the agent.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Remote {
    /// Starts an agent, and waits until its programs are loaded.
    pub(crate) fn start(name: &str, arguments: &[String]) -> Result<Self> {
        let program = std::env::current_exe().context("this program's own file is not known")?;
        let mut child = Command::new(program)
            .args(["agent", name])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("can't start the agent {name}"))?;
        let ask = child.stdin.take();
        let answers = child.stdout.take().context("it has no output")?;
        let mut remote = Remote {
            name: name.to_owned(),
            child,
            ask,
            answers: BufReader::new(answers),
        };
        match remote.hear()? {
            Answer::Loaded => Ok(remote),
            Answer::Failed(why) => Err(anyhow!("{why}")),
            other => Err(anyhow!("the agent {name} began with {other:?}")),
        }
    }

    fn hear(&mut self) -> Result<Answer> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.with_context(|| format!("can't hear the agent {}", self.name))? == 0 {
            let ended = self.child.wait()?;
            return Err(anyhow!("the agent {} ended early: {ended}", self.name));
        }
        serde_json::from_str(&line).with_context(|| format!("the agent {} said {line}", self.name))
    }

    fn say(&mut self, ask: &Ask) -> Result<Answer, Fault> {
        let mut line = serde_json::to_vec(ask).context("asking an agent")?;
        line.push(b'\n');
        let input = self.ask.as_mut().context("the agent has no input")?;
        input
            .write_all(&line)
            .and_then(|()| input.flush())
            .with_context(|| format!("the agent {} does not listen", self.name))?;
        match self.hear()? {
            Answer::Invalid(problem) => Err(Fault::Invalid(problem)),
            Answer::Failed(why) => Err(Fault::Broken(anyhow!("{why}"))),
            answer => Ok(answer),
        }
    }
}

impl Probe for Remote {
    fn attach(&mut self, scene: &Scene) -> Result<(), Fault> {
        self.say(&Ask::Attach(Box::new(scene.clone()))).map(|_| ())
    }

    fn detach(&mut self) -> Result<Seen, Fault> {
        match self.say(&Ask::Detach)? {
            Answer::Detached(seen) => Ok(seen),
            other => Err(Fault::Broken(anyhow!(
                "the agent {} said {other:?}",
                self.name
            ))),
        }
    }

    fn pids(&self) -> Vec<u32> {
        vec![self.child.id()]
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.ask.take());
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL && matches!(self.child.try_wait(), Ok(None)) {
            sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
