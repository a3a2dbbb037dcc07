//! Addresses of a program's helpers in the target.

use super::helper_name;

/// The largest id that a table holds; 6.18 knows 211 helpers.
const IDS: usize = 256;

/// The addresses of helpers in the target, by the kernel's ids (`BPF_FUNC_…`). A helper takes up to five arguments
/// and returns as System V functions do; it must touch no vector register.
#[derive(Clone, Debug)]
pub struct HelperTable {
    addresses: Vec<u64>,
}

impl Default for HelperTable {
    fn default() -> Self {
        HelperTable {
            addresses: vec![0; IDS],
        }
    }
}

impl HelperTable {
    /// A table without helpers.
    pub fn new() -> Self {
        HelperTable::default()
    }

    /// Adds a helper, or replaces it.
    ///
    /// # Panics
    ///
    /// At ids from 256, which no kernel has.
    pub fn insert(&mut self, id: u32, address: u64) {
        self.addresses[id as usize] = address;
    }

    /// The address of a helper; `None` where it is not supported.
    pub fn address(&self, id: u32) -> Option<u64> {
        let address = self.addresses.get(id as usize).copied();
        address.filter(|address| *address != 0)
    }

    /// The name of a helper, as the kernel's headers have it.
    pub fn name(id: u32) -> String {
        helper_name::helper_name(id).map_or_else(|| format!("{id}"), |name| format!("bpf_{name}"))
    }
}
