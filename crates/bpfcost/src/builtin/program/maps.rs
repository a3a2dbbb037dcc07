//! Changes that runs of a program make in its maps, and the warnings about them.

use bpfcost_bpf::program::{Drift, MapChanges};

/// Time that the runs between two readings of the maps should take, in nanoseconds, and their maximum number.
const WATCHED_NS: f64 = 1e7;
const MAX_WATCHED: u64 = 512;
/// The fewest: a program may do something else in every few runs only.
const MIN_WATCHED: u64 = 8;
/// Runs where instructions are counted: always as many, for they are part of the state that is measured.
const COUNTED: u64 = 32;

/// The code of warnings about tables that drift.
pub(super) const MAP_DRIFT: &str = "map-drift";

/// The code of warnings about programs that run in windows.
pub(super) const WINDOWS: &str = "windows";

/// Warning for a program that runs in windows of so many runs.
pub(super) fn window_warning(program: &str, runs: u32) -> String {
    format!(
        "{program} makes tail calls or leaves a loop no stack, so it runs in windows of {runs} runs, whose times are added \
         up. The first run of each finds colder caches, and its cost is less certain than that of other programs: compare it \
         with those of programs in windows"
    )
}

/// Runs from the first look at the maps to the second, and from there to the third: of a program whose runs take so long. Few
/// at first, as small tables may be full soon.
pub(super) fn watched_runs(ns_per_run: f64, exact: bool) -> [u64; 2] {
    let fitting = (WATCHED_NS / ns_per_run.max(1.0)) as u64;
    let runs = if exact {
        COUNTED
    } else {
        fitting.clamp(MIN_WATCHED, MAX_WATCHED)
    };
    [(runs / 8).max(1), runs | 1]
}

/// Warnings about tables that each run finds in another state than the run before, by table.
pub(super) fn warnings(program: &str, changes: &MapChanges) -> Vec<(String, String)> {
    let warning = |(table, drift): (&String, &Drift)| {
        let does = match drift {
            Drift::Grows { entries, room } => {
                let does = match changes.per_run.get(table) {
                    Some(Some(removed)) if *removed < 0 => "remove entries from",
                    Some(Some(_)) => "add entries to",
                    _ => "change the number of entries of",
                };
                format!(
                    "{does} the map {table} (it had {entries} of {room} when this was seen): no two runs find it the same"
                )
            }
            Drift::Replaced => format!(
                "replace entries of the map {table} by others: they don't find there what runs before them have left"
            ),
            Drift::Full { room } => format!(
                "added entries to the map {table} until it was full ({room}): all timed ones find it so"
            ),
        };
        let text = format!(
            "runs of {program} {does}. The cost is that of such runs. To measure another state, fill the map (--map \
             {table}=FILE), or give it room (--map {table}:max_entries=N)"
        );
        (table.clone(), text)
    };
    changes.drifts.iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn windows_are_said() {
        assert!(window_warning("lb", 16).contains("windows of 16 runs"));
    }

    #[test]
    fn slow_programs_run_less_often() {
        assert_eq!(watched_runs(10.0, false), [64, 513]);
        assert_eq!(watched_runs(1e5, false), [12, 101]);
        assert_eq!(watched_runs(1e9, false), [1, 9]);
        assert_eq!(watched_runs(0.0, false), [64, 513]);
        assert_eq!(watched_runs(1e9, true), [4, 33]);
    }

    #[test]
    fn each_drift_is_said() {
        let said = |drift, per_run| {
            let changes = MapChanges {
                per_run: BTreeMap::from([("flows".to_owned(), per_run)]),
                drifts: BTreeMap::from([("flows".to_owned(), drift)]),
                ..MapChanges::default()
            };
            let mut warnings = warnings("count", &changes);
            warnings.remove(0).1
        };
        let (entries, room) = (7, 9);
        let grows = Drift::Grows { entries, room };
        assert!(said(grows, Some(1)).contains("add entries to the map flows (it had 7 of 9"));
        assert!(said(grows, Some(-1)).contains("remove entries from"));
        assert!(said(grows, None).contains("change the number of entries"));
        assert!(said(Drift::Replaced, None).contains("replace entries"));
        assert!(said(Drift::Full { room }, None).contains("until it was full (9)"));
        assert!(warnings("count", &MapChanges::default()).is_empty());
    }
}
