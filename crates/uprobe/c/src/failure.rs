//! Errors as C has them: a negative number, and a text that a thread asks for afterwards.

#![allow(
    unsafe_code,
    reason = "functions are exported by their names, which the linker can't check"
)]

use bpfcost_uprobe::{object, probes, process};
use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
    io,
    panic::{self, AssertUnwindSafe},
};

thread_local! {
    /// The text of the thread's last failed call.
    static TEXT: RefCell<CString> = RefCell::default();
}

/// A failed call: the number, without its sign, and the text.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    text: String,
}

/// The result of what a call does.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Self {
        Failure {
            code,
            text: text.into(),
        }
    }

    /// An argument that is not as the header wants it.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Failure::new(libc::EINVAL, text)
    }

    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        Failure::new(system_errno(error), format!("{what}: {error}"))
    }
}

impl<E: Into<probes::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        Failure::new(code(&error), error.to_string())
    }
}

/// The number for an error, as the header lists them.
fn code(error: &probes::Error) -> c_int {
    use probes::Error as E;
    match error {
        E::Object(error) => object_errno(error),
        E::Process(error) => process_errno(error),
        E::NoProgram { .. } | E::NoMap { .. } => libc::ENOENT,
        E::WrongMap { .. } => libc::EINVAL,
        E::Map { source, .. } | E::System { source, .. } => system_errno(source),
        E::ThreadMemory { .. } => libc::ENOMEM,
        E::ArenaTaken { .. } => libc::EBUSY,
        E::Ring { .. } => libc::EIO,
        E::Translate { .. }
        | E::TailCallStack { .. }
        | E::ArenaSeccomp { .. }
        | E::Usdt { .. }
        | E::Seccomp { .. } => libc::EOPNOTSUPP,
    }
}

fn object_errno(error: &object::Error) -> c_int {
    match error {
        object::Error::Rejected { .. } => libc::EACCES,
        object::Error::Constant { .. } => libc::EINVAL,
        object::Error::Load { .. } if error.is_denied() => libc::EPERM,
        object::Error::Open { .. } | object::Error::Load { .. } => libc::ENOEXEC,
        object::Error::Pages { source, .. } | object::Error::Slots { source, .. } => {
            system_errno(source)
        }
        object::Error::Arena { .. } | object::Error::OtherProgram { .. } => libc::EOPNOTSUPP,
    }
}

fn process_errno(error: &process::Error) -> c_int {
    use process::Error as E;
    match error {
        E::NoProcess { .. } | E::Gone { .. } => libc::ESRCH,
        E::Permission { .. } | E::Seccomp { .. } => libc::EPERM,
        E::Traced { .. }
        | E::Changed { .. }
        | E::SavedAddress { .. }
        | E::Unstoppable { .. }
        | E::AddressTaken { .. }
        | E::TracerEnded { .. }
        | E::MemoryShared { .. } => libc::EBUSY,
        E::NotMapped { .. } | E::NoSymbol { .. } | E::NoUsdt { .. } => libc::ENOENT,
        E::Ambiguous { .. } => libc::EINVAL,
        E::Replaced { .. } => libc::ESTALE,
        E::NoGap { .. } | E::Full { .. } | E::ThreadMemory { .. } => libc::ENOMEM,
        E::Remote { source, .. } | E::System { source, .. } => system_errno(source),
        E::Architecture { .. }
        | E::NoFsGsBase
        | E::GsTaken { .. }
        | E::FsShared { .. }
        | E::Elf { .. }
        | E::Symbol { .. }
        | E::Unpatchable { .. }
        | E::TooLong { .. }
        | E::Code { .. } => libc::EOPNOTSUPP,
    }
}

fn system_errno(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Does what a call is for. Returns what C gets.
pub(crate) fn answer(work: impl FnOnce() -> Result<()>) -> c_int {
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    let done = done.unwrap_or_else(|panic| Err(panic_failure(panic.as_ref())));
    let Err(failure) = done else {
        return 0;
    };
    let text = failure.text.replace('\0', "\u{fffd}");
    TEXT.set(CString::new(text).unwrap_or_default());
    -failure.code
}

fn panic_failure(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("a panic");
    Failure::new(
        libc::ENOTRECOVERABLE,
        format!("{text}\n  this is a bug of the library: please report it"),
    )
}

/// The text of the thread's last failed call; empty where none failed.
#[unsafe(no_mangle)]
extern "C" fn bpfcost_uprobe_error() -> *const c_char {
    TEXT.with_borrow(|text| text.as_ptr())
}

/// The library's version.
#[unsafe(no_mangle)]
extern "C" fn bpfcost_uprobe_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_text() {
        assert_eq!(answer(|| panic!("it was {}", 7)), -libc::ENOTRECOVERABLE);
        let text = TEXT.with_borrow(|text| text.to_string_lossy().into_owned());
        assert!(text.starts_with("it was 7\n"), "{text}");
        assert_eq!(answer(|| Ok(())), 0);
    }

    #[test]
    fn an_error_has_a_number_and_a_text_without_zeros() {
        let failed = || Err(Failure::argument("a\0b"));
        assert_eq!(answer(failed), -libc::EINVAL);
        TEXT.with_borrow(|text| assert_eq!(text.to_str(), Ok("a\u{fffd}b")));
    }
}
