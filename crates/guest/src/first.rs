//! The guest's side of a boot: this program as the guest's first process. It mounts, loads modules, starts the program
//! again as the one that measures, and ends the guest with it.
//!
//! A guest waits at one point until the host says that it may go on ([`await_host`]): what it has done by then is the same
//! for every run and can be kept as a saved state. A guest with nothing of the host's waits when the measuring program has
//! prepared itself; one that has the host's files waits before it mounts them.

use std::{
    env, fs,
    io::{self, BufRead as _, Write as _},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command},
};

use rustix::{
    mount::{MountFlags, mount, mount_bind, mount_move},
    process::{WaitOptions, chroot, setsid, wait},
    system::{RebootCommand, finit_module, reboot, sethostname},
    time::{ClockId, Timespec, clock_settime},
};

use super::{
    command::{MODULES_TAG, ROOT_TAG, SHARE_TAG},
    modules, program,
};

/// The folder that the guest shares with the host.
pub const SHARED: &str = "/run/bpfcost";

/// File there with the time at which the guest starts, in seconds since 1970.
pub const NOW: &str = "now";
/// File there, where a test wants it: a shell script that the measuring program is started by.
pub const BEFORE: &str = "before";

/// The line of the console that says that a guest waits for the host.
pub const READY: &str = "bpfcost: waiting for the host";

/// Arguments of this program as a first process, the option with which it mounts the host's files, and that of a guest
/// whose instructions are traced.
pub(crate) const ARGUMENTS: [&str; 2] = ["guest", "first"];
pub(crate) const HOST_FILES: &str = "--host-files";
pub(crate) const TRACED: &str = "--traced";

/// Folder of the modules, whose names are in the order to load them.
pub(crate) const MODULES: &str = "/modules";

/// Folder on which the host's files are mounted before they become the root.
const NEW_ROOT: &str = "/root-of-host";

/// Folders of the initramfs that nothing else makes.
pub(crate) const FOLDERS: [&str; 9] = [
    "/dev", "/proc", "/sys", SHARED, "/root", "/tmp", "/var/tmp", MODULES, NEW_ROOT,
];

/// The kernel's types, and a copy of them in memory. The kernel hands out its own in pages and anew to each reader, and before
/// Linux 6.16 does not let them be mapped: every program that is loaded would read some 5 MB.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
const TYPES_COPY: &str = "/run/program/types";

/// Options of 9p, for both sides.
const TRANSPORT: &str = "version=9p2000.L,trans=virtio,access=any,msize=524288";

/// The home of a guest's programs, and where they keep what they must put back.
const HOME: &str = "/root";
const RUNTIME: &str = "/run/user/0";
const STATE: &str = "/run/user/0/state";
const PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin:/usr/local/bin";

/// File systems of the kernel: source, folder, kind. A kernel need not have those in [`OPTIONAL`].
const KERNEL: [(&str, &str); 3] = [("/proc", "proc"), ("/sys", "sysfs"), ("/dev", "devtmpfs")];
const OPTIONAL: [(&str, &str); 7] = [
    ("/dev/pts", "devpts"),
    ("/dev/shm", "tmpfs"),
    ("/sys/kernel/config", "configfs"),
    ("/sys/kernel/debug", "debugfs"),
    ("/sys/kernel/tracing", "tracefs"),
    ("/sys/kernel/security", "securityfs"),
    ("/sys/fs/cgroup", "cgroup2"),
];

/// Folders of the host that programs write to: what they write goes into memory.
const WRITABLE: [&str; 8] = ["etc", "lib", "home", "opt", "srv", "usr", "var", "tmp"];
/// Folders of the host that a guest has empty: other kernels' modules and their settings, files of running programs.
const EMPTY: [&str; 7] = [
    "/var/log",
    "/var/tmp",
    "/var/cache",
    "/lib/modules",
    "/etc/modprobe.d",
    "/lib/modprobe.d",
    "/usr/local/lib/modprobe.d",
];

/// Exit codes that shells have for a program that can't be started, and for one that a signal ended, beside its number.
const NOT_STARTED: i32 = 126;
const SIGNALLED: i32 = 128;

/// Runs the guest, with the program that measures started by `arguments`; with the host's files, or told by
/// `early` that it is to wait for the host itself. Returns only where this process is not the first one, or can't end the
/// guest.
pub fn first(host_files: bool, arguments: &[&str], early: &str) -> io::Error {
    // It would change mounts and restart the machine.
    if std::process::id() != 1 {
        return io::Error::other("only the kernel of a guest starts this, as its first process");
    }
    let ran = run(host_files, arguments, early);
    if let Err(error) = &ran {
        let _ = writeln!(io::stderr(), "bpfcost: {error}");
    }
    // Its end is the kernel's panic otherwise. QEMU ends where it would boot again.
    match reboot(RebootCommand::Restart) {
        Ok(()) => io::Error::other("the guest goes on"),
        Err(error) => error.into(),
    }
}

fn run(host_files: bool, arguments: &[&str], early: &str) -> io::Result<()> {
    // The kernel's first process has no session and group of its own, which later ones would inherit.
    setsid()?;
    mount_kernel()?;
    // Errors change nothing that is measured.
    let _ = sethostname(b"bpfcost");
    let _ = fs::write("/sys/class/net/lo/flags", "1");
    load_modules()?;
    schedule_disk();
    if fs::copy(TYPES, TYPES_COPY).is_ok() {
        mount_bind(TYPES_COPY, TYPES)?;
    }
    let mut command = if host_files {
        await_host()?;
        enter_host_files()?;
        start_with_script()
    } else {
        Command::new(program::IN_GUEST)
    };
    command.args(arguments);
    if !host_files {
        command.arg(early);
    }
    command
        .env("PATH", PATH)
        .env("HOME", HOME)
        .env("XDG_RUNTIME_DIR", RUNTIME)
        .env("XDG_STATE_HOME", STATE);
    if host_files {
        // It has the host's libraries, as everything else that it starts.
        command.env_remove(program::SEARCH);
    }
    fs::create_dir_all(STATE)?;
    let code = match command.spawn() {
        Ok(child) => exit_code(&child)?,
        Err(_) => NOT_STARTED,
    };
    // Without the shared folder, the console has said why.
    let stream = Path::new(SHARED).join("stream");
    if code != 0
        && let Ok(mut stream) = fs::OpenOptions::new().append(true).open(stream)
    {
        stream.write_all(format!("{{\"gone\":{code}}}\n").as_bytes())?;
    }
    Ok(())
}

/// Waits for the end of a child process, and meanwhile of all that have lost their parent.
fn exit_code(child: &Child) -> io::Result<i32> {
    loop {
        let Some((pid, status)) = wait(WaitOptions::empty())? else {
            continue;
        };
        if pid.as_raw_nonzero().get().cast_unsigned() == child.id() {
            let signalled = || status.terminating_signal().map(|signal| SIGNALLED + signal);
            return Ok(status
                .exit_status()
                .or_else(signalled)
                .unwrap_or(NOT_STARTED));
        }
    }
}

/// Says that the guest can go on at any time, and waits until the host says so.
pub fn await_host() -> io::Result<()> {
    writeln!(io::stdout(), "{READY}")?;
    io::stdin().lock().read_line(&mut String::new()).map(drop)
}

/// Mounts the folder that is shared with the host, and takes the time from it.
pub fn join_host() -> io::Result<()> {
    join_host_at(SHARED)
}

fn join_host_at(folder: &str) -> io::Result<()> {
    mount_9p(SHARE_TAG, folder, MountFlags::empty(), "")?;
    // It may have booted long ago.
    let now = fs::read_to_string(Path::new(folder).join(NOW))?;
    if let Ok(tv_sec) = now.trim().parse() {
        clock_settime(ClockId::Realtime, Timespec { tv_sec, tv_nsec: 0 })?;
    }
    Ok(())
}

fn mount_9p(tag: &str, folder: &str, flags: MountFlags, options: &str) -> io::Result<()> {
    mount_on(tag, folder, "9p", flags, &format!("{TRANSPORT}{options}"))
}

/// Mounts, on a folder that is made where it is missing.
fn mount_on(
    source: &str,
    folder: &str,
    kind: &str,
    flags: MountFlags,
    options: &str,
) -> io::Result<()> {
    let failed = |error: io::Error| {
        io::Error::other(format!(
            "cannot mount {source} ({kind}) on {folder}: {error}"
        ))
    };
    let options = std::ffi::CString::new(options)?;
    fs::create_dir_all(folder)
        .and_then(|()| Ok(mount(source, folder, kind, flags, options.as_c_str())?))
        .map_err(failed)
}

fn mount_kernel() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    for (folder, kind) in KERNEL {
        mount_on(kind, folder, kind, flags, "")?;
    }
    for (folder, kind) in OPTIONAL {
        let _ = mount_on(kind, folder, kind, MountFlags::NOSUID, "");
    }
    for (name, number) in [
        ("fd", ""),
        ("stdin", "/0"),
        ("stdout", "/1"),
        ("stderr", "/2"),
    ] {
        let _ = symlink(format!("/proc/self/fd{number}"), format!("/dev/{name}"));
    }
    Ok(())
}

fn load_modules() -> io::Result<()> {
    let entries: io::Result<Vec<_>> = fs::read_dir(MODULES)?.collect();
    let mut paths: Vec<_> = entries?.iter().map(fs::DirEntry::path).collect();
    paths.sort_unstable();
    for path in paths {
        let is_disk = path.to_string_lossy().contains(modules::NULL_BLK);
        let parameters = if is_disk {
            modules::NULL_BLK_PARAMETERS
        } else {
            c""
        };
        let loaded = finit_module(fs::File::open(&path)?, parameters, 0);
        match loaded {
            // It is in the kernel's image.
            Ok(()) | Err(rustix::io::Errno::EXIST) => fs::remove_file(&path)?,
            // It is missed where it is used.
            Err(error) => writeln!(io::stderr(), "bpfcost: {}: {error}", path.display())?,
        }
    }
    Ok(())
}

/// Gives the disk a scheduler, if it has none: programs may be for requests that wait in one.
fn schedule_disk() {
    let _ = fs::write("/sys/block/nullb0/queue/scheduler", "mq-deadline");
}

/// Makes the host's files, read-only, the root of this process, of its children and of the kernel's helpers.
fn enter_host_files() -> io::Result<()> {
    let at = |path: &str| format!("{NEW_ROOT}{path}");
    // The host's files are cached, so that a program that was started once is not fetched again. They do not
    // change in a way that a guest could see; what is shared for writing is not cached.
    let cached = ",cache=loose";
    mount_9p(ROOT_TAG, NEW_ROOT, MountFlags::RDONLY, cached)?;
    mount_on("run", &at("/run"), "tmpfs", MountFlags::empty(), "mode=755")?;
    let program = Path::new(program::IN_GUEST);
    let folder = program.parent().unwrap_or(program).display().to_string();
    fs::create_dir_all(at(&folder))?;
    mount_bind(&folder, at(&folder))?;
    fs::create_dir_all(at(SHARED))?;
    join_host_at(&at(SHARED))?;
    env::set_current_dir(NEW_ROOT)?;
    mount_move(".", "/")?;
    chroot(".")?;
    env::set_current_dir("/")?;
    mount_kernel()?;
    if Path::new(TYPES_COPY).exists() {
        mount_bind(TYPES_COPY, TYPES)?;
    }
    for folder in WRITABLE.map(|name| format!("/{name}")) {
        if Path::new(&folder).is_dir() {
            overlay(&folder)?;
        }
    }
    for folder in EMPTY {
        if Path::new(folder).is_dir() {
            mount_on("tmpfs", folder, "tmpfs", MountFlags::empty(), "")?;
        }
    }
    // The kernel asks for further modules by the host's modprobe.
    if mount_9p(MODULES_TAG, "/run/modules", MountFlags::RDONLY, cached).is_ok() {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy().into_owned();
        let folder = Path::new("/lib/modules");
        fs::create_dir_all(folder)?;
        symlink("/run/modules", folder.join(release))?;
    }
    Ok(())
}

/// Lays a folder in memory over one that can only be read.
fn overlay(folder: &str) -> io::Result<()> {
    let [upper, work] = ["upper", "work"].map(|layer| format!("/run/overlay{folder}/{layer}"));
    fs::create_dir_all(&upper)?;
    fs::create_dir_all(&work)?;
    let options = format!("xino=off,lowerdir={folder},upperdir={upper},workdir={work}");
    mount_on("overlay", folder, "overlay", MountFlags::empty(), &options)
}

/// Command that starts the program, behind a script where the host wants that.
fn start_with_script() -> Command {
    let script = Path::new(SHARED).join(BEFORE);
    if !script.exists() {
        return Command::new(program::IN_GUEST);
    }
    let mut command = Command::new("/bin/sh");
    let line = format!(". {}\n\"$0\" \"$@\"", script.display());
    command.args(["-c", &line, program::IN_GUEST]);
    command
}
