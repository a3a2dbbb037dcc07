//! Programs attached to places of a process, and their counts.

#![allow(
    unsafe_code,
    reason = "pointers from C are read, and functions exported by their names"
)]

use super::{
    argument::{check, optional, text, values, write, write_all},
    failure::{Failure, Result, answer},
    handle::{Handle, Opened, locked},
};
use bpfcost_uprobe::{
    probes::{At, Attached, Place, Probes},
    process::{self, Function, Image},
};
use std::{
    collections::HashMap,
    ffi::{c_char, c_int},
    path::Path,
};

/// `enum bpfcost_uprobe_at`.
const ENTRY: u32 = 0;
const RETURN: u32 = 1;
const OFFSET: u32 = 2;
const USDT: u32 = 3;

/// `struct bpfcost_uprobe_place`.
#[repr(C)]
struct CPlace {
    program: *const c_char,
    file: *const c_char,
    provider: *const c_char,
    name: *const c_char,
    offset: u64,
    cookie: u64,
    at: u32,
    reserved: u32,
}

/// `struct bpfcost_uprobe_counts`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Counts {
    hits: u64,
    missed: u64,
}

/// Programs that are attached.
pub(crate) struct Attachment {
    pub(crate) attached: Attached,
    /// Number of places in the code that each place of the caller's is: a USDT probe may be several.
    sites: Vec<usize>,
}

/// The counts of each of the caller's places, which are so many places in the code.
fn sums(sites: &[usize], all: &[process::Counts]) -> Vec<Counts> {
    let mut all = all.iter();
    let sum = |&sites: &usize| {
        let places = all.by_ref().take(sites);
        places.fold(Counts::default(), |sum, one| Counts {
            hits: sum.hits + one.hits,
            missed: sum.missed + one.missed,
        })
    };
    sites.iter().map(sum).collect()
}

/// A place in the code.
struct Found<'a> {
    program: &'a str,
    function: Function,
    at: At,
    cookie: u64,
}

/// The executable files of a process, each read once.
struct Files<'a> {
    pid: i32,
    images: HashMap<Option<&'a str>, Image>,
}

impl<'a> Files<'a> {
    fn image(&mut self, file: Option<&'a str>) -> Result<&Image> {
        if !self.images.contains_key(&file) {
            let image = match file {
                None => Image::of_program(self.pid)?,
                Some(file) => Image::open(self.pid, Path::new(file))?,
            };
            self.images.insert(file, image);
        }
        Ok(&self.images[&file])
    }

    /// Places in the code that one of the caller's is.
    ///
    /// # Safety
    ///
    /// The texts of the place are as the header says.
    unsafe fn find(&mut self, place: &'a CPlace, probes: &mut Probes) -> Result<Vec<Found<'a>>> {
        // SAFETY: as the caller promises, here and below.
        let program = unsafe { text(place.program, "the program of a place") }?;
        // SAFETY: the same.
        let file = unsafe { optional(place.file, "the file of a place") }?;
        // SAFETY: the same.
        let name = unsafe { text(place.name, "the name of a place") }?;
        if place.reserved != 0 {
            return Err(Failure::argument("`reserved` of a place is not 0"));
        }
        if place.at != USDT && !place.provider.is_null() {
            return Err(Failure::argument("only USDT probes have a provider"));
        }
        if place.at != OFFSET && place.offset != 0 {
            return Err(Failure::argument(
                "`offset` of a place is not 0, and `at` is not BPFCOST_UPROBE_OFFSET",
            ));
        }
        let image = self.image(file)?;
        let at = match place.at {
            ENTRY => At::Entry,
            RETURN => At::Return,
            OFFSET => At::Inside {
                offset: place.offset,
                semaphore: None,
            },
            USDT => {
                // SAFETY: the same.
                let provider = unsafe { text(place.provider, "the provider of a place") }?;
                let sites = image.usdt(provider, name)?;
                let found = sites.iter().map(|site| {
                    let function = image.function_around(site.address)?;
                    Ok(Found {
                        program,
                        at: At::Inside {
                            offset: site.address - function.address,
                            semaphore: site.semaphore,
                        },
                        function,
                        cookie: probes.usdt_cookie(program, site, place.cookie)?,
                    })
                });
                return found.collect();
            }
            other => {
                return Err(Failure::argument(format!(
                    "{other} is no value of enum bpfcost_uprobe_at"
                )));
            }
        };
        Ok(vec![Found {
            program,
            function: image.function(name)?,
            at,
            cookie: place.cookie,
        }])
    }
}

impl Opened {
    fn attachment(&self, number: u64) -> Result<&Attachment> {
        let found = self.attachments.get(&number);
        found.ok_or_else(|| unknown(number))
    }
}

fn unknown(number: u64) -> Failure {
    let text = format!("nothing is attached by the number {number}\n  it may be detached already");
    Failure::new(libc::ENOENT, text)
}

/// An error where there is not room for the counts of each place.
fn check_room(room: usize, attachment: &Attachment) -> Result<()> {
    let places = attachment.sites.len();
    if room == places {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "{places} places are attached, and there are {room} counts"
    )))
}

/// Attaches programs to places: all of them, or none.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_attach(
    handle: *mut Handle,
    pid: c_int,
    places: *const CPlace,
    count: usize,
    attachment: *mut u64,
) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header, here and below.
        let mut opened = unsafe { locked(handle) }?;
        // SAFETY: the same.
        let places = unsafe { values(places, count, "places") }?;
        check(attachment, 1, "the place for the attachment")?;
        if places.is_empty() {
            return Err(Failure::argument("there are no places"));
        }
        if pid <= 0 {
            return Err(Failure::argument(format!("{pid} is no process")));
        }
        let mut files = Files {
            pid,
            images: HashMap::new(),
        };
        let (mut found, mut sites) = (Vec::new(), Vec::new());
        for place in places {
            // SAFETY: the same.
            let some = unsafe { files.find(place, &mut opened.probes) }?;
            sites.push(some.len());
            found.extend(some);
        }
        let found: Vec<Place<'_>> = found
            .iter()
            .map(|one| Place {
                program: one.program,
                function: &one.function,
                at: one.at,
                cookie: one.cookie,
            })
            .collect();
        let attached = opened.probes.attach(pid, &found)?;
        let number = opened.next;
        opened.next += 1;
        let new = Attachment { attached, sites };
        opened.attachments.insert(number, new);
        // SAFETY: the same.
        unsafe { write(attachment, number, "the place for the attachment") }
    })
}

/// Restores the functions.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_detach(
    handle: *mut Handle,
    attachment: u64,
    counts: *mut Counts,
    count: usize,
) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header, here and below.
        let mut opened = unsafe { locked(handle) }?;
        let known = opened.attachment(attachment)?;
        if !counts.is_null() || count != 0 {
            check(counts, count, "counts")?;
            check_room(count, known)?;
        }
        let known = opened.attachments.remove(&attachment);
        let Attachment { attached, sites } = known.ok_or_else(|| unknown(attachment))?;
        let all = opened.probes.detach_counted(attached)?;
        let sums = sums(&sites, &all);
        // SAFETY: the same.
        unsafe { write_all(counts, count, &sums, "counts") }
    })
}

/// Counts so far.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_counts(
    handle: *mut Handle,
    attachment: u64,
    counts: *mut Counts,
    count: usize,
) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header, here and below.
        let opened = unsafe { locked(handle) }?;
        let known = opened.attachment(attachment)?;
        check_room(count, known)?;
        let all = opened.probes.counts(&known.attached);
        let sums = sums(&known.sites, &all);
        // SAFETY: the same.
        unsafe { write_all(counts, count, &sums, "counts") }
    })
}

/// Writes 1 if the process ended, or runs another program, and no child runs the programs any more; else 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_has_ended(
    handle: *mut Handle,
    attachment: u64,
    ended: *mut c_int,
) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header, here and below.
        let opened = unsafe { locked(handle) }?;
        let known = opened.attachment(attachment)?;
        let is_over = opened.probes.has_ended(&known.attached);
        // SAFETY: the same.
        unsafe { write(ended, is_over.into(), "the place for the answer") }
    })
}
