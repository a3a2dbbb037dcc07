//! What a guest had sent when its run was killed: the reaper writes it to the journal, before it removes the guest's folder.
//! The run itself listens every 50 ms, which is several short trials.

use std::{
    path::Path,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{Message, Tail};
use bpfcost_process::reaper::{Duty, Reaper};
use bpfcost_record::{Journal, JournalError};

/// How long the killed process may take to let go of its journal.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often that is tried.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Owes the rescue, until this is dropped.
#[derive(Debug)]
pub struct Rescue {
    reaper: Arc<Reaper>,
    duty: Duty,
}

impl Rescue {
    /// From the guest with this folder, to this journal, which holds nothing of the guest yet.
    pub(super) fn new(folder: &Path, journal: &Journal) -> Result<Self> {
        let duty = Duty::Rescue {
            folder: folder.to_owned(),
            // The reaper keeps the folder in which it was started, but that is no promise.
            journal: std::path::absolute(journal.path())?,
            from: journal.length(),
        };
        let reaper = Reaper::of_process()?;
        reaper.owe(duty.clone())?;
        Ok(Rescue { reaper, duty })
    }
}

impl Drop for Rescue {
    fn drop(&mut self) {
        self.reaper.done(self.duty.clone());
    }
}

/// Writes what the guest sent and the journal lacks; there is no place to report a failure to.
pub fn rescue(folder: &Path, journal: &Path, from: u64) {
    let _ = rescued(folder, journal, from);
}

fn rescued(folder: &Path, journal: &Path, from: u64) -> Result<()> {
    let (mut journal, written) = taken_over(journal, from)?;
    let mut tail = Tail::new(folder);
    let mut count = 0;
    loop {
        let messages = tail.read()?;
        if messages.is_empty() {
            return Ok(());
        }
        for message in messages {
            let missing = count >= written;
            match &message {
                // The seconds of a guest that counts instructions stay the guest's own; there they decide nothing.
                Message::Event(event) if missing => journal.event(event)?,
                Message::Disturbed(disturbance) if missing => journal.disturbed(disturbance)?,
                Message::Event(_) | Message::Disturbed(_) => {}
                _ => continue,
            }
            count += 1;
        }
    }
}

fn taken_over(path: &Path, from: u64) -> Result<(Journal, usize), JournalError> {
    let begun = Instant::now();
    loop {
        match Journal::take_over(path, from) {
            Err(JournalError::Busy(_)) if begun.elapsed() < TIMEOUT => sleep(POLL_INTERVAL),
            taken => return taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A journal with this text behind its first line, and a stream, after a rescue.
    fn after(written: &str, stream: &str) -> String {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("x.json.journal");
        fs::write(&path, format!("header\n{written}")).expect("a journal");
        fs::write(folder.path().join("stream"), stream).expect("a stream");
        rescue(folder.path(), &path, 7);
        let text = fs::read_to_string(&path).expect("the journal");
        text.strip_prefix("header\n")
            .expect("its first line")
            .to_owned()
    }

    fn looked(epochs: usize) -> String {
        format!("{{\"looked\":{{\"epochs\":{epochs},\"open\":0,\"next\":9}}}}")
    }

    #[test]
    fn what_the_journal_lacks_is_added() {
        let [one, two, three] = [1, 2, 3].map(looked);
        let load = "{\"gone\":3}";
        let stream = format!(
            "{load}\n{{\"event\":{one}}}\n{{\"event\":{two}}}\n{{\"event\":{three}}}\n{{\"ev"
        );
        let all = format!("{one}\n{two}\n{three}\n");
        assert_eq!(after("", &stream), all);
        assert_eq!(after(&format!("{one}\n"), &stream), all);
        // A line that was torn by the kill.
        assert_eq!(after(&format!("{one}\n{}", &two[..9]), &stream), all);
        assert_eq!(after(&all, &stream), all);
    }

    #[test]
    fn a_journal_that_another_run_goes_on_with_is_left_alone() {
        let stream = format!("{{\"event\":{}}}\n", looked(1));
        let resumed = "{\"resumed\":{\"at\":\"2026-01-01T00:00:00Z\"}}\n";
        assert_eq!(after(resumed, &stream), resumed);
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("x.json.journal");
        fs::write(folder.path().join("stream"), stream).expect("a stream");
        rescue(folder.path(), &path, 7);
        assert!(!path.exists(), "its run has ended");
    }
}
