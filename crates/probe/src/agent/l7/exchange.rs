//! Requests and their answers, reconstructed from the calls by which a server read and wrote its connections.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bpfcost_bpf::l7::{CallKind, ConnectionId, L7Call};
use serde::Serialize;

use super::flow::{Flow, HeadParse, SkipReason, request, response};

/// Requests and answers on all connections.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    connections: HashMap<ConnectionId, Exchange>,
    counted: ExchangeCounts,
    endpoints: BTreeMap<Endpoint, Latency>,
}

/// Counts of calls and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExchangeCounts {
    /// Calls that moved bytes.
    pub(super) calls: u64,
    /// Those of them in which no message was recognised.
    pub(super) opaque: u64,
    /// Those of them with a head that went on behind what is kept of a call.
    pub(super) truncated: u64,
    /// Requests whose head was read.
    pub(super) requests: u64,
    /// Those of them whose answer was seen.
    pub(super) answered: u64,
    /// Those of them that the same goroutine read and answered, where goroutines are known.
    pub(super) by_one_goroutine: u64,
    /// Answers, by the first digit of their status.
    pub(super) statuses: [u64; 6],
}

/// A request and its result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Endpoint {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) status: u16,
}

/// Latency of an endpoint's answers: from the end of the call that read the last of a request's head, to that of
/// the call that wrote the last of the answer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Latency {
    pub(super) answers: u64,
    pub(super) sum_ns: u64,
    pub(super) most_ns: u64,
}

/// The two directions of one connection.
#[derive(Debug, Default)]
struct Exchange {
    requests: Flow,
    responses: Flow,
    /// Requests without an answer, the oldest first.
    waiting: VecDeque<PendingRequest>,
}

#[derive(Debug)]
struct PendingRequest {
    method: String,
    path: String,
    since_ns: u64,
    goroutine: Option<u64>,
}

impl Exchanges {
    /// Takes a call in.
    pub(super) fn take(&mut self, call: &L7Call<'_>) {
        if call.act == CallKind::Close {
            self.connections.remove(&call.connection);
            return;
        }
        self.counted.calls += 1;
        let exchange = self.connections.entry(call.connection).or_default();
        let taken = match call.act {
            CallKind::Read => exchange.read(call, &mut self.counted),
            _ => exchange.write(call, &mut self.counted, &mut self.endpoints),
        };
        match taken {
            Ok(()) => {}
            Err(SkipReason::Opaque) => self.counted.opaque += 1,
            Err(SkipReason::Truncated) => self.counted.truncated += 1,
        }
    }

    /// Takes the counts since the last call; connections are forgotten too.
    pub(super) fn tell(&mut self) -> (ExchangeCounts, BTreeMap<Endpoint, Latency>) {
        let all = std::mem::take(self);
        (all.counted, all.endpoints)
    }
}

impl Exchange {
    fn read(&mut self, call: &L7Call<'_>, counted: &mut ExchangeCounts) -> Result<(), SkipReason> {
        self.requests.take(call.payload, call.length, |bytes| {
            request(bytes, |method, path| {
                counted.requests += 1;
                self.waiting.push_back(PendingRequest {
                    method: method.to_owned(),
                    path: path.to_owned(),
                    since_ns: call.time_ns,
                    goroutine: call.goroutine,
                });
            })
        })
    }

    fn write(
        &mut self,
        call: &L7Call<'_>,
        counted: &mut ExchangeCounts,
        endpoints: &mut BTreeMap<Endpoint, Latency>,
    ) -> Result<(), SkipReason> {
        self.responses.take(call.payload, call.length, |bytes| {
            // Without a request there is no answer.
            let Some(first) = self.waiting.front() else {
                return HeadParse::Other;
            };
            let mut answer = None;
            let parsed = response(bytes, &first.method, |status| answer = Some(status));
            // 1xx: the answer is still to come.
            if let Some(status) = answer.filter(|status| *status >= 200)
                && let Some(waiting) = self.waiting.pop_front()
            {
                waiting.answered(status, call, counted, endpoints);
            }
            parsed
        })
    }
}

impl PendingRequest {
    fn answered(
        self,
        status: u16,
        call: &L7Call<'_>,
        counted: &mut ExchangeCounts,
        endpoints: &mut BTreeMap<Endpoint, Latency>,
    ) {
        counted.answered += 1;
        if let Some(class) = counted.statuses.get_mut(usize::from(status / 100)) {
            *class += 1;
        }
        if self.goroutine.is_some() && self.goroutine == call.goroutine {
            counted.by_one_goroutine += 1;
        }
        let endpoint = Endpoint {
            method: self.method,
            path: self.path,
            status,
        };
        let took = call.time_ns.saturating_sub(self.since_ns);
        let latency = endpoints.entry(endpoint).or_default();
        latency.answers += 1;
        latency.sum_ns += took;
        latency.most_ns = latency.most_ns.max(took);
    }
}

#[cfg(test)]
mod tests;
