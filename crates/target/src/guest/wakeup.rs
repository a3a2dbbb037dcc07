//! Wakes who waits for a file to grow.

use std::{path::Path, thread::sleep, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::inotify::{CreateFlags, WatchFlags, add_watch, init},
    io::read,
};

/// Notices of writes to a file.
#[derive(Debug)]
pub(super) struct Wakeup(Option<OwnedFd>);

impl Wakeup {
    /// Notices writes to this file from now on. A user may have too many of them: then each wait lasts its whole time.
    pub(super) fn of_writes_to(path: &Path) -> Self {
        let notices = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let watching = notices
            .and_then(|notices| add_watch(&notices, path, WatchFlags::MODIFY).map(|_| notices));
        Wakeup(watching.ok())
    }

    /// Waits until the file was written to since the last wait, and at most for this time.
    pub(super) fn wait(&self, most: Duration) {
        let Some(notices) = &self.0 else {
            sleep(most);
            return;
        };
        let timeout = Timespec::try_from(most).ok();
        // A signal ends it early: who waits looks again.
        let _ = poll(&mut [PollFd::new(notices, PollFlags::IN)], timeout.as_ref());
        while read(notices, &mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _, time::Instant};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_write_ends_the_wait_that_follows_it() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("stream");
        let mut file = fs::File::create(&path).expect("a file");
        let wakeup = Wakeup::of_writes_to(&path);
        for _ in 0..2 {
            file.write_all(b"two writes ").expect("a write");
            file.write_all(b"are one notice").expect("a write");
            // It would time the test out.
            wakeup.wait(LONG);
        }
        let begun = Instant::now();
        wakeup.wait(Duration::from_millis(20));
        assert!(
            begun.elapsed() >= Duration::from_millis(20),
            "a notice was left"
        );
    }

    #[test]
    fn without_notices_a_wait_ends_by_itself() {
        let wakeup = Wakeup::of_writes_to(Path::new("/nowhere/stream"));
        wakeup.wait(Duration::from_millis(1));
    }
}
