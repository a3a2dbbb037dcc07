//! Which map a lookup is in, where that can be seen in the instructions before it.

use super::instruction::{Instruction, class, jump, mode, pseudo};
use super::{alu_is_move, function::each};

/// R1 of `bpf_map_lookup_elem`.
const MAP_ARGUMENT: u8 = 1;
const MAP_LOOKUP_ELEM: i32 = 1;

/// Knowledge about the map of one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MapUse {
    /// Nothing.
    #[default]
    Unknown,
    /// A lookup in the map of this file descriptor, which R1 holds the handle of.
    Lookup { fd: i32 },
    /// A lookup whose R1 was loaded for it alone.
    SoleLookup { fd: i32 },
    /// The load of R1 for such a lookup.
    SoleLoad,
}

/// The uses by instruction. Lookups follow the load of their map within a few instructions, as compilers write them;
/// where a jump leads in between, nothing is known, and the lookup is called.
pub(crate) fn map_uses(program: &[Instruction]) -> Vec<MapUse> {
    let mut uses = vec![MapUse::Unknown; program.len()];
    let targets = jump_targets(program);
    // By register: the map's file descriptor; and of R1, the load that nothing has used since.
    let mut maps: [Option<i32>; 16] = [None; 16];
    let mut sole_load: Option<usize> = None;
    for (index, &instruction) in each(program) {
        if targets[index] {
            maps = [None; 16];
            sole_load = None;
        }
        let is_load = instruction.is_wide() && instruction.src == pseudo::MAP_FD;
        if instruction.is_call() {
            let fd = maps[usize::from(MAP_ARGUMENT)];
            if let (0, MAP_LOOKUP_ELEM, Some(fd)) = (instruction.src, instruction.immediate, fd) {
                uses[index] = MapUse::Lookup { fd };
                if let Some(load) = sole_load {
                    uses[index] = MapUse::SoleLookup { fd };
                    uses[load] = MapUse::SoleLoad;
                }
            }
            maps[..6].fill(None);
            sole_load = None;
            continue;
        }
        if instruction.is_jump_class() {
            maps = [None; 16];
            sole_load = None;
            continue;
        }
        let reads_argument = reads(instruction, MAP_ARGUMENT);
        if reads_argument {
            sole_load = None;
        }
        if let Some(written) = written(instruction) {
            let source = maps[usize::from(instruction.src)];
            let moved = source.filter(|_| alu_is_move(instruction));
            maps[usize::from(written)] = moved;
            if written == MAP_ARGUMENT {
                sole_load = None;
            }
        }
        if is_load {
            maps[usize::from(instruction.dst)] = Some(instruction.immediate);
            if instruction.dst == MAP_ARGUMENT {
                sole_load = Some(index);
            }
        }
    }
    uses
}

/// Returns where jumps, calls and callbacks lead to, by instruction.
pub(super) fn jump_targets(program: &[Instruction]) -> Vec<bool> {
    let mut targets = vec![false; program.len()];
    for (index, &instruction) in each(program) {
        let callee = super::function::callee(instruction).map(i64::from);
        for distance in [instruction.jump_distance(), callee].into_iter().flatten() {
            let target = usize::try_from(index as i64 + 1 + distance);
            if let Some(target) = target.ok().and_then(|target| targets.get_mut(target)) {
                *target = true;
            }
        }
        // Behind an exit or a jump there is another path.
        let leaves = instruction.is_exit()
            || instruction.operation() == jump::JA && instruction.is_jump_class();
        if let (true, Some(next)) = (leaves, targets.get_mut(index + 1)) {
            *next = true;
        }
    }
    targets
}

/// The register that an instruction other than a call writes.
fn written(instruction: Instruction) -> Option<u8> {
    match instruction.class() {
        class::ALU | class::ALU64 | class::LDX | class::LD => Some(instruction.dst),
        // Fetching atomics write their source; a load-acquire its destination, which no map is in either way.
        class::STX if instruction.mode() == mode::ATOMIC => Some(instruction.src),
        _ => None,
    }
}

fn reads(instruction: Instruction, register: u8) -> bool {
    match instruction.class() {
        class::LD => false,
        class::LDX => instruction.src == register,
        class::ST => instruction.dst == register,
        class::ALU | class::ALU64 => {
            let is_move = alu_is_move(instruction);
            let source = instruction.has_register_operand() && instruction.src == register;
            source || !is_move && instruction.dst == register
        }
        _ => instruction.src == register || instruction.dst == register,
    }
}
