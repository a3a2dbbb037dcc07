//! Loads the load balancer's datapath (`bpf/xdp_lb.bpf.c`), fills and reads its maps, and runs its batches and
//! replays.
//!
//! It knows no scenarios: the caller chooses packets and flows, and decides which results are correct.

mod programs;

use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{
    MapCore as _, MapFlags, MapHandle, MapType, libbpf_sys::BPF_F_ZERO_SEED, num_possible_cpus,
};
use memmap2::MmapMut;

use self::programs::{all_timed, replay, timed};
pub use crate::shared::{
    address as Address, control as Control, flood as Flood, flow_key as FlowKey,
    lru_entry as LruEntry, real as Real, traffic as Traffic, vip as Vip, vip_key as VipKey,
};
use crate::{
    cpu,
    error::{Result, cpu_number, map_failed},
    mapping, maps,
    percpu::read_cpu,
    plain::{Plain, bytes_of, bytes_of_slice, read},
    run::{self, SharedProgram},
    shared,
    timed::{MapOverrides, OpenObject, TimedObject},
    timing::{Loop, Observation, Request},
};

/// The maps that each instance has by itself, beside the flow tables.
const OWN_MAPS: [&str; 9] = [
    "vips",
    "control",
    "counters",
    "actions",
    "vip_traffic",
    "real_traffic",
    "real_misses",
    "floods",
    "replay",
];

/// VIPs in the hash map (`LB_VIPS` in xdp_lb.h, as all of these).
pub const VIPS: usize = 64;
/// VIPs with a ring of their own.
pub const RINGS: usize = 16;
/// Slots of one ring.
pub const RING_SIZE: usize = 65537;
/// Real servers.
pub const REALS: usize = 512;
/// Flows that one CPU's table holds.
pub const LRU_ENTRIES: u32 = 100_000;
/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;
/// CPUs that can have a table.
pub const MAX_CPUS: u32 = 256;
/// Operations of a replay at most.
pub const REPLAY_OPS: usize = 4096;
/// Flag of a VIP whose flows are not remembered.
pub const VIP_BYPASS_LRU: u32 = 1;
/// Flag of a real with an IPv6 address.
pub const REAL_IPV6: u32 = 1;

/// The step between two bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Nothing: the packet is left as it was.
    None,
    /// Strip the outer header, restore the Ethernet header.
    Strip,
    /// The same, and the next IPv4 source.
    StripV4,
    /// The same, and the next IPv6 source.
    StripV6,
}

/// The body that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedBody {
    /// The datapath.
    Datapath,
    /// Nothing: what is left is the harness.
    Empty,
}

/// A datapath; all but the right one are for tests that validation catches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// As it should be.
    Right,
    /// A wrong byte in the outer header.
    OuterByte,
    /// A forgotten counter.
    NoCounter,
    /// Every UDP entry counts as expired.
    UdpExpired,
    /// The slot beside the right one.
    RingSlot,
    /// New connections are not counted, so that no flood is seen.
    NoFloodCheck,
}

/// Which programs an instance loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbVariant {
    /// The datapath.
    pub datapath: Datapath,
    /// The kind of loop of the timed programs.
    pub looping: Loop,
    /// For targets whose clock counts instructions, where chance would show: hash tables place keys alike
    /// in every load, not by a random seed, and batches begin just after a tick of the timer.
    pub exact: bool,
}

impl LbVariant {
    /// A datapath with the cheapest loop that this kernel has.
    pub fn for_datapath(datapath: Datapath) -> Result<Self> {
        Ok(LbVariant {
            datapath,
            looping: Loop::probe()?,
            exact: false,
        })
    }
}

/// The sequence of sources on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    /// State of the xorshift32; never 0.
    pub state: u32,
    /// Which bits of the state go into a source, in host order.
    pub mask: u32,
    /// The other bits.
    pub prefix: u32,
}

/// A batch or replay on one CPU.
#[derive(Clone, Debug)]
pub struct LbWork {
    /// The CPU.
    pub cpu: u32,
    /// The packet of the first operation.
    pub packet: Vec<u8>,
    /// Sources of the packets after it.
    pub sources: Sources,
}

/// A replay's view of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayResult {
    /// The XDP action.
    pub action: u32,
    /// The packet that it left.
    pub packet: Vec<u8>,
}

/// Every counter of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LbCounters {
    /// Counts by `enum counter`: VIP packets, LRU misses, TCP misses, floods.
    pub events: Vec<u64>,
    /// Packets by XDP action.
    pub actions: Vec<u64>,
    /// Packets and bytes by VIP number.
    pub vips: Vec<[u64; 2]>,
    /// Packets and bytes by real.
    pub reals: Vec<[u64; 2]>,
    /// Misses of the watched VIP, by real.
    pub real_misses: Vec<u64>,
}

/// Maps that instances of one epoch share, made by the first of them.
pub struct SharedMaps {
    rings: MapHandle,
    reals: MapHandle,
}

/// A loaded datapath with one LRU table for each of its CPUs.
pub struct LoadBalancer {
    object: TimedObject,
    tables: Vec<(u32, MapHandle)>,
    variant: LbVariant,
    replay: MmapMut,
}

impl LoadBalancer {
    /// Loads the datapath with tables for `cpus`, sharing rings and reals where they exist.
    pub fn load(cpus: &[u32], variant: LbVariant, shared: Option<&SharedMaps>) -> Result<Self> {
        if let Some(&cpu) = cpus.iter().find(|&&cpu| cpu >= MAX_CPUS) {
            return Err(cpu_number(cpu, MAX_CPUS));
        }
        let tables = cpus
            .iter()
            .map(|&cpu| Ok((cpu, new_table(variant.exact)?)))
            .collect::<Result<Vec<_>>>()?;
        let Some((_, first)) = tables.first() else {
            return Err(cpu_number(0, 0));
        };
        let mut open = OpenObject::open("xdp_lb", variant.looping)?;
        for program in all_timed(variant.datapath) {
            open.time(&program)?;
        }
        open.with(&replay(variant.datapath))?;
        for map in OWN_MAPS {
            let shape = MapOverrides {
                zero_seed: variant.exact && map == "vips",
                ..MapOverrides::default()
            };
            open.map(map, shape)?;
        }
        open.map_of_maps("lru_tables", first)?;
        match shared {
            Some(shared) => {
                open.reuse("rings", &shared.rings)?;
                open.reuse("reals", &shared.reals)?;
            }
            None => {
                open.map("rings", MapOverrides::default())?;
                open.map("reals", MapOverrides::default())?;
            }
        }
        let object = open.load()?;
        let replay = mapping::map(&object.map("replay")?, "replay")?;
        for (cpu, table) in &tables {
            let fd = table.as_fd().as_raw_fd() as u32;
            maps::put(&object.map("lru_tables")?, "lru_tables", cpu, &fd)?;
        }
        Ok(LoadBalancer {
            object,
            tables,
            variant,
            replay,
        })
    }

    /// The maps that further instances can share.
    pub fn shared(&self) -> Result<SharedMaps> {
        let handle = |name| {
            let map = self.object.map(name)?;
            MapHandle::try_from(&map).map_err(map_failed(name, "sharing it"))
        };
        Ok(SharedMaps {
            rings: handle("rings")?,
            reals: handle("reals")?,
        })
    }

    /// Writes the control value.
    pub fn set_control(&self, control: &Control) -> Result<()> {
        maps::put(&self.object.map("control")?, "control", &0u32, control)
    }

    /// Adds a VIP.
    pub fn add_vip(&self, key: &VipKey, vip: &Vip) -> Result<()> {
        maps::put(&self.object.map("vips")?, "vips", key, vip)
    }

    /// Writes the rings, slot by slot from the first VIP's on.
    pub fn set_rings(&self, slots: impl IntoIterator<Item = u32>) -> Result<()> {
        mapping::fill(&self.object.map("rings")?, "rings", slots)
    }

    /// Writes the real servers.
    pub fn set_reals(&self, reals: impl IntoIterator<Item = Real>) -> Result<()> {
        mapping::fill(&self.object.map("reals")?, "reals", reals)
    }

    /// Puts flows into a CPU's table, from that CPU.
    pub fn remember(&self, cpu: u32, flows: &[FlowKey], entries: &[LruEntry]) -> Result<()> {
        let table = self.table(cpu)?;
        let count = flows.len().min(entries.len());
        let (keys, values) = (
            bytes_of_slice(&flows[..count]),
            bytes_of_slice(&entries[..count]),
        );
        cpu::on(cpu, || {
            table
                .update_batch(keys, values, count as u32, MapFlags::ANY, MapFlags::ANY)
                .map_err(map_failed("lru_tables", "adding flows"))
        })
    }

    /// Takes flows out of a CPU's table, from that CPU; each must be in it.
    pub fn forget(&self, cpu: u32, flows: &[FlowKey]) -> Result<()> {
        let table = self.table(cpu)?;
        let keys = bytes_of_slice(flows);
        cpu::on(cpu, || {
            table
                .delete_batch(keys, flows.len() as u32, MapFlags::ANY, MapFlags::ANY)
                .map_err(map_failed("lru_tables", "removing flows"))
        })
    }

    /// Returns what a CPU's table holds of a flow, without counting as a use.
    pub fn lookup(&self, cpu: u32, flow: &FlowKey) -> Result<Option<LruEntry>> {
        let entry = self
            .table(cpu)?
            .lookup(bytes_of(flow), MapFlags::ANY)
            .map_err(map_failed("lru_tables", "looking a flow up"))?;
        Ok(entry.and_then(|bytes| read(&bytes)))
    }

    /// Every counter of a CPU.
    pub fn counters(&self, cpu: u32) -> Result<LbCounters> {
        let pairs = |traffic: Vec<Traffic>| {
            traffic
                .into_iter()
                .map(|traffic| [traffic.packets, traffic.bytes])
                .collect()
        };
        Ok(LbCounters {
            events: self.of_cpu("counters", cpu)?,
            actions: self.of_cpu("actions", cpu)?,
            vips: pairs(self.of_cpu("vip_traffic", cpu)?),
            reals: pairs(self.of_cpu("real_traffic", cpu)?),
            real_misses: self.of_cpu("real_misses", cpu)?,
        })
    }

    /// The values of a per-CPU array on a CPU.
    fn of_cpu<T: Plain>(&self, map: &'static str, cpu: u32) -> Result<Vec<T>> {
        read_cpu(&self.object.map(map)?, map, cpu)
    }

    /// New connections that a CPU saw in its current second.
    pub fn flood(&self, cpu: u32) -> Result<Flood> {
        let seen = self.of_cpu("floods", cpu)?;
        Ok(seen.first().copied().unwrap_or_default())
    }

    /// Has every CPU believe that it saw these new connections: a test can't send 10⁸ of them.
    pub fn set_flood(&self, flood: Flood) -> Result<()> {
        let floods = self.object.map("floods")?;
        num_possible_cpus()
            .map(|cpus| vec![bytes_of(&flood).to_vec(); cpus])
            .and_then(|values| floods.update_percpu(bytes_of(&0u32), &values, MapFlags::ANY))
            .map_err(map_failed("floods", "writing"))
    }

    /// Times `ops` operations on each CPU of `work`, which start together; the reset is done
    /// `resets` times between them.
    pub fn batch(
        &mut self,
        body: TimedBody,
        reset: Reset,
        work: &[LbWork],
        ops: u64,
        resets: u64,
    ) -> Result<Vec<Observation>> {
        self.ready(work)?;
        let cpus: Vec<u32> = work.iter().map(|work| work.cpu).collect();
        let packets: Vec<Vec<u8>> = work.iter().map(|work| work.packet.clone()).collect();
        let request = Request {
            ops,
            resets,
            cpus: &cpus,
            after_tick: self.variant.exact,
        };
        let program = timed(self.variant.datapath, body, reset);
        self.object.batch(&program, &request, &packets)
    }

    /// Runs the first `ops` operations (at most [`REPLAY_OPS`]) and says what each of them left.
    pub fn replay(&mut self, reset: Reset, work: &LbWork, ops: usize) -> Result<Vec<ReplayResult>> {
        self.ready(std::slice::from_ref(work))?;
        let ops = ops.min(REPLAY_OPS) as u64;
        self.object.set_variable("replay_ops", ops)?;
        self.object.set_variable("replay_reset", reset as u64)?;
        let program = self.object.program(&replay(self.variant.datapath))?;
        let program = SharedProgram::new(&program)?;
        let ran = cpu::on(work.cpu, || run::on_cpu(&program, work.cpu, &work.packet))?;
        let entries = self
            .replay
            .chunks_exact(std::mem::size_of::<shared::replayed>());
        Ok(entries
            .take(ran.code as usize)
            .filter_map(read::<shared::replayed>)
            .map(|seen| ReplayResult {
                action: seen.action,
                packet: seen.packet[..seen.packet.len().min(seen.length as usize)].to_vec(),
            })
            .collect())
    }

    /// Kernel memory behind this instance, in bytes, as the kernel accounts for its maps. Shared
    /// maps count in every instance that has them.
    pub fn kernel_bytes(&self) -> u64 {
        let tables = self.tables.iter().map(|(_, table)| mapping::memlock(table));
        self.object.kernel_bytes() + tables.sum::<u64>()
    }

    fn table(&self, cpu: u32) -> Result<&MapHandle> {
        let table = self.tables.iter().find(|(owner, _)| *owner == cpu);
        table
            .map(|(_, table)| table)
            .ok_or_else(|| cpu_number(cpu, MAX_CPUS))
    }

    /// Sets what the reset restores and where each CPU's sources begin.
    fn ready(&mut self, work: &[LbWork]) -> Result<()> {
        let object = &mut self.object;
        for work in work {
            object.set_variable("packet_length", work.packet.len() as u64)?;
            if let Some(ethernet) = work.packet.first_chunk::<ETHERNET_BYTES>() {
                object.set_bytes("packet_ethernet", ethernet)?;
            }
            let Sources {
                state,
                mask,
                prefix,
            } = work.sources;
            let sources = [("state", state), ("mask", mask), ("prefix", prefix)];
            let sources = sources.map(|(member, word)| (member, u64::from(word)));
            object.set_members("sources", work.cpu, &sources)?;
        }
        Ok(())
    }
}

fn new_table(zero_seed: bool) -> Result<MapHandle> {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: if zero_seed { BPF_F_ZERO_SEED } else { 0 },
        ..Default::default()
    };
    MapHandle::create(
        MapType::LruHash,
        Some("lru_table"),
        size_of::<FlowKey>() as u32,
        size_of::<LruEntry>() as u32,
        LRU_ENTRIES,
        &options,
    )
    .map_err(map_failed("lru_tables", "making a table"))
}

/// The clock that the datapath reads (`bpf_ktime_get_ns`), in nanoseconds.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
