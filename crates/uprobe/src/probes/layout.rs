//! The places of an object's maps in one process, for the translator.

use super::store;
use crate::{
    object::LoadedObject,
    translate::{self, MapLayout, MapPlace},
};

/// Places of maps.
pub(super) struct Layout<'a> {
    pub(super) object: &'a LoadedObject,
    /// The place of a map by its file descriptor, if it is in the process.
    pub(super) place: &'a dyn Fn(i32) -> Option<MapPlace>,
    /// The address of the descriptor of the ring for lines of text.
    pub(super) trace_ring: Option<u64>,
}

impl MapLayout for Layout<'_> {
    fn place(&self, fd: i32) -> translate::Result<MapPlace> {
        if let Some(place) = (self.place)(fd) {
            return Ok(place);
        }
        let map = self.object.map(fd);
        Err(translate::Error::UnsupportedMap {
            map: map.map_or_else(|| fd.to_string(), |map| map.name.clone()),
            kind: map.map_or_else(|| "none".to_owned(), |map| store::kind_name(map.kind)),
        })
    }

    fn trace_ring(&self) -> Option<u64> {
        self.trace_ring
    }
}
