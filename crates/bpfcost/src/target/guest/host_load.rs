//! The guest's side of load from outside: it requests the load of a window, and waits while the host's client runs.

use std::{
    cell::{Cell, RefCell},
    fs, io,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{GuestChannel, LoadReply, Message, channel::answer_name};
use crate::workload::{
    Error, LoadResult,
    outside::{LoadOrder, Outside},
};

/// Interval at which the guest looks for an answer once the window is over. Each look is a message to the host and takes
/// CPU time.
const LOOK: Duration = Duration::from_millis(50);

/// How much longer than its client an answer may take, so that the host can report what is wrong with the client.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requests load from the host.
#[derive(Debug)]
pub struct HostLoad {
    channel: RefCell<GuestChannel>,
    folder: PathBuf,
    asked: Cell<u32>,
}

impl HostLoad {
    /// By the shared folder, as the guest sees it.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        Ok(HostLoad {
            channel: RefCell::new(GuestChannel::open(folder)?),
            folder: folder.to_owned(),
            asked: Cell::new(0),
        })
    }
}

impl Outside for HostLoad {
    fn load(&self, order: &LoadOrder, limit: Duration) -> Result<Option<LoadResult>> {
        let number = self.asked.get();
        self.asked.set(number.wrapping_add(1));
        let order = order.clone();
        let window = Duration::from_millis(order.window_ms);
        self.channel
            .borrow_mut()
            .say(&Message::Load { number, order })
            .context("cannot ask the host for load")?;
        let file = self.folder.join(answer_name(number));
        let begun = Instant::now();
        sleep(window);
        while !file.exists() {
            if begun.elapsed() > window + limit + PATIENCE {
                let s = begun.elapsed().as_secs();
                let text = format!("the host was asked for load {s} s ago, and has not answered");
                return Err(Error::Client(text).into());
            }
            sleep(LOOK);
        }
        let answer = fs::read(&file).context("cannot read the host's answer")?;
        let answer: LoadReply =
            serde_json::from_slice(&answer).context("cannot read the host's answer")?;
        Ok(answer.map_err(Error::Client)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs::File, thread};

    use super::*;
    use crate::{
        target::guest::{Tail, channel::put_answer},
        workload::Reading,
    };

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
        let host_load = HostLoad::of(folder.path()).expect("the shared folder");
        let host = {
            let (path, answers) = (folder.path().to_owned(), answers.clone());
            thread::spawn(move || {
                let mut tail = Tail::of(&path);
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
        assert!(error.downcast_ref::<Error>().is_some_and(Error::is_input));
        assert_eq!(error.to_string(), "nothing is there");
        let orders = host.join().expect("the host");
        let expected = [(0, order(true)), (1, order(false)), (2, order(false))];
        assert_eq!(orders, expected);
        // An answer that was read is removed when the next one comes.
        let left = |number: u32| folder.path().join(answer_name(number)).exists();
        assert_eq!([0, 1, 2].map(left), [false, false, true]);
    }
}
