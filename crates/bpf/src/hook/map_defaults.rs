//! Maps as an object leaves them to its own loader: sizes, and seeds of hash tables.

use libbpf_rs::{MapType, OpenMapMut, OpenObject, libbpf_sys::BPF_F_ZERO_SEED};

/// Room of a ring buffer, in bytes.
const RING_BYTES: u32 = 256 << 10;
/// Entries of other maps.
const ENTRIES: u32 = 1024;
/// Bytes of a stack of 127 addresses, the most that the kernel takes by default (kernel.perf_event_max_stack).
const STACK_BYTES: u32 = 127 * 8;

/// Gives maps without entries a size. Libbpf gives arrays of perf buffers one for each CPU. Hash tables get no seed of their
/// own: with one, entries would share other chains in each run.
pub(super) fn set(object: &mut OpenObject) -> libbpf_rs::Result<()> {
    for mut map in object.maps_mut() {
        let kind = map.map_type();
        if kind == MapType::StackTrace && map.value_size() == 0 {
            map.set_key_size(4)?;
            map.set_value_size(STACK_BYTES)?;
        }
        if is_hash(kind) {
            map.set_map_flags(map.map_flags() | BPF_F_ZERO_SEED)?;
        }
        if map.max_entries() == 0
            && let Some(entries) = entries(&map)
        {
            map.set_max_entries(entries)?;
        }
    }
    Ok(())
}

fn is_hash(kind: MapType) -> bool {
    matches!(
        kind,
        MapType::Hash
            | MapType::PercpuHash
            | MapType::LruHash
            | MapType::LruPercpuHash
            | MapType::HashOfMaps
    )
}

/// The entries of a map that has none; `None` of maps that have none at all, or whose number libbpf knows.
fn entries(map: &OpenMapMut<'_>) -> Option<u32> {
    match map.map_type() {
        MapType::RingBuf | MapType::UserRingBuf => Some(RING_BYTES),
        MapType::PerfEventArray
        | MapType::StructOps
        | MapType::CgroupStorage
        | MapType::PercpuCgroupStorage
        | MapType::SkStorage
        | MapType::InodeStorage
        | MapType::TaskStorage
        | MapType::CGrpStorage
        // Libbpf-rs knows no storage of control groups when it asks for the type.
        | MapType::Unknown => None,
        _ => Some(ENTRIES),
    }
}
