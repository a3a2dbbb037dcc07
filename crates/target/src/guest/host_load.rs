//! The guest's side of load from outside: it requests the load of a window, and waits while the host's client runs.

use std::time::Duration;

use anyhow::Result;

use super::{LoadReply, Message, Requests};
use bpfcost_workload::{
    Error, LoadResult,
    outside::{LoadOrder, Outside},
};

/// Time to an answer beyond the client's own limit. The host ends a client that hangs, but not one that lacks CPU, and a guest
/// whose host has ended is gone: this only keeps a guest from waiting for ever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Requests load from the host.
#[derive(Debug)]
pub struct HostLoad(Requests);

impl HostLoad {
    /// By these requests.
    pub fn new(requests: Requests) -> Self {
        HostLoad(requests)
    }
}

impl Outside for HostLoad {
    fn load(&self, order: &LoadOrder, limit: Duration) -> Result<Option<LoadResult>> {
        let order = order.clone();
        let window = Duration::from_millis(order.window_ms);
        let message = |number| Message::Load { number, order };
        let answer: LoadReply = self
            .0
            .ask("load", message, window, limit + ANSWER_TIMEOUT)?;
        Ok(answer.map_err(Error::Client)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs::File, thread, thread::sleep};

    use super::*;
    use crate::guest::{
        Tail,
        channel::{answer_name, put_answer},
    };
    use bpfcost_workload::Reading;

    const LIMIT: Duration = Duration::from_secs(60);

    fn order(warm_up: bool) -> LoadOrder {
        LoadOrder {
            factors: BTreeMap::from([("path".to_owned(), "forwarded".to_owned())]),
            window_ms: 1,
            warm_up,
        }
    }

    /// The answers to a guest's requests, by a host that gives these one after the other.
    #[test]
    fn each_order_gets_its_own_answer() {
        let made = LoadResult {
            took: Duration::from_millis(1500),
            reading: Reading {
                ops: 7,
                ..Reading::default()
            },
            client_ns: None,
        };
        let answers: [LoadReply; 3] = [
            Ok(None),
            Ok(Some(made.clone())),
            Err("nothing is there".into()),
        ];
        let folder = tempfile::TempDir::new().expect("a folder");
        File::create(folder.path().join("stream")).expect("a file");
        let host_load = HostLoad::new(Requests::open(folder.path()).expect("the shared folder"));
        let host = {
            let (path, answers) = (folder.path().to_owned(), answers.clone());
            thread::spawn(move || {
                let mut tail = Tail::new(&path);
                let mut orders = Vec::new();
                while orders.len() < answers.len() {
                    for message in tail.read().expect("messages") {
                        let Message::Load { number, order } = message else {
                            panic!("{message:?}");
                        };
                        let answer = &answers[orders.len()];
                        orders.push((number, order));
                        put_answer(&path, number, answer).expect("an answer");
                    }
                    sleep(Duration::from_millis(5));
                }
                orders
            })
        };
        assert_eq!(host_load.load(&order(true), LIMIT).expect("warm"), None);
        assert_eq!(
            host_load.load(&order(false), LIMIT).expect("a window"),
            Some(made)
        );
        let error = host_load.load(&order(false), LIMIT).expect_err("it failed");
        assert!(
            error
                .downcast_ref::<Error>()
                .is_some_and(|error| matches!(error, Error::Client(_)))
        );
        assert_eq!(error.to_string(), "nothing is there");
        let orders = host.join().expect("the host");
        let expected = [(0, order(true)), (1, order(false)), (2, order(false))];
        assert_eq!(orders, expected);
        // An answer that was read is removed when the next one comes.
        let left = |number: u32| folder.path().join(answer_name(number)).exists();
        assert_eq!([0, 1, 2].map(left), [false, false, true]);
    }
}
