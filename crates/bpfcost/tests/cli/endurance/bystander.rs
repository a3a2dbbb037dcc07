//! A process that has nothing to do with a run, or that a run watches: it goes on, and its code stays as it is.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use bpfcost_process::wait_until;

use super::{POLL_INTERVAL, TIMEOUT};
use crate::{patched::patched, tool::Tool};

/// Killed when dropped.
pub(crate) struct Bystander {
    child: Child,
    /// Home for the file of its turns.
    home: Tool,
}

impl Bystander {
    pub(crate) fn start() -> Self {
        let home = Tool::new();
        // Makes system calls, and starts processes.
        let script = "while :; do /usr/bin/true; echo turn >>\"$0\"; sleep 0.01; done";
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(home.path("turns"))
            .stdin(Stdio::null())
            .spawn();
        Bystander {
            child: child.expect("sh runs"),
            home,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn turns(&self) -> u64 {
        fs::metadata(self.home.path("turns")).map_or(0, |file| file.len())
    }

    /// Waits until its code is as in its files, and it has gone on.
    #[track_caller]
    pub(crate) fn assert_unharmed(&mut self) {
        let before = self.turns();
        let (mut other_code, mut turns) = (Vec::new(), 0);
        let unharmed = wait_until(TIMEOUT, POLL_INTERVAL, || {
            let ended = self.child.try_wait().expect("a child");
            assert_eq!(ended, None, "the bystander was ended");
            (other_code, turns) = (patched(self.id()), self.turns() - before);
            other_code.is_empty() && turns > 20
        });
        assert!(
            unharmed,
            "the bystander has other code in {other_code:?}, and wrote {turns} bytes"
        );
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
