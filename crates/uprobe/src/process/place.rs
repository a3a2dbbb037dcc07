//! The programs at one place: those that are attached, and how the place's code gets others.
//!
//! The first program of a place is called by the site's code, which counts its runs too. Where there are several, that
//! code calls a list, which counts the runs of all others and sets their cookies. So a single program costs no more for
//! that. All change while the process is stopped; a thread that has just counted a hit goes on with what is there then.

use super::{
    attachment::Attachment,
    error::{Error, Result},
    memory::Write,
    plan::{Planned, one_semaphore, overlaps},
    program_list::{self, Listed},
    replaced::Replaced,
    runtime::{Known, Program, Runtime},
    session::Session,
    site::{JUMP, Site, When},
};

/// A place that is attached.
#[derive(Debug)]
pub(super) struct Place {
    known: Known,
    /// In the order in which they were attached, the reverse of that in which they run.
    members: Vec<Member>,
    /// The attachments whose programs still run, as there was no code without them when they were to end.
    kept: Vec<u64>,
}

/// A program at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    /// The number of its attachment.
    pub(super) attachment: u64,
    pub(super) program: Program,
    /// The slot whose first number is its runs: the site's, or one of its own.
    pub(super) slot: u64,
}

/// A place that is about to get programs.
#[derive(Debug)]
pub(super) struct Addition {
    pub(super) known: Known,
    /// The address of the USDT site's semaphore.
    pub(super) semaphore: Option<u64>,
    pub(super) new: Vec<Member>,
    /// The attachments that are there already.
    earlier: Vec<u64>,
    /// Program or list that the site's code is going to call.
    callee: Program,
}

impl Addition {
    /// Returns whether nothing is there yet.
    pub(super) fn is_first(&self) -> bool {
        self.earlier.is_empty()
    }

    /// Returns what has the site's code call it.
    pub(super) fn program(&self) -> Write {
        self.known.running(self.callee)
    }
}

impl Place {
    /// The programs that are not an attachment's.
    fn without(&self, attachment: u64) -> impl Iterator<Item = &Member> {
        let members = self.members.iter();
        members.filter(move |member| member.attachment != attachment)
    }
}

impl Runtime {
    /// The place of a site, if it is attached. An error where another one has some of its bytes.
    pub(super) fn place(&self, site: &Site) -> Result<Option<&Place>> {
        let place = self.places.get(&site.address);
        let place = place.filter(|place| place.known.site.is_same(site));
        let mut jumps = self.replaced.keys();
        if place.is_none() && jumps.any(|&other| site.overlaps(other, other + JUMP as u64)) {
            return Err(overlaps(site));
        }
        Ok(place)
    }

    /// Prepares a place for programs. `taken` are the slots that other places of the attachment have, by the program's
    /// probe.
    pub(super) fn addition(
        &mut self,
        planned: &Planned<'_>,
        attachment: u64,
        taken: &mut Vec<(usize, (u64, When), u64)>,
    ) -> Result<Addition> {
        let Planned { function, site, .. } = planned;
        let (known, mut members) = match self.place(site)? {
            // The children's copies of the site's code and of the list are not changed.
            Some(_) if self.areas.children.is_some() => return Err(in_children(site)),
            Some(place) => (place.known.clone(), place.members.clone()),
            None => (self.trampoline(function, site)?, Vec::new()),
        };
        let key = site.key(function);
        let earlier: Vec<u64> = members.iter().map(|one| one.attachment).collect();
        let mut new = Vec::new();
        for &(probe, program) in &planned.programs {
            let is_it = |one: &&(usize, (u64, When), u64)| (one.0, one.1) == (probe, key);
            // All returns of a function are counted together.
            let same = taken
                .iter()
                .find(is_it)
                .filter(|_| site.when == When::Return);
            let slot = match same {
                Some(&(.., slot)) => slot,
                None if earlier.is_empty() && planned.programs.len() == 1 => known.slot,
                None => {
                    let attached = self.places.values().flat_map(|place| &place.members);
                    let used: Vec<u64> = attached
                        .map(|member| member.slot)
                        .chain(taken.iter().map(|&(.., slot)| slot))
                        .chain([known.slot])
                        .collect();
                    self.slot(key, |slot| !used.contains(&slot))?
                }
            };
            taken.push((probe, key, slot));
            new.push(Member {
                attachment,
                program,
                slot,
            });
        }
        members.extend(&new);
        let callee = self.callee(&known, &members, None)?;
        Ok(Addition {
            known,
            semaphore: planned.semaphore,
            new,
            earlier,
            callee,
        })
    }

    /// Returns what a site's code calls for these programs.
    fn callee(
        &mut self,
        known: &Known,
        members: &[Member],
        session: Option<&Session>,
    ) -> Result<Program> {
        let first = members.iter().find(|member| member.slot == known.slot);
        if let (Some(only), 1) = (first, members.len()) {
            return Ok(only.program);
        }
        let listed = |member: &Member| Listed {
            program: member.program,
            slot: (member.slot != known.slot).then_some(member.slot),
        };
        // As in the kernel, the latest runs first.
        let list: Vec<Listed> = members.iter().rev().map(listed).collect();
        let address = match self.lists.get(&list) {
            Some(&address) => address,
            None => {
                let layout = self.areas.layout;
                let write = |at| program_list::assemble(at, layout, &list);
                self.load_in(session, program_list::most_bytes(&list), write)?
            }
        };
        self.lists.insert(list, address);
        // A thread that has read this cookie may find the first program alone when it calls.
        let cookie = first.map_or(0, |first| first.program.cookie);
        Ok(Program { address, cookie })
    }

    /// An error where a place is not as it was when programs were prepared for it.
    pub(super) fn check_addition(&self, addition: &Addition) -> Result<()> {
        let site = &addition.known.site;
        let place = self.place(site)?;
        let members = place.map_or(&[][..], |place| &place.members);
        let now = members.iter().map(|member| member.attachment);
        if !now.eq(addition.earlier.iter().copied()) {
            return Err(Error::Unpatchable {
                function: site.function.clone(),
                reason: "other programs came or went there since this one was prepared".to_owned(),
            });
        }
        let Some(replaced) = self.replaced.get(&site.address).filter(|_| place.is_some()) else {
            return Ok(());
        };
        one_semaphore(&site.function, replaced.semaphore, addition.semaphore)?;
        replaced.check(&site.function, site.address, &self.memory)
    }

    /// Has places run the programs of additions; what the jump of each replaces, where it has none yet, but then code
    /// that is written or about to be. On an error, [`Self::restore`] undoes what was done.
    pub(super) fn add(
        &mut self,
        session: &Session,
        additions: Vec<(&Addition, Option<Replaced>)>,
    ) -> Result<()> {
        let mut writes = Vec::new();
        for (addition, replaced) in additions {
            let known = &addition.known;
            let address = known.site.address;
            let place = self.places.entry(address).or_insert_with(|| Place {
                known: known.clone(),
                members: Vec::new(),
                kept: Vec::new(),
            });
            place.members.extend(&addition.new);
            match replaced {
                // It has its program already.
                Some(replaced) => writes.extend(self.replace(known, replaced)?),
                None => writes.push(addition.program()),
            }
            self.raise_for(address, addition.semaphore)?;
        }
        self.patch(session, writes)
    }

    /// Returns what ends the programs of an attachment at an address where others stay. `None` where none does.
    pub(super) fn take_out(
        &mut self,
        address: u64,
        attachment: u64,
        session: &Session,
    ) -> Result<Option<Write>> {
        let Some(place) = self.places.get(&address) else {
            return Ok(None);
        };
        let known = place.known.clone();
        let rest: Vec<Member> = place.without(attachment).copied().collect();
        if rest.is_empty() {
            return Ok(None);
        }
        let callee = self.callee(&known, &rest, Some(session));
        if let Some(place) = self.places.get_mut(&address) {
            place.kept.retain(|&kept| kept != attachment);
            if !matches!(callee, Ok(_) | Err(Error::Gone { .. })) {
                place.kept.push(attachment);
            }
        }
        Ok(Some(known.running(callee?)))
    }

    /// Returns whether programs of an attachment still run beside others.
    pub(super) fn is_kept(&self, attachment: &Attachment) -> bool {
        let mut places = self.places.values();
        places.any(|place| place.kept.contains(&attachment.number))
    }

    /// Forgets the programs of an attachment that run no more. Returns the addresses where there are no others.
    pub(super) fn forget_members(&mut self, attachment: &Attachment) -> Vec<u64> {
        let mut left = Vec::new();
        for address in &attachment.addresses {
            let Some(place) = self.places.get_mut(address) else {
                continue;
            };
            if place.kept.contains(&attachment.number) {
                continue;
            }
            place.members = place.without(attachment.number).copied().collect();
            if place.members.is_empty() {
                self.places.remove(address);
                left.push(*address);
            }
        }
        left
    }
}

fn in_children(site: &Site) -> Error {
    Error::Unpatchable {
        function: site.function.clone(),
        reason: "this program probes it already, and forked children with that probe may be there; attach both together"
            .to_owned(),
    }
}
