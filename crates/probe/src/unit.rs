//! A systemd unit: started for a window, stopped after it, and restored to its first state at the end.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Result;

use super::{
    Probe, WindowCounts,
    programs::{Loading, freed},
};
use bpfcost_model::Fault;
use bpfcost_process::{
    ChildFailed, RunContext, cgroup, process_tree,
    restore::{RestoreGuard, SavedState, systemctl},
    wait_for,
};

/// Time to wait for a unit's BPF programs; systemd says that it is started only when it is ready, and not every
/// agent has some.
const LOAD_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct SystemdUnit {
    name: String,
    /// Programs loaded since it was started.
    loading: Option<Loading>,
    /// Control group while it runs.
    group: Option<PathBuf>,
    /// Starts or stops it when this is gone.
    _before: RestoreGuard,
}

impl SystemdUnit {
    /// Stops it, so that windows without it can come.
    pub(super) fn open(name: &str) -> Result<Self> {
        let before = RestoreGuard::new(SavedState::of_unit(name)?)?;
        systemctl(&["stop", name])?;
        Ok(SystemdUnit {
            name: name.to_owned(),
            loading: None,
            group: None,
            _before: before,
        })
    }
}

impl Probe for SystemdUnit {
    fn attach(&mut self, _scene: &RunContext) -> Result<(), Fault> {
        let loading = self.loading.insert(Loading::begin(false));
        systemctl(&["start", &self.name])?;
        let mut loaded = Ok(None);
        wait_for(
            &unit_pids(&self.name)?,
            LOAD_TIMEOUT,
            Duration::ZERO,
            || {
                loaded = unit_pids(&self.name).map(|pids| loading.look(&pids));
                !matches!(loaded, Ok(None))
            },
        );
        let programs = loaded?.unwrap_or_default();
        super::leftovers::remember(&programs, &unit_pids(&self.name)?);
        self.group = unit_group(&self.name)?;
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts, Fault> {
        let running = systemctl(&["is-active", &self.name]).is_ok();
        if !running {
            let stopped = format!(
                "{} stopped during the run\n  See why: journalctl --unit {0}",
                self.name
            );
            return Err(Fault::Broken(ChildFailed(stopped).into()));
        }
        let programs = self.programs();
        systemctl(&["stop", &self.name])?;
        freed(&programs);
        Ok(WindowCounts::default())
    }

    fn pids(&self) -> Vec<u32> {
        unit_pids(&self.name).unwrap_or_default()
    }

    fn cpu_ns(&self) -> Option<f64> {
        cgroup::cpu_ns(self.group.as_ref()?)
    }

    fn programs(&self) -> Vec<u32> {
        let loading = self.loading.as_ref();
        loading.map_or(Vec::new(), |loading| loading.programs_now(&self.pids()))
    }
}

/// The processes of a unit: those of its control group; else its main process and what that started.
pub fn unit_pids(name: &str) -> Result<Vec<u32>> {
    let listed =
        unit_group(name)?.and_then(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
    if let Some(listed) = listed {
        return Ok(listed.lines().filter_map(|pid| pid.parse().ok()).collect());
    }
    let main = systemctl(&["show", "--property", "MainPID", "--value", name])?;
    Ok(match main.trim().parse() {
        Ok(pid) if pid > 0 => process_tree(pid),
        _ => Vec::new(),
    })
}

/// The control group of a unit that runs, in the hierarchy of version 2.
pub fn unit_group(name: &str) -> Result<Option<PathBuf>> {
    let group = systemctl(&["show", "--property", "ControlGroup", "--value", name])?;
    let group = group.trim();
    let mut roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .filter(|_| !group.is_empty())
        .map(|root| PathBuf::from(format!("{root}{group}")));
    Ok(roots.find(|path| path.join("cgroup.procs").exists()))
}
