//! Structs of functions that an object fills with its programs, for the kernel to call (struct_ops).

use std::fs;

use bpfcost_uprobe::object::{StructSlot, struct_slots};
use libbpf_rs::{
    Btf, MapType, OpenObject, ReferencesType as _,
    btf::types::{DataSec, MemberAttr, Struct, Var},
};

use super::section::Hook;
use crate::{
    error::{Result, failed},
    program::{ObjectFile, types},
};

/// A program's place in a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) program: String,
    /// The map that libbpf makes of the struct.
    pub(super) map: String,
    /// Type of the struct and the member: `sched_ext_ops.enqueue`.
    pub(super) member: String,
}

/// Programs in structs, in the order of the structs' members.
pub(super) fn placed(file: &ObjectFile, object: &OpenObject) -> Result<Vec<Placed>> {
    let slots = struct_slots(file.bytes());
    let slots = slots.map_err(failed(file.name(), "reading its structs"))?;
    if slots.is_empty() {
        return Ok(Vec::new());
    }
    let btf = types(file, object, "what its structs are")?;
    let placed = slots.into_iter().filter_map(|slot| place(&btf, slot));
    Ok(placed.collect())
}

/// Tells whether a scheduler of BPF programs (sched_ext) decides.
const SCHEDULER_STATE: &str = "/sys/kernel/sched_ext/state";

impl Hook {
    /// True if it is a scheduler's, and the kernel has ended that: one that fails, or lets a task wait for too long.
    pub fn has_lost_its_scheduler(&self) -> bool {
        let mut target = self.target.iter();
        let is_scheduler = target.any(|target| target.starts_with("sched_ext_ops."));
        is_scheduler
            && fs::read_to_string(SCHEDULER_STATE).is_ok_and(|state| state.trim() != "enabled")
    }
}

/// Has those structs made that these programs are in, and no others.
pub(super) fn choose(object: &mut OpenObject, placed: &[Placed]) -> libbpf_rs::Result<()> {
    for mut map in object.maps_mut() {
        if map.map_type() == MapType::StructOps {
            let is_wanted = placed.iter().any(|one| map.name() == one.map.as_str());
            map.set_autocreate(is_wanted)?;
        }
    }
    Ok(())
}

impl Placed {
    /// True if the struct is a congestion control of TCP.
    pub(super) fn is_congestion_control(&self) -> bool {
        self.member.starts_with("tcp_congestion_ops.")
    }
}

fn place(btf: &Btf<'_>, slot: StructSlot) -> Option<Placed> {
    let section = btf.type_by_name::<DataSec<'_>>(&slot.section)?;
    let entry = section.iter().find(|entry| {
        let start = entry.offset as usize;
        (start..start + entry.size).contains(&slot.offset)
    })?;
    let variable = btf.type_by_id::<Var<'_>>(entry.ty)?;
    let kind = variable.referenced_type().skip_mods_and_typedefs();
    let kind = Struct::try_from(kind).ok()?;
    let at = (slot.offset - entry.offset as usize) * 8;
    let mut members = kind.iter();
    let member = members.find(|member| match member.attr {
        MemberAttr::Normal { offset } => offset as usize == at,
        MemberAttr::BitField { .. } => false,
    })?;
    Some(Placed {
        program: slot.program,
        map: variable.name()?.to_string_lossy().into_owned(),
        member: format!(
            "{}.{}",
            kind.name()?.to_string_lossy(),
            member.name?.to_string_lossy()
        ),
    })
}
