//! The modules of Debian's kernels that are kept: those that a guest, which has no hardware but virtio's, can use. With
//! what they need they are a tenth of all.
//!
//! A module is kept by its path below `lib/modules/RELEASE/kernel`. Modules that kept ones need are kept wherever they are.

use std::path::Path;

/// Folders that are kept as a whole.
const FOLDERS: [&str; 14] = [
    "block",
    "crypto",
    "drivers/net/bonding",
    "drivers/net/ipvlan",
    "drivers/net/netdevsim",
    "drivers/net/team",
    "drivers/net/vxlan",
    "drivers/net/wireguard",
    "drivers/virtio",
    "kernel",
    "lib",
    "mm",
    "net",
    "security",
];

/// File systems: those that guests mount, and those that programs can have behind them.
const FILE_SYSTEMS: [&str; 6] = ["9p", "configfs", "fscache", "fuse", "netfs", "overlayfs"];

/// Folders within the kept ones that are for hardware, and for what is built on it or on file systems that are not kept.
const HARDWARE: [&str; 27] = [
    "net/6lowpan",
    "net/appletalk",
    "net/atm",
    "net/ax25",
    "net/batman-adv",
    "net/bluetooth",
    "net/caif",
    "net/can",
    "net/ceph",
    "net/dsa",
    "net/ieee802154",
    "net/lapb",
    "net/mac80211",
    "net/mac802154",
    "net/mctp",
    "net/netrom",
    "net/nfc",
    "net/phonet",
    "net/qrtr",
    "net/rds",
    "net/rfkill",
    "net/rose",
    "net/rxrpc",
    "net/smc",
    "net/sunrpc",
    "net/wireless",
    "net/x25",
];

/// Transports of other hypervisors and of InfiniBand, in folders that are kept.
const OTHER_TRANSPORTS: [&str; 5] = [
    "9pnet_rdma",
    "9pnet_xen",
    "hv_sock",
    "virtio_vdpa",
    "vmw_vsock_vmci_transport",
];

/// Devices without hardware, and virtio's, in folders of drivers.
const DEVICES: [&str; 33] = [
    "amt",
    "bareudp",
    "brd",
    "dummy",
    "geneve",
    "gtp",
    "ifb",
    "libphy",
    "loop",
    "macsec",
    "macvlan",
    "macvtap",
    "net_failover",
    "netconsole",
    "netkit",
    "nlmon",
    "null_blk",
    "pfcp",
    "ppp_generic",
    "pppoe",
    "pppox",
    "slhc",
    "tap",
    "tun",
    "veth",
    "virtio_blk",
    "virtio_console",
    "virtio_net",
    "virtio_rng",
    "vrf",
    "vsockmon",
    "vxlan",
    "zram",
];

/// Returns whether a module is kept for its own sake.
pub(super) fn is_kept(path: &Path) -> bool {
    let Some(name) = module_name(path) else {
        return false;
    };
    let is_in = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    let is = |names: &[&str]| names.contains(&name.as_str());
    if is_in(&HARDWARE) || is(&OTHER_TRANSPORTS) {
        return false;
    }
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    match parts.as_slice() {
        ["arch", _, kind, ..] => matches!(*kind, "crypto" | "lib"),
        ["fs", system, ..] => FILE_SYSTEMS.contains(system),
        ["drivers", "net" | "block" | "char", ..] if is(&DEVICES) => true,
        _ => is_in(&FOLDERS),
    }
}

/// The name of the module in a file, as the kernel writes it; `None` for files of other kinds.
pub(super) fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let packings = ["", ".xz", ".zst", ".gz"];
    let stem = packings
        .iter()
        .find_map(|packing| name.strip_suffix(packing)?.strip_suffix(".ko"))?;
    Some(stem.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_get_what_they_can_use() {
        for path in [
            "arch/x86/crypto/aesni-intel.ko.xz",
            "crypto/algif_hash.ko",
            "drivers/block/null_blk/null_blk.ko.xz",
            "drivers/char/hw_random/virtio-rng.ko.xz",
            "drivers/net/dummy.ko.zst",
            "drivers/net/ifb.ko",
            "drivers/net/veth.ko.xz",
            "drivers/net/virtio_net.ko.xz",
            "drivers/net/wireguard/wireguard.ko.xz",
            "drivers/virtio/virtio_pci.ko.xz",
            "fs/9p/9p.ko.xz",
            "fs/netfs/netfs.ko.xz",
            "fs/overlayfs/overlay.ko.xz",
            "lib/crc16.ko",
            "net/9p/9pnet_virtio.ko.xz",
            "net/core/failover.ko.xz",
            "net/ipv4/tcp_bbr.ko.xz",
            "net/netfilter/nf_tables.ko.xz",
            "net/sched/sch_ingress.ko.xz",
            "net/tls/tls.ko.xz",
        ] {
            assert!(is_kept(Path::new(path)), "{path}");
        }
        for path in [
            "drivers/gpu/drm/amd/amdgpu/amdgpu.ko.xz",
            "drivers/net/ethernet/intel/e1000/e1000.ko.xz",
            "drivers/net/mii.ko.xz",
            "fs/xfs/xfs.ko.xz",
            "net/9p/9pnet_rdma.ko.xz",
            "net/bluetooth/bluetooth.ko.xz",
            "net/notes.txt",
            "networks/x.ko",
            "sound/core/snd.ko.xz",
        ] {
            assert!(!is_kept(Path::new(path)), "{path}");
        }
    }
}
