//! A function of another process that many threads call at once, with a probe at it or without.

use std::{cell::RefCell, rc::Rc};

use bpfcost_uprobe::object::Choice;

use super::{
    Attach, Attachment, Driver, Events,
    user_programs::{SharedProbes, UserProgram},
};
use crate::{
    Space,
    error::{Error, Result},
    object::{NamedObject, OpenNamed, load_for_processes},
    plain,
};

/// The program's name in `bpf/shared_calls.bpf.c`, and its map's.
const PROGRAM: &str = "count";
const HITS: &str = "hits";

/// A function that threads call. Dropping it ends them, and detaches the program.
pub struct SharedCalls {
    attached: Option<Box<dyn Attachment>>,
    program: Option<CountingProgram>,
    events: Box<dyn Events>,
}

enum CountingProgram {
    Kernel(NamedObject),
    User(SharedProbes),
}

/// Calls by threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedCallsResult {
    /// Nanoseconds from the first thread's beginning to the last one's end.
    pub elapsed_ns: u64,
    /// Calls by all of them: as many as asked for, and one of each before the time began.
    pub made: u64,
    /// Runs of the program meanwhile.
    pub hits: u64,
    /// Calls without a run, as the mechanism says.
    pub missed: u64,
}

impl SharedCalls {
    /// Nothing is attached to the function.
    pub fn alone(driver: Driver) -> Result<Self> {
        Ok(SharedCalls {
            attached: None,
            program: None,
            events: driver.start()?,
        })
    }

    /// A program that counts is attached in this way.
    pub fn probed(attach: Attach) -> Result<Self> {
        let mut events = attach.driver().start()?;
        let (program, attached) = match attach.space() {
            Space::Kernel => {
                let mut open = OpenNamed::open("shared_calls")?;
                open.change_program(PROGRAM, |program| attach.aim(program))?;
                let object = open.load()?;
                let attached = events.attach(attach, &object.program(PROGRAM)?)?;
                (CountingProgram::Kernel(object), attached)
            }
            Space::User => {
                let probes = load_for_processes("shared_calls", &Choice::default())?;
                let probes = Rc::new(RefCell::new(probes));
                let program = UserProgram {
                    probes: &probes,
                    name: PROGRAM,
                };
                let attached = events.attach_inside(attach, &program)?;
                (CountingProgram::User(probes), attached)
            }
        };
        Ok(SharedCalls {
            attached: Some(attached),
            program: Some(program),
            events,
        })
    }

    /// Has threads call the function, one for each of `cpus`, so often each.
    pub fn call(&mut self, calls: u64, cpus: &[u32]) -> Result<SharedCallsResult> {
        if let Some(trouble) = self.trouble()? {
            return Err(Error::Refused(trouble));
        }
        let (hits, missed) = (self.hits()?, self.missed()?);
        let elapsed_ns = self.events.batch_of_threads(calls, cpus)?;
        Ok(SharedCallsResult {
            elapsed_ns,
            made: (calls + 1) * cpus.len() as u64,
            hits: self.hits()? - hits,
            missed: self.missed()? - missed,
        })
    }

    fn trouble(&mut self) -> Result<Option<String>> {
        let trouble = self.attached.as_mut().map(|attached| attached.trouble());
        Ok(trouble.transpose()?.flatten().map(|trouble| {
            format!(
                "{}: {}, not {}",
                trouble.check, trouble.got, trouble.expected
            )
        }))
    }

    fn missed(&mut self) -> Result<u64> {
        self.attached
            .as_mut()
            .map_or(Ok(0), |attached| attached.missed())
    }

    fn hits(&self) -> Result<u64> {
        let values: Vec<u64> = match &self.program {
            None => Vec::new(),
            Some(CountingProgram::Kernel(object)) => object.of_cpus(HITS)?,
            Some(CountingProgram::User(probes)) => {
                let values = probes.borrow().map(HITS)?.of_threads(0)?;
                values
                    .iter()
                    .filter_map(|value| plain::read(value))
                    .collect()
            }
        };
        Ok(values.into_iter().sum())
    }
}
