//! Inventory of a probe: its programs, their attachments and maps, as the kernel lists them. Reading it needs no
//! `bpf_stats`, so each measured window can be compared with the rehearsal.

use std::collections::{BTreeMap, BTreeSet};

use bpfcost_bpf::{links, loaded_programs, maps_of, perf_events};

use super::Probe;

/// Items that an error lists.
const LISTED: usize = 6;

/// The parts of a probe that are in the kernel at some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Number of parts by kind, name and target, which stay the same when a tool is started again:
    /// `link tracepoint sys_enter`.
    parts: BTreeMap<String, usize>,
    /// The kernel's numbers of the links, which stay the same while they are attached.
    links: BTreeSet<u32>,
    /// True where some program has an attachment that the kernel lists.
    is_attached: bool,
}

/// The parts that a probe must have in each measured window, by its rehearsal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedParts {
    /// At least these.
    parts: BTreeMap<String, usize>,
    /// True where others are allowed: the rehearsal had more at its end than at its begin, or fewer.
    is_open: bool,
    /// True where the links at the begin of a window must be there at its end: in the rehearsal they were.
    keeps_links: bool,
}

impl Inventory {
    /// Reads that of an attached probe.
    pub fn of_probe(probe: &dyn Probe) -> Self {
        Inventory::read(&probe.programs(), &probe.pids())
    }

    /// Reads that of these programs; `pids` are the processes that may hold perf events for them.
    pub(super) fn read(programs: &[u32], pids: &[u32]) -> Self {
        let ids: BTreeSet<u32> = programs.iter().copied().collect();
        let mut inventory = Inventory::default();
        if ids.is_empty() {
            return inventory;
        }
        let programs = loaded_programs().into_iter();
        for program in programs.filter(|program| ids.contains(&program.id)) {
            inventory.add(format!("program {} ({})", program.name, program.kind));
        }
        for map in maps_of(&ids) {
            let [key, value, entries] = map.sizes;
            let (name, kind) = (map.name, map.kind);
            inventory.add(format!(
                "map {name} ({kind} {key}:{value} bytes, {entries})"
            ));
        }
        let links = links().into_iter().filter(|one| ids.contains(&one.program));
        let links: Vec<_> = links.collect();
        let linked: BTreeSet<u32> = links.iter().map(|one| one.program).collect();
        let events = pids.iter().flat_map(|pid| perf_events(*pid));
        // A link's own perf event is an open file, too.
        let events =
            events.filter(|one| ids.contains(&one.program) && !linked.contains(&one.program));
        for attachment in links.into_iter().chain(events) {
            let kind = if attachment.link.is_some() {
                "link"
            } else {
                "perf event"
            };
            inventory.add(format!("{kind} {}", attachment.place));
            inventory.links.extend(attachment.link);
            inventory.is_attached = true;
        }
        inventory
    }

    fn add(&mut self, part: String) {
        *self.parts.entry(part).or_default() += 1;
    }

    /// Returns true for programs without any attachment that the kernel lists.
    pub fn is_unseen(&self) -> bool {
        !self.parts.is_empty() && !self.is_attached
    }

    /// The links that were there at an earlier moment, and are no longer.
    fn lost_links(&self, earlier: &Inventory) -> usize {
        earlier.links.difference(&self.links).count()
    }
}

impl ExpectedParts {
    /// Those of a rehearsal: what it had both when it was attached and before it was detached.
    pub fn new(begin: &Inventory, end: &Inventory) -> Self {
        let both = begin.parts.iter().filter_map(|(part, count)| {
            let count = (*count).min(*end.parts.get(part)?);
            Some((part.clone(), count))
        });
        ExpectedParts {
            parts: both.collect(),
            is_open: begin.parts != end.parts,
            keeps_links: end.lost_links(begin) == 0,
        }
    }

    /// The same at the end of a window that began with `begin`.
    pub fn difference_since(&self, begin: &Inventory, end: &Inventory) -> Option<(String, String)> {
        self.difference(end).or_else(|| {
            let lost = end.lost_links(begin);
            let count = begin.links.len();
            (self.keeps_links && lost > 0).then(|| {
                let got = format!("{} of them", count - lost);
                (format!("the {count} links of its begin"), got)
            })
        })
    }

    /// The parts that differ, expected and there, as text; `None` if all are as expected.
    pub fn difference(&self, there: &Inventory) -> Option<(String, String)> {
        let all: BTreeSet<&String> = self.parts.keys().chain(there.parts.keys()).collect();
        let count = |parts: &BTreeMap<String, usize>, part| parts.get(part).copied().unwrap_or(0);
        let differ = all.into_iter().filter_map(|part| {
            let (expected, got) = (count(&self.parts, part), count(&there.parts, part));
            let differs = got < expected || (got > expected && !self.is_open);
            differs.then_some((part, expected, got))
        });
        let differ: Vec<_> = differ.collect();
        if differ.is_empty() {
            return None;
        }
        let more = differ.len().saturating_sub(LISTED);
        let listed = |count: fn(&(&String, usize, usize)) -> usize| {
            let listed = differ.iter().take(LISTED);
            let mut words: Vec<String> = listed
                .map(|one| format!("{} × {}", count(one), one.0))
                .collect();
            if more > 0 {
                words.push(format!("and {more} more kinds"));
            }
            words.join("; ")
        };
        Some((listed(|one| one.1), listed(|one| one.2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(parts: &[(&str, usize)], links: &[u32]) -> Inventory {
        Inventory {
            parts: parts
                .iter()
                .map(|&(part, count)| (part.to_owned(), count))
                .collect(),
            links: links.iter().copied().collect(),
            is_attached: !links.is_empty(),
        }
    }

    #[test]
    fn each_part_that_differs_is_listed_with_both_counts() {
        let rehearsal = inventory(&[("link a", 2), ("map m", 1)], &[1, 2]);
        let expected = ExpectedParts::new(&rehearsal, &rehearsal);
        assert_eq!(expected.difference(&rehearsal), None);
        for (there, text) in [
            (
                &[("link a", 1), ("map m", 1)][..],
                ("2 × link a", "1 × link a"),
            ),
            (&[], ("2 × link a; 1 × map m", "0 × link a; 0 × map m")),
            (
                &[("link a", 2), ("link b", 1), ("map m", 1)],
                ("0 × link b", "1 × link b"),
            ),
        ] {
            let (expected, got) = expected
                .difference(&inventory(there, &[]))
                .expect("it differs");
            assert_eq!((expected.as_str(), got.as_str()), text);
        }
    }

    #[test]
    fn what_a_tool_adds_by_itself_is_not_demanded_and_not_refused() {
        let begin = inventory(&[("link a", 1)], &[1]);
        let end = inventory(&[("link a", 1), ("link b", 5)], &[1, 2, 3, 4, 5, 6]);
        let expected = ExpectedParts::new(&begin, &end);
        for there in [
            &begin,
            &end,
            &inventory(&[("link a", 2), ("link c", 1)], &[7]),
        ] {
            assert_eq!(expected.difference(there), None);
        }
        assert!(
            expected
                .difference(&inventory(&[("link b", 5)], &[]))
                .is_some()
        );
    }

    #[test]
    fn a_link_that_went_is_noticed_though_another_is_like_it() {
        let begin = inventory(&[("link a", 1)], &[1]);
        let replaced = inventory(&[("link a", 1)], &[2]);
        let steady = ExpectedParts::new(&begin, &begin);
        assert_eq!(steady.difference_since(&begin, &begin), None);
        assert!(steady.difference_since(&begin, &replaced).is_some());
        // A tool that replaced them in its rehearsal may do so in a window.
        let restless = ExpectedParts::new(&begin, &replaced);
        assert_eq!(restless.difference_since(&begin, &replaced), None);
    }
}
