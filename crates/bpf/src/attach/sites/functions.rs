//! Functions of the kernel: kprobes, and programs by trampolines.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::CString,
    fs, io,
    sync::OnceLock,
};

use libbpf_rs::{
    Btf, ReferencesType as _,
    btf::{
        BtfKind, BtfType, TypeId,
        types::{Func, FuncProto},
    },
    libbpf_sys as sys,
};
use nix::unistd::getpgid;

use super::{
    Family, Mechanism, SiteLink,
    programs::{Counted, SitePrograms},
};
use crate::{
    attach::kernel::{
        FprobeTargets, KprobeList, KprobeState, explain, fprobe, left_out, trampolines,
    },
    error::{Result, failed, lacks, unattachable},
    feature::kernel::link_interface,
    mount,
};

/// A system call's function, which this thread calls at will, and others hardly ever.
const WITNESS: &str = "__x64_sys_getpgid";

/// Calls of the witness to see that the program runs.
const CALLS: u64 = 16;

/// Functions beyond those asked for, in place of those that the kernel refuses.
const SPARE: usize = 32;

/// Most arguments of a function that a trampoline takes on every kernel.
const MAX_ARGUMENTS: usize = 6;

/// A function of the kernel that can be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    name: String,
    /// Address in the kernel's list (Linux 6.5).
    address: Option<u64>,
    /// Number in the kernel's BTF, where it has one and a trampoline takes it.
    number: Option<u32>,
}

/// Functions, the witness first.
pub(super) struct Functions {
    mechanism: Mechanism,
    functions: Vec<Function>,
    counted: Counted,
}

impl Functions {
    pub(super) fn find(mechanism: Mechanism, count: usize) -> Result<Self> {
        let fit = fit(mechanism)?;
        let witness = fit.iter().position(|one| one.name == WITNESS);
        let witness = witness.ok_or_else(|| {
            let words = format!("this kernel's {WITNESS} cannot be traced");
            unattachable(mechanism.name(), words)
        })?;
        let functions = if by_type(mechanism) {
            taken(super::spread(fit, witness, count + SPARE), count)?
        } else {
            super::spread(fit, witness, count)
        };
        let mut found = Functions {
            mechanism,
            functions,
            counted: Counted::here()?,
        };
        found.counted.witness = found.witness()?;
        Ok(found)
    }

    /// The address that the program sees at the witness: from a link to it alone.
    fn witness(&self) -> Result<u64> {
        let alone = Functions {
            mechanism: self.mechanism,
            functions: self.functions[..1].to_vec(),
            counted: self.counted,
        };
        let programs = alone.load()?;
        let mut links = Vec::new();
        alone.attach(&programs, &mut links)?;
        alone.fire(&programs, true)?;
        match programs.last() {
            0 => Err(lacks(WITNESS, "run of the program that is attached to it")),
            address => Ok(address),
        }
    }

    /// Functions other than the witness: their numbers in the kernel's BTF.
    fn numbers(&self) -> Vec<u32> {
        let numbers = self.functions.iter().filter_map(|one| one.number);
        numbers.collect()
    }

    fn refused(&self, function: &Function, source: libbpf_rs::Error) -> crate::Error {
        explain(self.mechanism.attach(), &function.name, source)
    }
}

impl Family for Functions {
    fn load(&self) -> Result<SitePrograms> {
        let target = (self.mechanism == Mechanism::Fentry).then_some(WITNESS);
        let mut programs = SitePrograms::load(self.mechanism, target)?;
        if self.mechanism == Mechanism::Fentry {
            programs.load_for(&self.numbers()[1..])?;
        }
        programs.count(self.counted)?;
        Ok(programs)
    }

    fn attach(&self, programs: &SitePrograms, links: &mut Vec<SiteLink>) -> Result<()> {
        let program = programs.program()?;
        let whole = failed(self.mechanism.name(), "attaching it");
        match self.mechanism {
            Mechanism::KprobeMulti => {
                let addresses: Vec<u64> = self
                    .functions
                    .iter()
                    .filter_map(|one| one.address)
                    .collect();
                let link = if addresses.len() == self.functions.len() {
                    fprobe(&program, &FprobeTargets::Addresses(&addresses))
                } else {
                    let names = self.functions.iter().map(|one| one.name.as_str());
                    let names: Vec<CString> = names.flat_map(CString::new).collect();
                    fprobe(&program, &FprobeTargets::Names(&names))
                };
                links.push(SiteLink::Libbpf(link.map_err(whole)?));
            }
            Mechanism::FentryMulti => {
                let expected = self.mechanism.attach().expected();
                let link = trampolines(&program, expected, &self.numbers());
                links.push(SiteLink::Plain(link.map_err(whole)?));
            }
            Mechanism::Fentry => {
                let link = program.attach_trace().map_err(whole)?;
                links.push(SiteLink::Libbpf(link));
                for (function, clone) in self.functions[1..].iter().zip(programs.clones()) {
                    let link = link_interface(clone, 0, sys::BPF_TRACE_FENTRY, 0);
                    let link = link.map_err(|no| {
                        self.refused(function, libbpf_rs::Error::from_raw_os_error(no.errno))
                    })?;
                    links.push(SiteLink::Plain(link));
                }
            }
            _ => {
                for function in &self.functions {
                    let link = program.attach_kprobe(false, &function.name);
                    let link = link.map_err(|source| self.refused(function, source))?;
                    links.push(SiteLink::Libbpf(link));
                }
            }
        }
        Ok(())
    }

    /// Counts in the kernel's list of kprobes, or that of functions at whose entry something is called.
    fn shown(&self, _: &SitePrograms) -> Result<u64> {
        let names: BTreeSet<&str> = self.functions.iter().map(|one| one.name.as_str()).collect();
        let shown = match self.mechanism {
            Mechanism::Kprobe => {
                let kprobes = KprobeList::open()?.read()?.into_iter();
                let kprobes = kprobes.filter(|one| one.state != KprobeState::Off);
                kprobes
                    .filter(|one| names.contains(one.function.as_str()))
                    .count()
            }
            _ => {
                let list = traced("enabled_functions")?;
                let listed = list
                    .lines()
                    .filter_map(|line| line.split_whitespace().next());
                listed.filter(|name| names.contains(name)).count()
            }
        };
        Ok(shown as u64)
    }

    fn fire(&self, _: &SitePrograms, _: bool) -> Result<u64> {
        for _ in 0..CALLS {
            getpgid(None).map_err(failed("getpgid", "calling it"))?;
        }
        Ok(CALLS)
    }
}

/// Returns true if functions are named by their numbers in the kernel's BTF.
fn by_type(mechanism: Mechanism) -> bool {
    matches!(mechanism, Mechanism::Fentry | Mechanism::FentryMulti)
}

/// The first of these functions, as many as that, for which the kernel loads a program. No list names the functions that
/// it refuses.
fn taken(functions: Vec<Function>, count: usize) -> Result<Vec<Function>> {
    let programs = SitePrograms::load(Mechanism::Fentry, Some(WITNESS))?;
    let mut taken = Vec::with_capacity(count);
    for function in functions {
        if taken.len() == count {
            break;
        }
        let is_taken = match function.number {
            _ if function.name == WITNESS => true,
            Some(number) => programs.takes(number)?,
            None => false,
        };
        taken.extend(is_taken.then_some(function));
    }
    if taken.len() < count {
        let words = format!(
            "the kernel takes a program at only {} of the functions tried",
            taken.len()
        );
        return Err(unattachable(Mechanism::Fentry.name(), words));
    }
    Ok(taken)
}

/// The kernel's functions at which that mechanism attaches: with a name of their own, not in a module, neither dangerous
/// nor forbidden. Read once.
pub(super) fn fit(mechanism: Mechanism) -> Result<Vec<Function>> {
    static READ: OnceLock<Vec<Function>> = OnceLock::new();
    let all = match READ.get() {
        Some(all) => all,
        None => {
            let all = read()?;
            READ.get_or_init(|| all)
        }
    };
    let by_type = by_type(mechanism);
    let fit = all.iter().filter(|one| !by_type || one.number.is_some());
    Ok(fit.cloned().collect())
}

fn read() -> Result<Vec<Function>> {
    let listed = match traced("available_filter_functions_addrs") {
        Ok(list) => with_addresses(&list),
        Err(_) => named(&traced("available_filter_functions")?),
    };
    let forbidden = fs::read_to_string(mount::open("debugfs")?.path("kprobes/blacklist"));
    let forbidden = forbidden.unwrap_or_default();
    let forbidden: BTreeSet<&str> = forbidden
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    let numbers = numbers();
    let functions = listed
        .into_iter()
        .filter(|(name, _)| !left_out(name) && !forbidden.contains(name.as_str()));
    Ok(functions
        .map(|(name, address)| Function {
            number: numbers.get(&name).copied(),
            name,
            address,
        })
        .collect())
}

/// A list of tracefs.
fn traced(list: &str) -> Result<String> {
    let text: io::Result<String> = fs::read_to_string(mount::open("tracefs")?.path(list));
    text.map_err(failed(format!("tracefs's {list}"), "reading it"))
}

/// Lines such as `ffffffff81000000 name`.
fn with_addresses(list: &str) -> BTreeMap<String, Option<u64>> {
    once(list.lines().filter_map(|line| {
        let (address, name) = line.split_once(' ')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        Some((name, Some(address)))
    }))
}

/// Lines such as `name`.
fn named(list: &str) -> BTreeMap<String, Option<u64>> {
    once(list.lines().map(|name| (name, None)))
}

/// Those whose name no other one has. Functions of modules, `name [module]`, are left out: they go with their module, and
/// are not in the kernel's BTF.
fn once<'a>(listed: impl Iterator<Item = (&'a str, Option<u64>)>) -> BTreeMap<String, Option<u64>> {
    let mut counted: BTreeMap<&str, (Option<u64>, u32)> = BTreeMap::new();
    for (name, address) in listed {
        counted.entry(name).or_insert((address, 0)).1 += 1;
    }
    let unique = counted
        .into_iter()
        .filter(|(name, (_, count))| *count == 1 && !name.contains(' '));
    unique
        .map(|(name, (address, _))| (name.to_owned(), address))
        .collect()
}

/// The numbers of functions in the kernel's BTF that a trampoline takes on every kernel: with few arguments, each of which
/// fits a register.
fn numbers() -> HashMap<String, u32> {
    let Ok(btf) = Btf::from_vmlinux() else {
        return HashMap::new();
    };
    let in_register = |argument: TypeId| {
        let argument = btf.type_by_id::<BtfType<'_>>(argument);
        argument.is_some_and(|argument| {
            matches!(
                argument.skip_mods_and_typedefs().kind(),
                BtfKind::Int | BtfKind::Ptr | BtfKind::Enum | BtfKind::Enum64
            )
        })
    };
    let function = |number: u32| {
        let function = btf.type_by_id::<Func<'_>>(number.into())?;
        let name = function.name()?.to_str()?.to_owned();
        let signature = FuncProto::try_from(function.referenced_type()).ok()?;
        let fits = signature.len() <= MAX_ARGUMENTS
            && signature.iter().all(|argument| in_register(argument.ty));
        fits.then_some((name, number))
    };
    (1..btf.len() as u32).filter_map(function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_tracefs_are_read() {
        let list = "ffffffff81000010 second\nffffffff81000000 first\nffffffff81000020 twice\n\
                    ffffffff81000030 twice\nffffffffc0000000 far [veth]\n";
        let read: Vec<_> = with_addresses(list).into_iter().collect();
        let expected = [
            ("first", 0xffff_ffff_8100_0000),
            ("second", 0xffff_ffff_8100_0010),
        ];
        assert_eq!(
            read,
            expected.map(|(name, address)| (name.to_owned(), Some(address)))
        );
        let read: Vec<String> = named("b\na\ntwice\ntwice\n").into_keys().collect();
        assert_eq!(read, ["a", "b"]);
    }
}
