//! The fingerprint of a machine: the properties that costs depend on.

use std::fs;

use memchr::memmem::find;

use super::Host;
use bpfcost_record::Machine;

impl Host {
    /// The machine's fingerprint, undisturbed so far; what can't be read stays empty.
    pub fn machine(&self) -> Machine {
        let cpuinfo = self.read("/proc/cpuinfo").unwrap_or_default();
        Machine {
            kernel: self.read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            kernel_build: self.read("/proc/sys/kernel/version").unwrap_or_default(),
            cpu: cpu_model(&cpuinfo).unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: u32::try_from(self.online_cpus().len()).unwrap_or(u32::MAX),
            virtualised: virtualised(self, &cpuinfo),
            clocksource: self
                .read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .unwrap_or_default(),
            governor: governor(self),
            smt: smt(self.read("/sys/devices/system/cpu/smt/active").as_deref()),
            irq_time: irq_time(self),
            mitigations: mitigations(self),
            jit: matches!(
                self.read("/proc/sys/net/core/bpf_jit_enable").as_deref(),
                Some("1" | "2")
            ),
            bpf_stats: self
                .read("/proc/sys/kernel/bpf_stats_enabled")
                .is_some_and(|on| on != "0"),
            ..Machine::default()
        }
    }
}

/// The value of a `key : value` line.
pub(super) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// The CPU's model: x86 calls it `model name`, others leave a part number.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let named = ["model name", "Model", "cpu model", "cpu"]
        .iter()
        .find_map(|key| field(cpuinfo, key));
    if let Some(name) = named.filter(|name| !name.is_empty()) {
        return Some(name.to_owned());
    }
    let implementer = field(cpuinfo, "CPU implementer")?;
    let part = field(cpuinfo, "CPU part")?;
    Some(format!(
        "{} implementer {implementer} part {part}",
        std::env::consts::ARCH
    ))
}

/// The hypervisor's name, `container`, or `None` on bare metal. A guest inside which a container
/// runs is named by its hypervisor, for that is what takes time away.
fn virtualised(host: &Host, cpuinfo: &str) -> Option<String> {
    let flagged = field(cpuinfo, "flags")
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    let named = || {
        host.read("/sys/hypervisor/type")
            .or_else(|| cpuid_hypervisor(host))
            .or_else(|| dmi_hypervisor(host))
    };
    if flagged {
        return Some(named().unwrap_or_else(|| "a hypervisor".to_owned()));
    }
    // Not x86, or a guest that hides it: only names that no bare machine carries.
    if let Some(name) = host
        .read("/sys/hypervisor/type")
        .or_else(|| dmi_hypervisor(host))
    {
        return Some(name);
    }
    let contained = [
        "/.dockerenv",
        "/run/.containerenv",
        "/run/systemd/container",
    ]
    .iter()
    .any(|path| host.path(path).exists());
    contained.then(|| "container".to_owned())
}

/// What the CPU's own instruction says, on the machine that this program runs on.
fn cpuid_hypervisor(host: &Host) -> Option<String> {
    let name = host.is_real().then(own_hypervisor)??;
    Some(name.to_owned())
}

/// Whether every instruction of the machine that this program runs on is emulated.
pub fn is_emulated() -> bool {
    own_hypervisor() == Some(EMULATOR)
}

const EMULATOR: &str = "QEMU (emulated)";

#[cfg(target_arch = "x86_64")]
fn own_hypervisor() -> Option<&'static str> {
    use raw_cpuid::{CpuId, Hypervisor};

    match CpuId::new().get_hypervisor_info()?.identify() {
        Hypervisor::Xen => Some("Xen"),
        Hypervisor::VMware => Some("VMware"),
        Hypervisor::HyperV => Some("Hyper-V"),
        Hypervisor::KVM => Some("KVM"),
        Hypervisor::QEMU => Some(EMULATOR),
        Hypervisor::Bhyve => Some("bhyve"),
        Hypervisor::QNX => Some("QNX"),
        Hypervisor::ACRN => Some("ACRN"),
        Hypervisor::Unknown(..) => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn own_hypervisor() -> Option<&'static str> {
    None
}

/// The hypervisor as the firmware's tables name it.
fn dmi_hypervisor(host: &Host) -> Option<String> {
    /// Parts of vendor or product names, and what they stand for.
    const NAMES: [(&str, &str); 9] = [
        ("KVM", "KVM"),
        ("QEMU", "QEMU"),
        ("Amazon EC2", "Amazon EC2"),
        ("Google Compute", "Google Compute Engine"),
        ("VMware", "VMware"),
        ("VirtualBox", "VirtualBox"),
        ("Xen", "Xen"),
        ("Bochs", "Bochs"),
        ("Virtual Machine", "Hyper-V"),
    ];
    let product = host.read("/sys/class/dmi/id/product_name");
    // Amazon's bare-metal instances are named so, and are no guests.
    if product
        .as_deref()
        .is_some_and(|name| name.ends_with(".metal"))
    {
        return None;
    }
    let texts = [host.read("/sys/class/dmi/id/sys_vendor"), product];
    NAMES
        .iter()
        .find(|(part, _)| texts.iter().flatten().any(|text| text.contains(part)))
        .map(|(_, name)| (*name).to_owned())
}

/// The governors of all CPUs: one name, or several joined where they differ.
fn governor(host: &Host) -> Option<String> {
    let mut names: Vec<String> = host
        .online_cpus()
        .iter()
        .filter_map(|cpu| {
            host.read(&format!(
                "/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"
            ))
        })
        .collect();
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| names.join(", "))
}

fn smt(active: Option<&str>) -> Option<bool> {
    match active? {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Whether the kernel accounts interrupts by themselves: it has the variable and the function for it
/// (kernel/sched/cputime.c), by its own description of its types, and was not started with that off.
fn irq_time(host: &Host) -> Option<bool> {
    /// Among others, each ended by a zero.
    const NAMES: [&[u8]; 2] = [b"\0cpu_irqtime\0", b"\0irqtime_account_irq\0"];
    const OFF: [&str; 2] = ["tsc=noirqtime", "irqtime=0"];
    let types = fs::read(host.path("/sys/kernel/btf/vmlinux")).ok()?;
    let built_in = NAMES.iter().any(|name| find(&types, name).is_some());
    let words = host.read("/proc/cmdline").unwrap_or_default();
    let off = words.split_whitespace().any(|word| OFF.contains(&word));
    (!types.is_empty()).then_some(built_in && !off)
}

/// The vulnerabilities that this CPU has, each with what the kernel does about it: that is part of
/// every cost of entering the kernel or jumping indirectly.
fn mitigations(host: &Host) -> Vec<String> {
    const FOLDER: &str = "/sys/devices/system/cpu/vulnerabilities";
    host.names(FOLDER)
        .into_iter()
        .filter_map(|name| {
            let state = host.read(&format!("{FOLDER}/{name}"))?;
            (state != "Not affected").then(|| format!("{name}: {state}"))
        })
        .collect()
}
