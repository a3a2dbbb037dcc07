//! A function of a file in another process.

use super::{image::Function, maps::Mapping};

impl Mapping {
    /// Returns how far this mapping of a file is from another one of the same bytes, in another process: what is executed there
    /// is executed here at an address that is so much higher.
    pub fn shift_from(&self, other: &Mapping) -> u64 {
        let start = |mapping: &Mapping| mapping.start.wrapping_sub(mapping.offset);
        start(self).wrapping_sub(start(other))
    }
}

impl Function {
    /// The same function where its file is mapped so much higher ([`Mapping::shift_from`]).
    #[must_use]
    pub fn shifted(&self, by: u64) -> Self {
        let entrances = self.entrances.iter();
        Function {
            address: self.address.wrapping_add(by),
            entrances: entrances.map(|one| one.wrapping_add(by)).collect(),
            ..self.clone()
        }
    }
}
