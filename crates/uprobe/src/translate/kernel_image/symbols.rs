//! The kernel's functions by address, and its layout of arrays.

use std::{collections::HashMap, fs};

use libbpf_rs::btf::{Btf, types};

use crate::translate::{Error, error::Result, helper_id};

const SYMBOLS: &str = "/proc/kallsyms";

/// Functions that the kernel calls directly instead of a helper, and the helper.
const DIRECT_CALLS: &[(&str, &str)] = &[
    ("array_map_lookup_elem", "map_lookup_elem"),
    ("array_map_update_elem", "map_update_elem"),
    ("array_map_delete_elem", "map_delete_elem"),
];

/// The functions that a program's machine code may refer to, by address.
#[derive(Debug)]
pub(super) struct Symbols {
    names: HashMap<u64, String>,
}

impl Symbols {
    pub(super) fn read() -> Result<Self> {
        let text = fs::read_to_string(SYMBOLS)
            .map_err(|error| Error::KernelImage(format!("{SYMBOLS}: {error}")))?;
        let mut names = HashMap::new();
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(_), Some(name)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let is_wanted =
                name.ends_with("return_thunk") || name.contains("bpf_") || helper(name).is_some();
            if let (true, Ok(address)) = (is_wanted, u64::from_str_radix(address, 16)) {
                names.insert(address, name.to_owned());
            }
        }
        if names.keys().all(|address| *address == 0) {
            let why = format!("{SYMBOLS} has no addresses: root is needed");
            return Err(Error::KernelImage(why));
        }
        Ok(Symbols { names })
    }

    pub(super) fn name(&self, address: u64) -> Option<&str> {
        self.names.get(&address).map(String::as_str)
    }
}

/// The id of the helper that a kernel function is.
pub(super) fn helper(name: &str) -> Option<u32> {
    let direct = DIRECT_CALLS.iter().find(|(function, _)| *function == name);
    let name = direct.map_or_else(|| name.strip_prefix("bpf_"), |(_, helper)| Some(helper));
    name.and_then(helper_id)
}

/// Returns where the values begin in `struct bpf_array`: its last member.
pub(super) fn array_values_offset() -> Result<u64> {
    let failed = |why: String| Error::KernelImage(format!("the kernel's BTF: {why}"));
    let btf = Btf::from_vmlinux().map_err(|error| failed(error.to_string()))?;
    let array = btf.type_by_name::<types::Struct<'_>>("bpf_array");
    match array.and_then(|array| array.iter().last().map(|member| member.attr)) {
        Some(types::MemberAttr::Normal { offset }) => Ok(u64::from(offset) / 8),
        _ => Err(failed("it has no struct bpf_array".to_owned())),
    }
}
