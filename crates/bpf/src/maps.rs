//! Steps that several readers of maps share.

use libbpf_rs::{ErrorKind, MapCore, MapFlags, RingBuffer, RingBufferBuilder};

use crate::{
    error::{Result, map_failed},
    plain::{Plain, bytes_of},
};

/// The values of a per-CPU array's only entry.
pub(crate) fn of_cpus(map: &impl MapCore, name: &'static str) -> Result<Vec<Vec<u8>>> {
    let values = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    Ok(values
        .map_err(map_failed(name, "reading it"))?
        .unwrap_or_default())
}

/// Puts as many of nothing but this byte in the place of those values.
pub(crate) fn fill_cpus(
    map: &impl MapCore,
    name: &'static str,
    mut values: Vec<Vec<u8>>,
    byte: u8,
) -> Result<()> {
    values.iter_mut().for_each(|value| value.fill(byte));
    map.update_percpu(&0u32.to_ne_bytes(), &values, MapFlags::ANY)
        .map_err(map_failed(name, "writing it"))
}

/// Puts a value in the place of a key.
pub(crate) fn put<K: Plain, V: Plain>(
    map: &impl MapCore,
    name: &'static str,
    key: &K,
    value: &V,
) -> Result<()> {
    map.update(bytes_of(key), bytes_of(value), MapFlags::ANY)
        .map_err(map_failed(name, "writing to it"))
}

/// Removes every entry. One that is gone already is as good.
pub(crate) fn empty(map: &impl MapCore, name: &'static str) -> Result<()> {
    for key in map.keys().collect::<Vec<_>>() {
        match map.delete(&key) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(map_failed(name, "emptying it")(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Has `take` be given each record of a ring buffer.
pub(crate) fn ring(
    map: &impl MapCore,
    name: &'static str,
    mut take: impl FnMut(&[u8]) + 'static,
) -> Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    let added = builder.add(map, move |record| {
        take(record);
        0
    });
    let built = added.map(drop).and_then(|()| builder.build());
    built.map_err(map_failed(name, "opening the ring buffer"))
}
