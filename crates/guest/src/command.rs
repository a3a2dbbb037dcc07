//! Composes the command line of QEMU and that of the guest's kernel. Nothing is started here.

use std::path::Path;

use super::{Acceleration, GuestSpec, PortForward, Tools, first, monitor, program};

/// Memory of a guest in MiB. The largest experiment takes 70 MB in the kernel; with what QEMU itself
/// takes, translated code included, a guest stays well below 2 GiB.
pub const MEMORY_MIB: u32 = 1024;

/// Translated code that QEMU keeps, in MiB. Its default grows with the guest's memory to 1 GiB; a boot
/// and a run translate less than 100.
const TRANSLATED_MIB: u32 = 256;

/// An exact guest's clock in kHz: one instruction is one nanosecond.
pub const EXACT_KHZ: u32 = 1_000_000;

/// One instruction a nanosecond, and no sleep while the guest idles.
const COUNT: &str = "shift=0,sleep=off";

/// The clock while a guest boots whose state is saved: an instruction takes 2^`BOOT_SHIFT` ns. The kernel calibrates a timer for
/// 104 ms of its clock, which would be 104 million instructions of a slow kind.
pub(crate) const BOOT_SHIFT: u32 = 3;

/// The initramfs in the guest's folder, which is where QEMU runs.
pub(crate) const INITRAMFS: &str = "initramfs";

/// Tags of the folders that a guest can mount.
pub(crate) const SHARE_TAG: &str = "share";
pub(crate) const ROOT_TAG: &str = "root";
pub(crate) const MODULES_TAG: &str = "modules";

/// QEMU's command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestCommand {
    /// QEMU and its arguments.
    pub args: Vec<String>,
    /// QEMU's version and the arguments that decide what is counted, as records keep them.
    pub emulator: String,
}

impl GuestCommand {
    /// The arguments of the same guest with the clock of a boot; `None` if it does not count.
    pub(crate) fn boot_args(&self) -> Option<Vec<String>> {
        let mut args = self.args.clone();
        let clock = args.iter_mut().find(|arg| *arg == COUNT)?;
        *clock = format!("shift={BOOT_SHIFT},sleep=off");
        Some(args)
    }
}

impl GuestSpec {
    /// Composes the command of a guest that shares `folder`, and is started there.
    pub fn compose(&self, tools: &Tools, folder: &Path) -> GuestCommand {
        let words = self.arch.words();
        let emulated = self.acceleration == Acceleration::Emulated;
        let mut args = vec![tools.qemu.display().to_string()];
        let mut add = |more: &[&str]| args.extend(more.iter().map(|&word| word.to_owned()));
        add(&["-name", "bpfcost", "-nodefaults", "-no-reboot"]);
        add(&["-display", "none", "-vga", "none"]);
        let memory = self.memory_mib.unwrap_or(MEMORY_MIB);
        add(&["-m", &format!("{memory}M"), "-smp", &self.cpus.to_string()]);
        // Fails without KVM, rather than silently fall back to emulation.
        let machine = words.machine.to_owned() + if emulated { "" } else { ",accel=kvm" };
        add(&["-machine", &machine, "-cpu", words.cpu]);
        // Its console is read from, too.
        add(&["-chardev", "stdio,id=console,signal=off"]);
        add(&["-serial", "chardev:console"]);
        let monitor = format!("unix:{},server=on,wait=off", monitor::SOCKET);
        add(&["-qmp", &monitor]);
        add(&shared(SHARE_TAG, folder, "").each_ref().map(String::as_str));
        if self.host_files {
            let root = shared(ROOT_TAG, Path::new("/"), ",readonly=on");
            add(&root.each_ref().map(String::as_str));
            if let Some(modules) = &self.kernel.modules {
                let modules = shared(MODULES_TAG, modules, ",readonly=on");
                add(&modules.each_ref().map(String::as_str));
            }
        }
        let mut emulator = format!("QEMU {}, ", tools.qemu_version);
        emulator += if emulated { "tcg" } else { "kvm" };
        emulator += &format!(", -cpu {}", words.cpu);
        if emulated {
            // One thread for all CPUs: with one each, a guest kernel now and then dies in its timers.
            let accel = format!("tcg,thread=single,tb-size={TRANSLATED_MIB}");
            add(&["-accel", &accel]);
        }
        if self.exact {
            add(&["-icount", COUNT]);
            emulator += &format!(", -icount {COUNT}");
        }
        if let Some(forward) = &self.forward {
            add(&network(forward).each_ref().map(String::as_str));
        }
        add(&["-kernel", &self.kernel.image.display().to_string()]);
        add(&["-initrd", INITRAMFS, "-append", &self.kernel_line()]);
        GuestCommand { args, emulator }
    }

    /// The kernel's command line; its end is that of the first process.
    fn kernel_line(&self) -> String {
        let words = self.arch.words();
        let libraries = format!("{}={}", program::SEARCH, program::LIBRARIES);
        // The kernel's errors show why a guest dies; everything else would cost a second of printing.
        let mut line = vec![words.console, "panic=-1", "quiet", "loglevel=4", &libraries];
        // Its tests of its ciphers would be a third of the boot's instructions.
        line.push("cryptomgr.notests=1");
        if self.exact {
            line.extend(words.exact);
            // Each system call would begin at another depth of the stack, and the kernel's memcpy() takes
            // another way by the low bits of its addresses: 2 to 10 instructions in an LRU insertion.
            line.push("randomize_kstack_offset=off");
            // A uprobe is found by a walk through the process's mappings, which takes as long as they lie.
            line.push("norandmaps");
        } else if self.acceleration == Acceleration::Emulated {
            line.extend(words.emulated);
        }
        line.extend(self.kernel_words.as_deref());
        line.push("--");
        line.extend(first::ARGUMENTS);
        if self.host_files {
            line.push(first::HOST_FILES);
        }
        if self.exact && self.traced {
            line.push(first::TRACED);
        }
        if self.exact {
            // The kernel finds hooks by hashes of addresses: the same kprobe took 713 instructions in one boot, 718 in
            // another. What loads the kernel reads the word; the kernel itself does not know it, and hands it to the
            // first process.
            line.push("nokaslr");
        }
        line.join(" ")
    }
}

/// A folder that the guest can mount by 9p. (virtiofs needs a separate daemon, which a killed run would leave behind.)
fn shared(tag: &str, folder: &Path, options: &str) -> [String; 4] {
    // A comma ends an option, two are one.
    let folder = folder.display().to_string().replace(',', ",,");
    [
        "-fsdev".to_owned(),
        format!("local,id={tag},path={folder},security_model=none,multidevs=remap{options}"),
        "-device".to_owned(),
        format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
    ]
}

/// A card, and QEMU's user-mode network behind it, whose only door is a port of this machine's 127.0.0.1. (With
/// `restrict` it would let no datagram out again, and iperf3 waits for the first answer to each flow. The guest has
/// no route to anywhere else.)
fn network(forward: &PortForward) -> [String; 4] {
    let PortForward {
        port,
        mac,
        address,
        inside,
    } = forward;
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{Arch, Kernel};

    fn spec(exact: bool) -> GuestSpec {
        GuestSpec {
            kernel: Kernel {
                release: "6.12.1-amd64".into(),
                image: "/k/boot/vmlinuz-6.12.1-amd64".into(),
                modules: Some("/k/lib/modules/6.12.1-amd64".into()),
            },
            arch: Arch::X86_64,
            cpus: 1,
            exact,
            traced: false,
            host_files: false,
            forward: None,
            acceleration: Acceleration::Emulated,
            memory_mib: None,
            kernel_words: None,
        }
    }

    fn composed(spec: &GuestSpec) -> GuestCommand {
        let tools = Tools {
            qemu: "/usr/bin/qemu".into(),
            qemu_version: "7.2.22 (Debian)".into(),
        };
        spec.compose(&tools, Path::new("/s"))
    }

    /// The values of an option.
    fn values(command: &GuestCommand, option: &str) -> Vec<String> {
        let pairs = command.args.windows(2);
        let values = pairs.filter(|pair| pair[0] == option);
        values.map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn a_guest_without_the_hosts_files_shares_one_folder() {
        let command = composed(&spec(false));
        assert_eq!(
            values(&command, "-fsdev"),
            ["local,id=share,path=/s,security_model=none,multidevs=remap"]
        );
        let [line] = values(&command, "-append").try_into().expect("one line");
        assert!(line.contains("no_timer_check"), "{line}");
        assert!(line.ends_with(" -- guest first"), "{line}");
        assert_eq!(command.emulator, "QEMU 7.2.22 (Debian), tcg, -cpu max");
        assert!(values(&command, "-icount").is_empty());
    }

    #[test]
    fn the_hosts_files_can_only_be_read() {
        let mut spec = spec(false);
        spec.host_files = true;
        let folders = values(&composed(&spec), "-fsdev");
        let [share, root, modules] = folders.try_into().expect("three folders");
        assert!(!share.contains("readonly"), "{share}");
        for (folder, path) in [(root, "path=/,"), (modules, "path=/k/lib/modules/6.12.1")] {
            assert!(folder.contains(path), "{folder}");
            assert!(folder.ends_with(",readonly=on"), "{folder}");
        }
        spec.kernel.modules = None;
        let command = composed(&spec);
        assert_eq!(values(&command, "-fsdev").len(), 2);
        let [line] = values(&command, "-append").try_into().expect("one line");
        assert!(line.ends_with(" -- guest first --host-files"), "{line}");
    }

    #[test]
    fn exact_guests_count() {
        let command = composed(&spec(true));
        assert_eq!(values(&command, "-icount"), ["shift=0,sleep=off"]);
        assert_eq!(
            values(&command, "-accel"),
            ["tcg,thread=single,tb-size=256"]
        );
        assert!(command.emulator.ends_with("-icount shift=0,sleep=off"));
        let [line] = values(&command, "-append").try_into().expect("one line");
        for word in [
            &format!("tsc_early_khz={EXACT_KHZ}"),
            "randomize_kstack_offset=off",
            "norandmaps",
        ] {
            assert!(line.contains(word), "{line}");
        }
        assert!(!line.contains("no_timer_check"), "{line}");
    }

    #[test]
    fn kernels_lie_at_the_same_place_where_instructions_are_counted() {
        let mut spec = spec(true);
        let [line] = values(&composed(&spec), "-append")
            .try_into()
            .expect("one line");
        assert!(line.ends_with(" -- guest first nokaslr"), "{line}");
        spec.traced = true;
        let [line] = values(&composed(&spec), "-append")
            .try_into()
            .expect("one line");
        assert!(line.ends_with(" first --traced nokaslr"), "{line}");
    }

    #[test]
    fn kvm_has_no_silent_way_back() {
        let mut spec = spec(false);
        spec.acceleration = Acceleration::Kvm;
        let command = composed(&spec);
        assert_eq!(values(&command, "-machine"), ["q35,accel=kvm"]);
        assert!(values(&command, "-accel").is_empty());
        let [line] = values(&command, "-append").try_into().expect("one line");
        assert!(!line.contains("no_timer_check"), "{line}");
    }

    #[test]
    fn words_of_another_architecture() {
        let mut spec = spec(true);
        spec.arch = Arch::Aarch64;
        let command = composed(&spec);
        assert_eq!(values(&command, "-machine"), ["virt,gic-version=3"]);
        assert!(command.emulator.contains("cntfrq=1000000000"));
        let [line] = values(&command, "-append").try_into().expect("one line");
        assert!(line.starts_with("console=ttyAMA0 "), "{line}");
        assert!(!line.contains("tsc"), "{line}");
    }

    #[test]
    fn a_guest_has_a_network_only_where_it_is_to_be_reached() {
        let mut spec = spec(false);
        let without = composed(&spec);
        assert!(values(&without, "-netdev").is_empty());
        spec.forward = Some(PortForward {
            port: 40_123,
            mac: [0x52, 0x54, 0, 0x12, 0x34, 0x56],
            address: Ipv4Addr::new(10, 0, 2, 15),
            inside: 5201,
        });
        let with = composed(&spec);
        assert_eq!(
            values(&with, "-netdev"),
            [
                "user,id=outside,ipv6=off,hostfwd=tcp:127.0.0.1:40123-10.0.2.15:5201,\
                 hostfwd=udp:127.0.0.1:40123-10.0.2.15:5201"
            ]
        );
        let card = "virtio-net-pci,netdev=outside,mac=52:54:00:12:34:56,romfile=";
        assert!(values(&with, "-device").contains(&card.to_owned()));
        assert_eq!(with.args.len(), without.args.len() + 4);
    }

    #[test]
    fn a_comma_in_a_path_does_not_end_the_option() {
        let [_, fsdev, ..] = shared("t", Path::new("/a,readonly=off"), "");
        assert!(fsdev.contains("path=/a,,readonly=off,"), "{fsdev}");
    }
}
