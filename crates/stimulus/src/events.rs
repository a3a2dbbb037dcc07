//! Waiting for file descriptors, and notices of changes.

use std::fs;

use nix::{
    fcntl::AT_FDCWD,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags},
    },
};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::{AtFlags, CWD, Mode, OFlags, inotify, openat, unlinkat},
    io::{read, write},
    time::Timespec,
};

use crate::{
    error::{Result, Step},
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new("eventfd", "eventfd2, write, read, close", event_file),
    Stimulus::new("poll", "ppoll of a file that is ready", poll_file),
    Stimulus::new(
        "epoll",
        "epoll_create1, epoll_ctl (add), epoll_wait, epoll_ctl ×2 (modify, delete), close",
        event_poll,
    ),
    Stimulus::new(
        "inotify",
        "inotify_add_watch, openat (create), close, unlinkat, read, inotify_rm_watch, read",
        watch,
    ),
    Stimulus::new(
        "fanotify",
        "fanotify_mark (add), openat, close, read, close, fanotify_mark (remove)",
        notify,
    ),
];

fn event_file(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        expect_bytes(write(&event, &1_u64.to_ne_bytes())?, 8)?;
        expect_bytes(read(&event, &mut [0; 8])?, 8)
    }))
}

fn poll_file(_: &Context) -> Result<Prepared> {
    let event = eventfd(1, EventfdFlags::CLOEXEC).step("make an eventfd")?;
    Ok(Prepared::new(move || {
        let ready = poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&AT_ONCE))?;
        expect_bytes(ready, 1)
    }))
}

fn event_poll(_: &Context) -> Result<Prepared> {
    let event = eventfd(1, EventfdFlags::CLOEXEC).step("make an eventfd")?;
    Ok(Prepared::new(move || {
        let all = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        all.add(&event, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
        let mut ready = [EpollEvent::empty(); 4];
        expect_bytes(all.wait(&mut ready, EpollTimeout::ZERO)?, 1)?;
        all.modify(&event, &mut EpollEvent::new(EpollFlags::EPOLLOUT, 1))?;
        all.delete(&event)?;
        Ok(())
    }))
}

fn watch(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let path = folder.path().join("file");
    let notices = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
        .step("start inotify")?;
    let kinds = inotify::WatchFlags::CREATE | inotify::WatchFlags::DELETE;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(Prepared::new(move || {
        let watch = inotify::add_watch(&notices, folder.path(), kinds)?;
        openat(CWD, &path, flags, Mode::RUSR)?;
        unlinkat(CWD, &path, AtFlags::empty())?;
        read(&notices, &mut [0; 1024])?;
        inotify::remove_watch(&notices, watch)?;
        read(&notices, &mut [0; 1024])?;
        Ok(())
    }))
}

fn notify(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let path = folder.path().join("file");
    fs::write(&path, "x").step("write a file")?;
    let flags = InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
    let files = EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC;
    let notices = Fanotify::init(flags, files).step("start fanotify")?;
    let mask = MaskFlags::FAN_OPEN;
    Ok(Prepared::new(move || {
        let _kept = &folder;
        notices.mark(MarkFlags::FAN_MARK_ADD, mask, AT_FDCWD, Some(&path))?;
        openat(CWD, &path, OFlags::CLOEXEC, Mode::empty())?;
        expect_bytes(notices.read_events()?.len(), 1)?;
        Ok(notices.mark(MarkFlags::FAN_MARK_REMOVE, mask, AT_FDCWD, Some(&path))?)
    }))
}
