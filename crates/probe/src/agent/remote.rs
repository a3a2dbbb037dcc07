//! The other end of an agent: starts its process and sends it requests.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{ChildStdin, ChildStdout},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
};

use super::{AgentInfo, AgentReply, AgentRequest};
use crate::{Probe, WindowCounts, WrongProbe, leftovers};
use bpfcost_model::Fault;
use bpfcost_process::{Process, ProcessClock, RunContext, describe_exit};

/// Time limit for an answer: loading a large object and attaching to thousands of functions take seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Time that an agent has to end after its input closed; then it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// An agent in its own process.
#[derive(Debug)]
pub struct Remote {
    name: String,
    process: Process,
    /// Closing it ends the agent.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    loaded: AgentInfo,
}

impl Remote {
    /// Starts an agent, and waits until its programs are loaded.
    pub(crate) fn start(name: &str, arguments: &[String]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find bpfcost's own executable")?;
        let program = program.display().to_string();
        let words = [&program, "agent", name].map(str::to_owned);
        let (process, ask, answers) = Process::start_talking(&[&words[..], arguments].concat())
            .with_context(|| format!("cannot start the agent {name}"))?;
        let mut remote = Remote {
            name: name.to_owned(),
            process,
            ask: Some(ask),
            answers: BufReader::new(answers),
            loaded: AgentInfo::default(),
        };
        match remote.hear()? {
            AgentReply::Loaded(loaded) => remote.loaded = loaded,
            AgentReply::Wrong(why) => return Err(WrongProbe(why).into()),
            AgentReply::Failed(why) => return Err(anyhow!("{why}")),
            other => return Err(anyhow!("unexpected answer of the agent {name}: {other:?}")),
        }
        leftovers::remember(&remote.loaded.programs, &remote.process.pids());
        Ok(remote)
    }

    fn hear(&mut self) -> Result<AgentReply> {
        let clock = ProcessClock::start(self.process.id());
        let reading = || format!("cannot read from the agent {}", self.name);
        while !heard(&self.answers, ANSWER_TIMEOUT).with_context(reading)? {
            if clock.exceeds(self.process.id(), ANSWER_TIMEOUT) {
                bail!(
                    "the agent {} has not answered for {:.0} s: it may hang in the kernel\n{}",
                    self.name,
                    clock.wall().as_secs_f64(),
                    self.process.tail()
                );
            }
        }
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.with_context(|| format!("cannot read from the agent {}", self.name))? == 0 {
            let ended = self.process.end_within(EXIT_TIMEOUT)?;
            return Err(anyhow!(
                "the agent {} {}\n{}",
                self.name,
                describe_exit(ended),
                self.process.tail()
            ));
        }
        serde_json::from_str(&line)
            .with_context(|| format!("unexpected answer of the agent {}: {line}", self.name))
    }

    fn say(&mut self, ask: &AgentRequest) -> Result<AgentReply, Fault> {
        let mut line = serde_json::to_vec(ask).context("asking an agent")?;
        line.push(b'\n');
        let input = self.ask.as_mut().context("the agent has no input")?;
        let said = input.write_all(&line).and_then(|()| input.flush());
        // One that has ended says why better than the pipe does.
        let heard = self.hear()?;
        said.with_context(|| format!("cannot write to the agent {}", self.name))?;
        match heard {
            AgentReply::Invalid(problem) => Err(Fault::Invalid(problem)),
            AgentReply::Wrong(why) => Err(Fault::Broken(WrongProbe(why).into())),
            AgentReply::Failed(why) => Err(Fault::Broken(anyhow!("{why}"))),
            answer => Ok(answer),
        }
    }
}

impl Probe for Remote {
    fn attach(&mut self, context: &RunContext) -> Result<(), Fault> {
        self.say(&AgentRequest::Attach(Box::new(context.clone())))
            .map(|_| ())
    }

    fn detach(&mut self) -> Result<WindowCounts, Fault> {
        match self.say(&AgentRequest::Detach)? {
            AgentReply::Detached(seen) => Ok(seen),
            other => Err(Fault::Broken(anyhow!(
                "unexpected answer of the agent {}: {other:?}",
                self.name
            ))),
        }
    }

    fn pids(&self) -> Vec<u32> {
        if self.loaded.idle {
            Vec::new()
        } else {
            self.process.pids()
        }
    }

    fn cpu_ns(&self) -> Option<f64> {
        self.process.cpu_ns()
    }

    fn programs(&self) -> Vec<u32> {
        self.loaded.programs.clone()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.ask.take());
        // Dropping the process ends it where it does not, and what it started.
        let _ = self.process.end_within(EXIT_TIMEOUT);
    }
}

/// Waits until something is said, or the other end is gone; `false` where neither comes in time.
fn heard(answers: &BufReader<ChildStdout>, timeout: Duration) -> Result<bool> {
    if !answers.buffer().is_empty() {
        return Ok(true);
    }
    let limit = Timespec::try_from(timeout)?;
    let mut words = [PollFd::new(answers.get_ref(), PollFlags::IN)];
    Ok(retry_on_intr(|| poll(&mut words, Some(&limit)))? > 0)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn who_says_nothing_is_not_waited_for_without_end() {
        let agent = Command::new("sh")
            .args(["-c", "read line; echo heard; echo twice"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut agent = agent.expect("a process");
        let mut answers = BufReader::new(agent.stdout.take().expect("its output"));
        let brief = Duration::from_millis(50);
        assert!(!heard(&answers, brief).expect("a pipe"), "it was not asked");
        drop(agent.stdin.take());
        let mut line = String::new();
        // Two answers, and then that it is gone, each at once.
        for expected in ["heard\n", "twice\n", ""] {
            assert!(
                heard(&answers, ANSWER_TIMEOUT).expect("a pipe"),
                "{expected}"
            );
            line.clear();
            answers.read_line(&mut line).expect("a line");
            assert_eq!(line, expected);
        }
        agent.wait().expect("its end");
    }
}
