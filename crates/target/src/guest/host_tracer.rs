//! The guest's side of traces: it has the host record what it executes.

use std::time::Duration;

use anyhow::Result;

use super::{Message, Requests, TraceReply, message::TraceOrder};
use bpfcost_program::{InstructionTracer, Trace, Watch};

/// How long an answer may take by the guest's clock, which leaps while the guest sleeps: a day of it is minutes here.
const TIMEOUT: Duration = Duration::from_secs(86_400);

/// Traces by requests to the host.
#[derive(Debug)]
pub struct HostTracer(Requests);

impl HostTracer {
    /// By these requests.
    pub fn new(requests: Requests) -> Self {
        HostTracer(requests)
    }

    fn ask(&self, order: TraceOrder) -> Result<Trace> {
        let message = |number| Message::Trace { number, order };
        let answer: TraceReply = self.0.ask("a trace", message, Duration::ZERO, TIMEOUT)?;
        answer.map_err(|why| {
            anyhow::anyhow!(
                "the host cannot trace instructions: {why}\n  Measure without --hot-spots, or with another QEMU: 7.2 can do it"
            )
        })
    }
}

impl InstructionTracer for HostTracer {
    fn trace(&self, watch: &Watch, run: &mut dyn FnMut() -> Result<()>) -> Result<Trace> {
        self.ask(TraceOrder::Begin(watch.clone()))?;
        let ran = run();
        let trace = self.ask(TraceOrder::End)?;
        ran.map(|()| trace)
    }
}
