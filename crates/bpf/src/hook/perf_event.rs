//! Events of perf that need no hardware counter, by name.

use std::io;

use libbpf_rs::{Link, ProgramMut, libbpf_sys as sys, num_possible_cpus};

use crate::{attach::perf, error::Result, error::failed, feature::kernel};

/// Time between two events of a clock, in nanoseconds: as often as profilers sample, 99 times a second.
const CLOCK_PERIOD: u64 = 1_000_000_000 / 99;

/// Software events, and how many of each make an event of the hook.
const EVENTS: [(&str, u32, u64); 9] = [
    ("cpu-clock", sys::PERF_COUNT_SW_CPU_CLOCK, CLOCK_PERIOD),
    ("task-clock", sys::PERF_COUNT_SW_TASK_CLOCK, CLOCK_PERIOD),
    ("page-faults", sys::PERF_COUNT_SW_PAGE_FAULTS, 1),
    ("minor-faults", sys::PERF_COUNT_SW_PAGE_FAULTS_MIN, 1),
    ("major-faults", sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ, 1),
    ("context-switches", sys::PERF_COUNT_SW_CONTEXT_SWITCHES, 1),
    ("cpu-migrations", sys::PERF_COUNT_SW_CPU_MIGRATIONS, 1),
    ("alignment-faults", sys::PERF_COUNT_SW_ALIGNMENT_FAULTS, 1),
    ("emulation-faults", sys::PERF_COUNT_SW_EMULATION_FAULTS, 1),
];

/// The reason why there is no such event; `None` where there is one.
pub(super) fn unknown(name: &str) -> Option<String> {
    let is_known = EVENTS.iter().any(|(known, ..)| *known == name);
    (!is_known).then(|| {
        let names: Vec<&str> = EVENTS.iter().map(|(name, ..)| *name).collect();
        format!(
            "{name} is not a software event of perf\n  There are {}",
            names.join(", ")
        )
    })
}

/// Attaches a program to an event, for all processes of each CPU.
pub(super) fn attach(program: &ProgramMut<'_>, name: &str) -> Result<Vec<Link>> {
    let event = EVENTS.into_iter().find(|(known, ..)| *known == name);
    let Some((_, config, period)) = event else {
        return Err(crate::Error::Refused(unknown(name).unwrap_or_default()));
    };
    let mut links = Vec::new();
    for cpu in 0..num_possible_cpus().unwrap_or(1) {
        let mut attributes = sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            config: config.into(),
            ..Default::default()
        };
        attributes.__bindgen_anon_1.sample_period = period;
        match kernel::open_event(attributes, -1, cpu as i32) {
            Ok(opened) => {
                let link = perf(program, opened);
                links.push(link.map_err(failed(name, "attaching to perf's event"))?);
            }
            Err(error) if is_offline(&error) => {}
            Err(error) => return Err(failed(name, "opening perf's event")(error)),
        }
    }
    Ok(links)
}

fn is_offline(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}
