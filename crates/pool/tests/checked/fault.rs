//! Faults on purpose, one at a time: each ordering of a pool's source is weakened to `Relaxed`, and each
//! change that is one step is taken apart into two. A checker that proves anything must catch them.
//!
//! The pools are not changed for it. Their atomics ask here before they act, and are known by the place in
//! the source that they are called from.

use std::{
    any::Any,
    cell::RefCell,
    collections::BTreeSet,
    fmt, fs,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    path::Path,
    sync::atomic::Ordering,
};

/// The kind of a planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    /// An operation orders nothing. Of an exchange: where it succeeds.
    Relaxed,
    /// An operation that acquires and releases only acquires.
    OnlyAcquires,
    /// An operation that acquires and releases only releases.
    OnlyReleases,
    /// An exchange that fails orders nothing.
    FailsRelaxed,
    /// A load and then a store, and others may come between: a missing exchange.
    Torn,
}

/// One fault at one place of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    file: &'static str,
    line: u32,
    column: u32,
    pub(crate) kind: FaultKind,
}

impl Fault {
    /// The line of the source that it is in.
    pub(crate) fn code(&self) -> String {
        let name = Path::new(self.file).file_name().expect("it names a file");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
        let source =
            fs::read_to_string(path).expect("a pool's atomics are used in a file of its own");
        let line = source.lines().nth(self.line as usize - 1);
        line.expect("it has not become shorter").trim().into()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let file = self.file.rsplit('/').next().unwrap_or(self.file);
        write!(f, "{file}:{}:{} {:?}", self.line, self.column, self.kind)
    }
}

// The checkers run all threads of a model on the thread of its test.
thread_local! {
    static POSSIBLE: RefCell<BTreeSet<Fault>> = const { RefCell::new(BTreeSet::new()) };
    static NOW: RefCell<Vec<Fault>> = const { RefCell::new(Vec::new()) };
}

/// Asked by the atomics: is this to be done wrong now?
pub(crate) fn strikes(kind: FaultKind, at: &'static Location<'static>) -> bool {
    let fault = Fault {
        file: at.file(),
        line: at.line(),
        column: at.column(),
        kind,
    };
    POSSIBLE.with_borrow_mut(|possible| possible.insert(fault));
    NOW.with_borrow(|now| now.contains(&fault))
}

/// The ordering that an operation there has now.
pub(crate) fn ordering(order: Ordering, at: &'static Location<'static>) -> Ordering {
    match order {
        Ordering::Relaxed => order,
        Ordering::AcqRel => match (
            strikes(FaultKind::OnlyAcquires, at),
            strikes(FaultKind::OnlyReleases, at),
        ) {
            (false, false) => order,
            (true, false) => Ordering::Acquire,
            (false, true) => Ordering::Release,
            (true, true) => Ordering::Relaxed,
        },
        _ if strikes(FaultKind::Relaxed, at) => Ordering::Relaxed,
        _ => order,
    }
}

/// The ordering that an exchange which fails there has now.
pub(crate) fn ordering_of_failure(order: Ordering, at: &'static Location<'static>) -> Ordering {
    match order {
        Ordering::Relaxed => order,
        _ if strikes(FaultKind::FailsRelaxed, at) => Ordering::Relaxed,
        _ => order,
    }
}

/// The faults that the atomics in `run` could have had.
pub(crate) fn possible(run: impl FnOnce()) -> Vec<Fault> {
    POSSIBLE.take();
    run();
    POSSIBLE.take().into_iter().collect()
}

/// Returns the message with which `run` panics while these faults are planted, or `None`.
pub(crate) fn caught(faults: &[Fault], run: impl FnOnce()) -> Option<String> {
    NOW.set(faults.to_vec());
    let outcome = catch_unwind(AssertUnwindSafe(run));
    NOW.take();
    outcome.err().map(|payload| said(&*payload))
}

/// The text of a panic.
pub(crate) fn said(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_else(|| "a panic without text".into())
}
