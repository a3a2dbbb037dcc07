//! POSIX message queues.

use std::{
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use nix::{
    mqueue::{MQ_OFlag, MqAttr, MqdT, mq_close, mq_open, mq_receive, mq_send, mq_unlink},
    sys::stat::Mode,
};

use crate::{
    error::Result,
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

pub(crate) const STIMULI: &[Stimulus] = &[Stimulus::new(
    "message-queue",
    "mq_open, mq_unlink, mq_timedsend and mq_timedreceive of 64 bytes, close",
    queue,
)];

/// A queue, closed when it is dropped.
struct Queue(Option<MqdT>);

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            let _ = mq_close(queue);
        }
    }
}

fn queue(_: &Context) -> Result<Prepared> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("/stimulus-{}-{number}", process::id());
    let flags = MQ_OFlag::O_CREAT
        | MQ_OFlag::O_EXCL
        | MQ_OFlag::O_RDWR
        | MQ_OFlag::O_NONBLOCK
        | MQ_OFlag::O_CLOEXEC;
    let size = MqAttr::new(0, 4, 64, 0);
    Ok(Prepared::new(move || {
        let open = mq_open(name.as_str(), flags, Mode::S_IRUSR, Some(&size))?;
        let queue = Queue(Some(open));
        mq_unlink(name.as_str())?;
        let Some(open) = &queue.0 else { return Ok(()) };
        mq_send(open, &[1; 64], 0)?;
        expect_bytes(mq_receive(open, &mut [0; 64], &mut 0)?, 64)
    }))
}
