//! Loading objects: storage that lives as long as the skeleton, maps that stay private, and the words of the verifier.

#![allow(unsafe_code)]

use std::{
    mem::{ManuallyDrop, MaybeUninit},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{Mutex, Once},
};

use libbpf_rs::{OpenObject, PrintLevel, ProgramMut, set_print, skel::Skel};

use crate::{
    error::{Error, Result, lacks},
    run,
};

/// Last lines of libbpf's log that go into an error, at most.
const LOG_LINES: usize = 12;

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The compiled objects of `bpf/` by name.
const OBJECTS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The compiled `bpf/NAME.bpf.c`.
pub(crate) fn object_bytes(name: &str) -> Result<&'static [u8]> {
    let bytes = OBJECTS.iter().find(|(object, _)| *object == name);
    let &(_, bytes) = bytes.ok_or_else(|| lacks("this build", &format!("object {name}")))?;
    #[cfg(feature = "mutants")]
    let bytes = crate::mutant::object(name, bytes);
    Ok(bytes)
}

/// A loaded skeleton together with the storage that it borrows.
pub(crate) struct OwnedSkeleton<S> {
    skeleton: ManuallyDrop<S>,
    storage: NonNull<MaybeUninit<OpenObject>>,
}

impl<S> OwnedSkeleton<S> {
    /// Opens and loads through `load`, which is handed the storage.
    pub(crate) fn new(
        object: &'static str,
        load: impl FnOnce(&'static mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<S>,
    ) -> Result<Self> {
        let storage = NonNull::from(Box::leak(Box::new(MaybeUninit::uninit())));
        listen();
        // SAFETY: freshly allocated and not referred to elsewhere; it is freed only in `drop`,
        // after the skeleton, or below, when there is no skeleton.
        match load(unsafe { &mut *storage.as_ptr() }) {
            Ok(skeleton) => Ok(OwnedSkeleton {
                skeleton: ManuallyDrop::new(skeleton),
                storage,
            }),
            Err(source) => {
                // SAFETY: as above; a failed load has dropped what it put there.
                drop(unsafe { Box::from_raw(storage.as_ptr()) });
                Err(Error::Load {
                    object,
                    source,
                    log: last_log(),
                })
            }
        }
    }
}

impl<S: Skel<'static>> OwnedSkeleton<S> {
    /// The loaded program of that name.
    pub(crate) fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        let mut programs = self.object().progs_mut();
        programs
            .find(|program| program.autoload() && program.name() == name)
            .ok_or_else(|| Error::NotLoaded(name.to_owned()))
    }

    /// The same, to be run.
    pub(crate) fn runnable(&self, name: &str) -> Result<run::SharedProgram> {
        run::SharedProgram::new(&self.program(name)?)
    }
}

/// Has the programs loaded that are wanted, by name, and no others.
pub(crate) fn choose(object: &mut OpenObject, wanted: impl Fn(&str) -> bool) {
    for mut program in object.progs_mut() {
        let chosen = wanted(&program.name().to_string_lossy());
        program.set_autoload(chosen);
    }
}

impl<S> Drop for OwnedSkeleton<S> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here, before the storage that it borrows; the storage came from
        // a box.
        unsafe {
            ManuallyDrop::drop(&mut self.skeleton);
            drop(Box::from_raw(self.storage.as_ptr()));
        }
    }
}

impl<S> Deref for OwnedSkeleton<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.skeleton
    }
}

impl<S> DerefMut for OwnedSkeleton<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.skeleton
    }
}

/// Keeps what libbpf says for the error that may follow, off the terminal.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, |_, line| {
            if let Ok(mut log) = LOG.lock() {
                log.push(line.trim_end().to_owned());
            }
        })));
    });
    if let Ok(mut log) = LOG.lock() {
        log.clear();
    }
}

/// The last of it since [`listen`].
pub(crate) fn last_log() -> String {
    let Ok(log) = LOG.lock() else {
        return String::new();
    };
    let text = log.join("\n");
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
