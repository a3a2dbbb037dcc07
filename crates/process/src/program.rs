//! Programs that are started: whether they are installed, and which package has them.

use std::{
    collections::BTreeSet,
    env,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A program is not on this machine. Its text says what to do.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct MissingProgram(String);

/// A program that bpfcost starts, what needs it, and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name on `PATH`.
    pub name: &'static str,
    /// Debian package that has it.
    pub package: &'static str,
    task: Task,
}

/// What programs are needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Built-in workloads and usual probes.
    Workloads,
    /// Booting a guest.
    Guests,
    /// Building a kernel for guests.
    KernelBuild,
    /// Loading more modules in a guest than it loads by itself.
    Modules,
}

const fn needed(task: Task, name: &'static str, package: &'static str) -> Program {
    Program {
        name,
        package,
        task,
    }
}

/// QEMU for guests of this machine's architecture.
pub const QEMU: Program = if cfg!(target_arch = "aarch64") {
    needed(Task::Guests, "qemu-system-aarch64", "qemu-system-arm")
} else {
    needed(Task::Guests, "qemu-system-x86_64", "qemu-system-x86")
};
/// depmod, which indexes a kernel's modules. Only guests with the host's files look into that index, by modprobe.
pub const DEPMOD: Program = needed(Task::Modules, "depmod", "kmod");
/// make, which builds a kernel.
pub const MAKE: Program = needed(Task::KernelBuild, "make", "make");
/// tar, which unpacks a kernel's sources.
pub const TAR: Program = needed(Task::KernelBuild, "tar", "tar");

/// All of them. Any other program is named by the user.
const PROGRAMS: [Program; 20] = [
    needed(Task::Workloads, "redis-server", "redis-server"),
    needed(Task::Workloads, "redis-benchmark", "redis-tools"),
    needed(Task::Workloads, "redis-cli", "redis-tools"),
    needed(Task::Workloads, "nginx", "nginx-light"),
    needed(Task::Workloads, "wrk", "wrk"),
    needed(Task::Workloads, "iperf3", "iperf3"),
    needed(Task::Workloads, "openssl", "openssl"),
    needed(Task::Workloads, "go", "golang-go"),
    needed(Task::Workloads, "bpftrace", "bpftrace"),
    QEMU,
    DEPMOD,
    MAKE,
    needed(Task::KernelBuild, "gcc", "gcc"),
    needed(Task::KernelBuild, "ld", "binutils"),
    needed(Task::KernelBuild, "flex", "flex"),
    needed(Task::KernelBuild, "bison", "bison"),
    needed(Task::KernelBuild, "bc", "bc"),
    needed(Task::KernelBuild, "pahole", "dwarves"),
    TAR,
    needed(Task::KernelBuild, "xz", "xz-utils"),
];

impl Task {
    /// Programs that it needs and this machine lacks.
    pub fn missing(self) -> Vec<Program> {
        let needs = |one: &&Program| one.task == self;
        let lacks = |one: &&Program| find(one.name).is_err();
        PROGRAMS
            .iter()
            .filter(needs)
            .filter(lacks)
            .copied()
            .collect()
    }
}

/// How to install packages.
pub fn installing<'a>(packages: impl IntoIterator<Item = &'a str>) -> String {
    let packages: BTreeSet<&str> = packages.into_iter().collect();
    format!(
        "apt-get install --no-install-recommends {}",
        Vec::from_iter(packages).join(" ")
    )
}

/// Folders that a plain `su` leaves out of PATH, where Debian keeps servers.
const SYSTEM: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Where a program lies: what a shell would start, or a system administrator's shell.
pub fn find(program: &str) -> Result<PathBuf, MissingProgram> {
    let there = |path: &Path| {
        path.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        let path = PathBuf::from(program);
        return if there(&path) {
            Ok(path)
        } else {
            Err(MissingProgram(format!(
                "there is no program {program}\n  Check that the path is right and the file is \
                 executable"
            )))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(SYSTEM.map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(program));
    files.find(|file| there(file)).ok_or_else(|| {
        let advice = match PROGRAMS.iter().find(|one| one.name == program) {
            Some(Program {
                package,
                task: Task::Workloads,
                ..
            }) => format!(
                "Install it: {} (or all that workloads need: scripts/setup.sh run)",
                installing([*package])
            ),
            Some(Program { package, .. }) => format!("Install it: {}", installing([*package])),
            None => "Check its name, or give its path if it is not in PATH".to_owned(),
        };
        MissingProgram(format!("{program} is not installed here\n  {advice}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_its_package() {
        assert!(find("sh").expect("every system has one").ends_with("sh"));
        let said = find("no-such-program").expect_err("none").to_string();
        assert!(said.contains("no-such-program is not installed"), "{said}");
        let said = find("/etc/passwd").expect_err("no program").to_string();
        assert!(said.contains("is executable"), "{said}");
    }
}
