//! An agent seen from outside: its process, and what is said to it.

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

use super::{Answer, Ask, Loaded};
use crate::{
    experiment::Fault,
    probe::{Probe, Seen, left},
    workload::{Process, Scene, tail, told},
};

/// How long an agent may take to answer: loading a large object and attaching to thousands of functions take seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long an agent may take to end after its input did; then it is ended.
const FAREWELL: Duration = Duration::from_secs(10);

/// An agent in a process of its own.
#[derive(Debug)]
pub(crate) struct Remote {
    name: String,
    process: Process,
    /// Closing it ends the agent.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    loaded: Loaded,
}

impl Remote {
    /// Starts an agent, and waits until its programs are loaded.
    pub(crate) fn start(name: &str, arguments: &[String]) -> Result<Self> {
        let program = std::env::current_exe().context("this program's own file is not known")?;
        let program = program.display().to_string();
        let words = [&program, "agent", name].map(str::to_owned);
        let (process, ask, answers) = Process::start_talking(&[&words[..], arguments].concat())
            .with_context(|| format!("can't start the agent {name}"))?;
        let mut remote = Remote {
            name: name.to_owned(),
            process,
            ask: Some(ask),
            answers: BufReader::new(answers),
            loaded: Loaded::default(),
        };
        match remote.hear()? {
            Answer::Loaded(loaded) => remote.loaded = loaded,
            Answer::Failed(why) => return Err(anyhow!("{why}")),
            other => return Err(anyhow!("the agent {name} began with {other:?}")),
        }
        left::remember(&remote.loaded.programs, &remote.process.pids());
        Ok(remote)
    }

    fn hear(&mut self) -> Result<Answer> {
        self.await_word(PATIENCE)?;
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.with_context(|| format!("can't hear the agent {}", self.name))? == 0 {
            let ended = self.process.wait(FAREWELL)?;
            return Err(anyhow!(
                "the agent {} {}\n{}",
                self.name,
                told(ended),
                tail(&self.process.printed()?)
            ));
        }
        serde_json::from_str(&line).with_context(|| format!("the agent {} said {line}", self.name))
    }

    /// Waits until it says something, or is gone.
    fn await_word(&self, patience: Duration) -> Result<()> {
        if !self.answers.buffer().is_empty() {
            return Ok(());
        }
        let limit = Timespec::try_from(patience)?;
        let mut words = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        let heard = retry_on_intr(|| poll(&mut words, Some(&limit)))
            .with_context(|| format!("can't hear the agent {}", self.name))?;
        match heard {
            0 => bail!(
                "the agent {} has not answered for {:.0} s: it may hang in the kernel\n{}",
                self.name,
                patience.as_secs_f64(),
                tail(&self.process.printed()?)
            ),
            _ => Ok(()),
        }
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
        match self.loaded.idle {
            true => Vec::new(),
            false => self.process.pids(),
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
        let _ = self.process.wait(FAREWELL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that says nothing, played by a shell.
    fn silent(script: &str) -> Result<Remote> {
        let command = ["sh", "-c", script].map(str::to_owned);
        let (process, ask, answers) = Process::start_talking(&command)?;
        Ok(Remote {
            name: "silent".to_owned(),
            process,
            ask: Some(ask),
            answers: BufReader::new(answers),
            loaded: Loaded::default(),
        })
    }

    #[test]
    fn one_that_does_not_answer_is_not_waited_for_without_end() {
        let hangs = silent("read line; exec sleep 0").expect("a process");
        let error = hangs
            .await_word(Duration::from_millis(50))
            .expect_err("silence");
        assert!(error.to_string().contains("has not answered"), "{error:#}");
        // That it is gone is heard at once, and told by `hear`.
        let mut gone = silent("exit 3").expect("a process");
        gone.await_word(PATIENCE).expect("the end of its output");
        let error = gone.hear().expect_err("it is gone");
        assert!(error.to_string().contains("3"), "{error:#}");
    }
}
