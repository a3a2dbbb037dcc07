//! Many sites at once: what it takes to switch probes on and off. [`Sites`] are the places of one mechanism, listed or made
//! once; [`LoadedSites`] the programs for them, which are attached and detached. `bpf/sites.bpf.c` says what the programs do.

mod functions;
mod interfaces;
mod programs;
mod routines;
mod tracepoints;

use std::{collections::BTreeSet, os::fd::OwnedFd};

use libbpf_rs::{Link, query::LinkInfoIter};

use self::{
    functions::Functions, interfaces::Interfaces, programs::SitePrograms, routines::Routines,
    tracepoints::Tracepoints,
};
use super::Attach;
use crate::{
    error::{Result, unattachable},
    feature::{Feature, Feature as F},
    table::table,
};

table! {
/// A way to attach programs to many sites.
pub enum Mechanism: MechanismInfo {
    /// A kprobe at the entry of each function.
    Kprobe = mechanism_info("kprobe", "a kprobe and a link at each function", Attach::Kprobe, MAX_LINKS,
        &[F::Kprobe, F::Tracefs, F::SyscallProgram]);
    /// One link to all functions.
    KprobeMulti = mechanism_info("kprobe.multi", "one link to all functions", Attach::KprobeMulti, MAX_SITES,
        &[F::KprobeMulti, F::Tracefs, F::SyscallProgram]);
    /// A program, a trampoline and a link at each function.
    Fentry = mechanism_info("fentry", "a program, a trampoline and a link at each function", Attach::Fentry, MAX_LINKS,
        &[F::Fentry, F::Tracefs, F::SyscallProgram]);
    /// One program and one link, a trampoline at each function.
    FentryMulti = mechanism_info("fentry.multi", "one program and one link, a trampoline at each function", Attach::FentryMulti,
        MAX_TRIED, &[F::FentryMulti, F::Tracefs, F::SyscallProgram]);
    /// A uprobe and a link at each function of a process.
    Uprobe = mechanism_info("uprobe", "a uprobe and a link at each function of a process", Attach::UprobeNop, MAX_LINKS,
        &[F::Uprobe, F::SyscallProgram]);
    /// One link to all functions of a process.
    UprobeMulti = mechanism_info("uprobe.multi", "one link to all functions of a process", Attach::UprobeMulti, MAX_SITES,
        &[F::UprobeMulti, F::SyscallProgram]);
    /// A perf event and a link at each tracepoint.
    Tracepoint = mechanism_info("tracepoint", "a perf event and a link at each tracepoint", Attach::Tracepoint, MAX_LINKS,
        &[F::Tracepoint, F::Tracefs, F::SyscallProgram]);
    /// A link at each network interface, for outgoing packets.
    Tcx = mechanism_info("tcx", "a link at each network interface, outgoing packets", Attach::Tcx, MAX_LINKS, &[F::Tcx, F::Veth]);
    /// A link at each network interface, in the driver.
    Xdp = mechanism_info("xdp", "a link at each network interface, in the driver (veth)", Attach::XdpNative, MAX_LINKS,
        &[F::XdpLink, F::Veth]);
}
}

/// Most sites with a link each: a link is a descriptor, those of perf two, and a process has room for so many.
const MAX_LINKS: usize = 2_000;
/// Most functions of which each is tried before.
const MAX_TRIED: usize = 2_000;
/// Most sites of one link: all functions of a kernel are fewer.
const MAX_SITES: usize = 200_000;

struct MechanismInfo {
    name: &'static str,
    about: &'static str,
    attach: Attach,
    most: usize,
    needs: &'static [Feature],
}

const fn mechanism_info(
    name: &'static str,
    about: &'static str,
    attach: Attach,
    most: usize,
    needs: &'static [Feature],
) -> MechanismInfo {
    MechanismInfo {
        name,
        about,
        attach,
        most,
        needs,
    }
}

impl Mechanism {
    /// Describes the programs, links and probes at the sites.
    pub fn about(self) -> &'static str {
        self.known().about
    }

    /// Attach type of one program.
    fn attach(self) -> Attach {
        self.known().attach
    }

    /// Returns true if one link is enough for all sites.
    pub fn has_one_link(self) -> bool {
        matches!(
            self,
            Mechanism::KprobeMulti | Mechanism::FentryMulti | Mechanism::UprobeMulti
        )
    }

    /// The largest number of sites that it is tried with.
    pub fn most(self) -> usize {
        self.known().most
    }

    /// Kernel features that this needs, the most informative first.
    pub fn needs(self) -> &'static [Feature] {
        self.known().needs
    }

    /// Returns why this kernel has fewer sites, or `None`.
    pub fn lacks(self, count: usize) -> Option<String> {
        let (there, what) = match self {
            Mechanism::Kprobe
            | Mechanism::KprobeMulti
            | Mechanism::Fentry
            | Mechanism::FentryMulti => (
                functions::fit(self).map(|fit| fit.len()),
                "functions that fit",
            ),
            Mechanism::Tracepoint => (tracepoints::all().map(|all| all.len()), "tracepoints"),
            Mechanism::Uprobe | Mechanism::UprobeMulti | Mechanism::Tcx | Mechanism::Xdp => {
                return None;
            }
        };
        match there {
            Ok(there) if there >= count => None,
            Ok(there) => Some(format!(
                "this kernel has {there} {what}; choose fewer with --set sites=…"
            )),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Sites of one mechanism.
pub struct Sites {
    family: Box<dyn Family>,
}

/// Operations common to the sites of each family.
trait Family {
    fn load(&self) -> Result<SitePrograms>;

    /// Attaches the programs at each site, and adds each link once it is there.
    fn attach(&self, programs: &SitePrograms, links: &mut Vec<SiteLink>) -> Result<()>;

    /// Counts the attached sites, as the kernel or the code shows them; `programs` are attached nowhere else.
    fn shown(&self, programs: &SitePrograms) -> Result<u64>;

    /// Makes events at sites that the programs count where they are `attached`, and returns how many, once all are over.
    fn fire(&self, programs: &SitePrograms, attached: bool) -> Result<u64>;
}

/// A link that attaches a program. Dropping it detaches the program.
enum SiteLink {
    Libbpf(#[allow(dead_code, reason = "held for what its dropping does")] Link),
    Plain(#[allow(dead_code, reason = "held for what its dropping does")] OwnedFd),
}

/// Counts of attached sites, and of the programs' runs there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Sites that are attached, as the kernel's own lists or the code at the sites show it.
    pub shown: u64,
    /// Links to these programs in the whole kernel.
    pub links: u64,
    /// Events made at sites.
    pub events: u64,
    /// Runs of the programs for them.
    pub hits: u64,
}

impl Sites {
    /// Lists so many sites, or makes them. Dropping them undoes that.
    pub fn find(mechanism: Mechanism, count: usize) -> Result<Self> {
        if let Some(words) = mechanism.lacks(count) {
            return Err(unattachable(mechanism.name(), words));
        }
        let family: Box<dyn Family> = match mechanism {
            Mechanism::Kprobe
            | Mechanism::KprobeMulti
            | Mechanism::Fentry
            | Mechanism::FentryMulti => Box::new(Functions::find(mechanism, count)?),
            Mechanism::Uprobe | Mechanism::UprobeMulti => {
                Box::new(Routines::map(mechanism, count)?)
            }
            Mechanism::Tracepoint => Box::new(Tracepoints::find(count)?),
            Mechanism::Tcx | Mechanism::Xdp => Box::new(Interfaces::make(mechanism, count)?),
        };
        Ok(Sites { family })
    }

    /// Loads the programs for them.
    pub fn load(&self) -> Result<LoadedSites<'_>> {
        Ok(LoadedSites {
            links: Vec::new(),
            programs: self.family.load()?,
            sites: self,
        })
    }
}

/// Programs for sites. Dropping them detaches and frees them.
pub struct LoadedSites<'a> {
    links: Vec<SiteLink>,
    programs: SitePrograms,
    sites: &'a Sites,
}

impl LoadedSites<'_> {
    /// Attaches them at each site.
    pub fn attach(&mut self) -> Result<()> {
        self.sites.family.attach(&self.programs, &mut self.links)
    }

    /// Detaches them, one link after the other.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Detaches what was attached last: a fault, for tests of the checks.
    #[doc(hidden)]
    pub fn detach_last(&mut self) {
        self.links.pop();
    }

    /// Makes events at sites, and counts what is attached and what ran.
    pub fn look(&mut self) -> Result<SiteCounts> {
        let before = self.programs.hits();
        let attached = !self.links.is_empty();
        let events = self.sites.family.fire(&self.programs, attached)?;
        Ok(SiteCounts {
            events,
            hits: self.programs.hits() - before,
            shown: self.sites.family.shown(&self.programs)?,
            links: links(&self.programs.numbers()?),
        })
    }
}

/// Counts the links of the whole kernel that have one of these programs.
fn links(programs: &[u32]) -> u64 {
    let all = LinkInfoIter::default();
    all.filter(|link| programs.contains(&link.prog_id)).count() as u64
}

/// The first one, and others evenly from the whole list.
fn spread<T>(list: Vec<T>, first: usize, count: usize) -> Vec<T> {
    let length = list.len();
    let others = count.saturating_sub(1).min(length.saturating_sub(1));
    // Places among those that are not the first one.
    let wanted: BTreeSet<usize> = (0..others)
        .map(|place| place * (length - 1) / others)
        .map(|place| place + usize::from(place >= first))
        .collect();
    let mut chosen = Vec::with_capacity(count);
    let mut leading = None;
    for (place, one) in list.into_iter().enumerate() {
        if place == first {
            leading = Some(one);
        } else if wanted.contains(&place) {
            chosen.push(one);
        }
    }
    leading.into_iter().chain(chosen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_spread_over_the_list_and_none_comes_twice() {
        let list = || (0..100).collect::<Vec<u32>>();
        assert_eq!(spread(list(), 50, 1), [50]);
        assert_eq!(spread(list(), 0, 4), [0, 1, 34, 67]);
        assert_eq!(spread(list(), 99, 4), [99, 0, 33, 66]);
        for count in [2, 10, 99, 100] {
            let chosen = spread(list(), 42, count);
            let once: BTreeSet<&u32> = chosen.iter().collect();
            assert_eq!((chosen[0], chosen.len(), once.len()), (42, count, count));
        }
    }
}
