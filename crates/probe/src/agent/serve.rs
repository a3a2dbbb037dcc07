//! An agent's own process: receives requests, carries them out, and reads events in between.

use std::{
    io::{BufRead as _, Write as _},
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{Agent, AgentReply, AgentRequest};

/// Time that an agent waits for events before it looks for a request.
const EVENTS_TIMEOUT: Duration = Duration::from_millis(20);

/// Is the agent that is opened, until standard input ends.
pub fn serve(open: impl FnOnce() -> Result<Box<dyn Agent>>) -> Result<()> {
    let asked = listen();
    let opened = open().and_then(|agent| {
        let loaded = agent.loaded()?;
        Ok((agent, loaded))
    });
    let (mut agent, loaded) = match opened {
        Ok(opened) => opened,
        Err(error) => return say(&AgentReply::from_error(&error)),
    };
    let idle = loaded.idle;
    say(&AgentReply::Loaded(loaded))?;
    let mut attached = false;
    loop {
        let ask = if attached && !idle {
            match asked.try_recv() {
                Ok(ask) => ask,
                Err(TryRecvError::Empty) => {
                    agent.consume(EVENTS_TIMEOUT)?;
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
        attached = matches!(answer, AgentReply::Attached);
        say(&answer)?;
    }
}

fn answer(agent: &mut dyn Agent, ask: &AgentRequest) -> AgentReply {
    let done = match ask {
        AgentRequest::Attach(context) => agent.attach(context).map(|()| AgentReply::Attached),
        AgentRequest::Detach => agent.detach().map(AgentReply::Detached),
    };
    done.unwrap_or_else(|error| match error.downcast() {
        Ok(problem) => AgentReply::Invalid(problem),
        Err(error) => AgentReply::from_error(&error),
    })
}

/// Reads requests on a separate thread: waiting for events must not delay them.
fn listen() -> Receiver<AgentRequest> {
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

fn say(answer: &AgentReply) -> Result<()> {
    let mut line = serde_json::to_vec(answer).context("answering")?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}
