//! An agent's own process: receives requests, carries them out, and reads events in between.

use std::{
    io::{BufRead as _, Write as _},
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{Agent, Answer, Ask};

/// How long an agent waits for events before it looks whether it is asked something.
const PATIENCE: Duration = Duration::from_millis(20);

/// Is the agent that is opened, until standard input ends.
pub(crate) fn serve(open: impl FnOnce() -> Result<Box<dyn Agent>>) -> Result<()> {
    let asked = listen();
    let opened = open().and_then(|agent| {
        let loaded = agent.loaded()?;
        Ok((agent, loaded))
    });
    let (mut agent, loaded) = match opened {
        Ok(opened) => opened,
        Err(error) => return say(&Answer::Failed(format!("{error:#}"))),
    };
    let idle = loaded.idle;
    say(&Answer::Loaded(loaded))?;
    let mut attached = false;
    loop {
        let ask = if attached && !idle {
            match asked.try_recv() {
                Ok(ask) => ask,
                Err(TryRecvError::Empty) => {
                    agent.consume(PATIENCE)?;
                    continue;
                }
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        } else {
            match asked.recv() {
                Ok(ask) => ask,
                Err(_) => return Ok(()),
            }
        };
        let answer = answer(&mut *agent, &ask);
        attached = matches!(answer, Answer::Attached);
        say(&answer)?;
    }
}

fn answer(agent: &mut dyn Agent, ask: &Ask) -> Answer {
    let done = match ask {
        Ask::Attach(context) => agent.attach(context).map(|()| Answer::Attached),
        Ask::Detach => agent.detach().map(Answer::Detached),
    };
    done.unwrap_or_else(|error| match error.downcast() {
        Ok(problem) => Answer::Invalid(problem),
        Err(error) => Answer::Failed(format!("{error:#}")),
    })
}

/// Hears what is asked, in a thread of its own: waiting for events must not keep it waiting.
fn listen() -> Receiver<Ask> {
    let (heard, asked) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(Ok(ask)) = line.map(|line| serde_json::from_str(&line)) else {
                return;
            };
            if heard.send(ask).is_err() {
                return;
            }
        }
    });
    asked
}

fn say(answer: &Answer) -> Result<()> {
    let mut line = serde_json::to_vec(answer).context("answering")?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}
