//! The command line of a guest. virtme-ng composes it, because it knows how a kernel boots from another system's
//! root; bpfcost then adds its own arguments. Nothing is started here.

use std::{
    fs,
    io::Cursor,
    iter,
    os::unix::{fs::symlink, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use cpio::{NewcBuilder, write_cpio};

use super::{Acceleration, GuestError, Hooks, Tools, monitor};
use crate::kernel::Kernel;
use bpfcost_workload::outside;

/// Memory of a guest in MiB. The largest experiment takes 70 MB in the kernel; with what QEMU itself
/// takes, translated code included, a guest stays well below 2 GiB.
const MEMORY_MIB: u32 = 1024;

/// Translated code that QEMU keeps, in MiB. Its default grows with the guest's memory to 1 GiB; a boot
/// and a run translate less than 100.
const TRANSLATED_MIB: u32 = 256;

/// An exact guest's clock in kHz: one instruction is one nanosecond. The kernel's own
/// measurement is off by up to 63 kHz, differently at each boot, and moves when the clock ticks.
pub const EXACT_KHZ: u32 = 1_000_000;

/// One instruction a nanosecond, and no sleep while the guest idles.
const COUNT: &str = "shift=0,sleep=off";

/// What runs in the initramfs, and then as the guest's first process: shell scripts. What they mount by 9p, they mount
/// as `TRANSPORT` says.
const INITRAMFS: &str = include_str!("initramfs.sh");
const INIT: &str = include_str!("init.sh");

/// How both sides of the shared folder speak 9p: as virtme-ng does.
const TRANSPORT: &str = "version=9p2000.L,trans=virtio,access=any,msize=524288";

/// What a guest says on its console when it has its modules; it waits for a line there then.
pub(super) const READY: &str = "bpfcost: its modules are loaded";

/// What it writes to and reads from by it: a pipe of this program.
const CONSOLE: &str = "stdio,id=console,signal=off";

/// Where the guest sees the shared folder. It is its own, whatever lies there here.
pub(super) const SHARED: &str = "/run/bpfcost";

/// What a guest is like.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestSpec {
    /// What it boots.
    pub kernel: Kernel,
    /// How many CPUs it has.
    pub cpus: u32,
    /// Whether its clock counts instructions.
    pub exact: bool,
    /// The port of 127.0.0.1 on this machine by which servers in it are reached, where any are to be.
    pub port: Option<u16>,
    /// What runs its instructions.
    pub acceleration: Acceleration,
    /// What a test changes.
    pub hooks: Hooks,
}

/// A guest that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GuestCommand {
    /// QEMU and its arguments.
    pub(super) args: Vec<String>,
    /// Who runs the guest, as records keep it.
    pub(super) emulator: String,
}

impl GuestSpec {
    /// What is run in it before anything else, as lines of a shell.
    pub(super) fn before(&self) -> String {
        // Nothing in the guest looks for drivers of what it finds.
        let card = self.port.map(|_| "modprobe virtio_net".to_owned());
        let lines: Vec<String> = card.into_iter().chain(self.hooks.before.clone()).collect();
        lines.join("\n")
    }

    /// Composes a guest that shares `folder` and runs the file `start` in it.
    pub(super) fn compose(&self, tools: &Tools, folder: &Path) -> Result<GuestCommand, GuestError> {
        self.lay_out(folder)
            .map_err(GuestError::io("laying out the guest's folder"))?;
        let output = Command::new(&tools.virtme_run)
            .args(self.request(folder, tools))
            .env("TMPDIR", folder)
            // Its bytecode would be written beside the program, which may be another user's.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            // Ctrl-C on a terminal is this program's to answer.
            .process_group(0)
            .output()
            .map_err(GuestError::io(format!(
                "starting {}",
                tools.virtme_run.display()
            )))?;
        let line = String::from_utf8_lossy(&output.stdout);
        // What it says besides comes before the command.
        let words = line.lines().last().and_then(shlex::split);
        match words.filter(|words| output.status.success() && words.len() > 1) {
            Some(words) => {
                start_by(&folder.join("initramfs"))
                    .map_err(GuestError::io("adding to the guest's initramfs"))?;
                Ok(self.adjusted(words, tools))
            }
            None => Err(GuestError::Lacking(format!(
                "virtme-ng cannot set up a guest with {}: {}\n  Check the kernel: bpfcost kernel list",
                self.kernel.image.display(),
                last_line(&String::from_utf8_lossy(&output.stderr))
            ))),
        }
    }

    /// Lays the kernel out as virtme-ng looks for it: modules beside the image's folder. By links, under
    /// names of our own, since it takes few characters in names.
    fn lay_out(&self, folder: &Path) -> std::io::Result<()> {
        let boot = folder.join("kernel/boot");
        let modules = folder.join("kernel/lib/modules");
        fs::create_dir_all(&boot)?;
        fs::create_dir_all(&modules)?;
        symlink(fs::canonicalize(&self.kernel.image)?, boot.join("vmlinuz"))?;
        if let Some(path) = &self.kernel.modules {
            let path = fs::canonicalize(path)?;
            symlink(&path, modules.join(&self.kernel.release))?;
            symlink(&path, folder.join("modules"))?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        fs::write(
            folder.join("init"),
            format!("TRANSPORT={TRANSPORT}\nNOW={now}\n{INIT}"),
        )
    }

    /// The words that virtme-ng is asked with.
    fn request(&self, folder: &Path, tools: &Tools) -> Vec<String> {
        let at = |name: &str| folder.join(name).display().to_string();
        let mut words = vec!["--kimg".to_owned(), at("kernel/boot/vmlinuz")];
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        add(&["--qemu-bin", &tools.qemu.display().to_string()]);
        add(&["--name", "bpfcost"]);
        add(&["--cpus", &self.cpus.to_string()]);
        let memory = self.hooks.memory_mib.unwrap_or(MEMORY_MIB);
        add(&["--memory", &format!("{memory}M")]);
        // virtiofs needs a separate daemon, which a killed run would leave behind.
        add(&["--force-9p", "--force-initramfs"]);
        add(&["--save-initramfs", &at("initramfs")]);
        add(&["--rwdir", &format!("{}={}", &SHARED[1..], folder.display())]);
        match self.kernel.modules {
            Some(_) => add(&[
                "--mods",
                "auto",
                "--rodir",
                &format!("run/modules={}", at("modules")),
            ]),
            None => add(&["--mods", "none"]),
        }
        // Has the module loaded; the overlays themselves are the first process's.
        add(&["--overlay-rwdir", "/etc"]);
        if self.acceleration == Acceleration::Emulated {
            add(&["--disable-kvm"]);
        }
        if self.acceleration == Acceleration::Emulated && !self.exact {
            // On a busy host ticks come too late for the kernel's test of its timer, and it panics: "IO-APIC +
            // timer doesn't work!". Under KVM the kernel skips that test.
            add(&["--kopt", "no_timer_check"]);
        }
        // The kernel's errors show why a guest dies; everything else would cost a second of printing.
        add(&["--show-boot-console", "--kopt", "loglevel=4"]);
        if self.exact {
            add(&["--kopt", &format!("tsc_early_khz={EXACT_KHZ}")]);
            // Each system call would begin at another depth of the stack, and the kernel's memcpy() takes
            // another way by the low bits of its addresses: 2 to 10 instructions in an LRU insertion.
            add(&["--kopt", "randomize_kstack_offset=off"]);
            // A uprobe is found by a walk through the process's mappings, which takes as long as they lie.
            add(&["--kopt", "norandmaps"]);
        }
        // Without a script it would want a terminal.
        add(&["--script-sh", "true"]);
        add(&["--show-command", "--dry-run"]);
        words
    }

    /// The final command line: adds what virtme-ng has no option for.
    fn adjusted(&self, mut args: Vec<String>, tools: &Tools) -> GuestCommand {
        for arg in &mut args {
            if arg.starts_with("accel=kvm") {
                // Fail without KVM, rather than silently fall back to emulation.
                *arg = "accel=kvm".to_owned();
            } else if let Some(named) = arg.strip_prefix("stdio,") {
                // Of a terminal, which a guest here does not have.
                *arg = format!("null,{}", id(named));
            }
        }
        // Its console is read from, too.
        match args.iter_mut().find(|arg| id(arg) == "id=console") {
            Some(console) => *console = CONSOLE.to_owned(),
            None => args.extend(["-serial".into(), "stdio".into()]),
        }
        if let Some(append) = after(&mut args, "-append") {
            // What virtme-ng says to its own first process, which would start the host's udev and more.
            let prefixes = ["virtme", "nr_open=", "init="];
            let mut words: Vec<&str> = append.split(' ').collect();
            words.retain(|word| !prefixes.iter().any(|prefix| word.starts_with(prefix)));
            words.extend(self.hooks.kernel.as_deref());
            *append = words.join(" ");
        }
        let cpu = after(&mut args, "-cpu").map_or(String::new(), |cpu| format!(", -cpu {cpu}"));
        let by = match self.acceleration {
            Acceleration::Kvm => "kvm",
            Acceleration::Emulated => "tcg",
        };
        args.extend([
            "-qmp".into(),
            format!("unix:{},server=on,wait=off", monitor::SOCKET),
        ]);
        let mut emulator = format!("QEMU {}, {by}{cpu}", tools.qemu_version);
        if self.acceleration == Acceleration::Emulated {
            // One thread for all CPUs: with one each, a guest kernel now and then dies in its timers.
            args.extend([
                "-accel".into(),
                format!("tcg,thread=single,tb-size={TRANSLATED_MIB}"),
            ]);
        }
        if self.exact {
            args.extend(["-icount".into(), COUNT.into()]);
            emulator += &format!(", -icount {COUNT}");
        }
        args.extend(self.port.into_iter().flat_map(network));
        GuestCommand { args, emulator }
    }
}

/// Has an initramfs that virtme-ng made start with our script: the kernel takes the last of two files of one name.
fn start_by(initramfs: &Path) -> std::io::Result<()> {
    let text =
        format!("#!/bin/sh\nTRANSPORT={TRANSPORT}\nSHARED={SHARED}\nREADY='{READY}'\n{INITRAMFS}");
    let init = NewcBuilder::new("init").mode(0o100_755);
    let file = fs::OpenOptions::new().append(true).open(initramfs)?;
    write_cpio(iter::once((init, Cursor::new(text))), file)?;
    Ok(())
}

/// A card, and QEMU's user-mode network behind it, whose only door is `port` of this machine's 127.0.0.1. (With
/// `restrict` it would let no datagram out again, and iperf3 waits for the first answer to each flow. The guest has
/// no route to anywhere else.)
fn network(port: u16) -> [String; 4] {
    let outside::GuestEndpoint {
        mac,
        address,
        port: inside,
        ..
    } = outside::END;
    let door = |kind| format!("hostfwd={kind}:127.0.0.1:{port}-{address}:{inside}");
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    [
        "-netdev".to_owned(),
        format!("user,id=outside,ipv6=off,{},{}", door("tcp"), door("udp")),
        "-device".to_owned(),
        // Without a file to boot from, which may not be installed.
        format!("virtio-net-pci,netdev=outside,mac={mac},romfile="),
    ]
}

/// The name in the value of an option, `id=` included; empty where it has none.
fn id(value: &str) -> &str {
    let named = value.split(',').find(|part| part.starts_with("id="));
    named.unwrap_or_default()
}

/// The value that follows an option.
fn after<'a>(args: &'a mut [String], option: &str) -> Option<&'a mut String> {
    let at = args.iter().position(|arg| arg == option)?;
    args.get_mut(at + 1)
}

fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it printed nothing").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(exact: bool) -> GuestSpec {
        GuestSpec {
            kernel: Kernel {
                release: "6.12.1-amd64".into(),
                image: "/k/boot/vmlinuz-6.12.1-amd64".into(),
                modules: Some("/k/lib/modules/6.12.1-amd64".into()),
            },
            cpus: 1,
            exact,
            port: None,
            acceleration: Acceleration::Emulated,
            hooks: Hooks::default(),
        }
    }

    fn tools() -> Tools {
        Tools {
            qemu: "/usr/bin/qemu".into(),
            qemu_version: "7.2.22 (Debian)".into(),
            virtme_run: "/opt/virtme-run".into(),
        }
    }

    /// What virtme-ng would answer, shortened.
    fn answer() -> Vec<String> {
        let line = "/usr/bin/qemu -cpu max -chardev file,path=/dev/fd/2,id=console \
                    -chardev stdio,id=stdin,mux=off -kernel k -append 'quiet virtme_link_mods=/k/l init=/i'";
        shlex::split(line).expect("words")
    }

    #[test]
    fn the_first_process_is_ours() {
        let mut shape = shape(false);
        shape.hooks.kernel = Some("lockdown=none".into());
        let composed = shape.adjusted(answer(), &tools());
        let append = composed.args.iter().find(|arg| arg.contains("quiet"));
        let append = append.expect("the kernel's words");
        assert_eq!(append, "quiet lockdown=none");
        assert!(!composed.args.contains(&"-icount".to_owned()));
        // Its console is the only one that reads.
        let of = |start: &str| {
            composed
                .args
                .iter()
                .filter(|arg| arg.starts_with(start))
                .count()
        };
        assert_eq!([of(CONSOLE), of("stdio,"), of("null,id=stdin")], [1, 1, 1]);
        assert_eq!(composed.emulator, "QEMU 7.2.22 (Debian), tcg, -cpu max");
        let words = shape.request(Path::new("/s"), &tools());
        assert!(words.contains(&"no_timer_check".to_owned()), "{words:?}");
    }

    #[test]
    fn exact_guests_count() {
        let composed = shape(true).adjusted(answer(), &tools());
        let end = &composed.args[composed.args.len() - 4..];
        assert_eq!(
            end,
            [
                "-accel",
                "tcg,thread=single,tb-size=256",
                "-icount",
                "shift=0,sleep=off"
            ]
        );
        assert!(composed.emulator.ends_with("-icount shift=0,sleep=off"));
        let words = shape(true).request(Path::new("/s"), &tools());
        for option in [
            "tsc_early_khz=1000000",
            "randomize_kstack_offset=off",
            "norandmaps",
        ] {
            assert!(words.contains(&option.to_owned()), "{words:?}");
        }
        assert!(!words.contains(&"no_timer_check".to_owned()), "{words:?}");
    }

    #[test]
    fn kvm_has_no_silent_way_back() {
        let mut shape = shape(false);
        shape.acceleration = Acceleration::Kvm;
        let mut args = answer();
        args.extend(["-machine".into(), "accel=kvm:tcg".into()]);
        let composed = shape.adjusted(args, &tools());
        assert!(composed.args.contains(&"accel=kvm".to_owned()));
        let words = shape.request(Path::new("/s"), &tools());
        assert!(!words.contains(&"--disable-kvm".to_owned()));
        assert!(!words.contains(&"no_timer_check".to_owned()));
    }

    #[test]
    fn a_guest_has_a_network_only_where_it_is_to_be_reached() {
        let mut shape = shape(false);
        let without = shape.adjusted(answer(), &tools()).args;
        assert!(
            !without.iter().any(|arg| arg.contains("net")),
            "{without:?}"
        );
        shape.port = Some(40_123);
        let args = shape.adjusted(answer(), &tools()).args;
        assert_eq!(args[..without.len()], without);
        assert_eq!(
            args[without.len()..],
            [
                "-netdev",
                "user,id=outside,ipv6=off,hostfwd=tcp:127.0.0.1:40123-10.0.2.15:5201,\
                 hostfwd=udp:127.0.0.1:40123-10.0.2.15:5201",
                "-device",
                "virtio-net-pci,netdev=outside,mac=52:54:00:12:34:56,romfile="
            ]
        );
    }

    #[test]
    fn a_kernel_without_modules_asks_for_none() {
        let mut shape = shape(false);
        shape.kernel.modules = None;
        let words = shape.request(Path::new("/s"), &tools()).join(" ");
        assert!(words.contains("--mods none"), "{words}");
        assert!(!words.contains("--rodir"), "{words}");
    }
}
