//! Attachments of programs: links, and perf events that got their program by ioctl, without a link (as bcc and older
//! versions of bpftrace attach). Attachments by netlink, to sockets and to control groups without a link are not listed.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, OsString, c_char},
    fs,
    os::fd::{AsFd as _, FromRawFd as _, OwnedFd},
};

use libbpf_rs::{
    libbpf_sys as sys,
    query::{LinkInfo, LinkTypeInfo, PerfEventType},
};

/// A program at a place where it runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attachment {
    /// The kernel's number of the program.
    pub program: u32,
    /// The kernel's number of the link; `None` if there is no link.
    pub link: Option<u32>,
    /// Kind and target, without what differs from one start of a tool to the next: `tracepoint sys_enter`.
    pub place: String,
}

/// Bytes of the longest name of a target: a path.
const LONGEST_NAME: usize = 4096;
/// A perf event among the open files of a process.
const PERF_EVENT: &str = "anon_inode:[perf_event]";

/// Every link in the kernel, by id. Empty without the privilege to ask.
pub fn links() -> Vec<Attachment> {
    let mut links = Vec::new();
    let mut id = 0;
    // SAFETY: the number outlives the call, which writes the next one there.
    while unsafe { sys::bpf_link_get_next_id(id, &raw mut id) } == 0 {
        // SAFETY: takes no pointer.
        let answer = unsafe { sys::bpf_link_get_fd_by_id(id) };
        if answer < 0 {
            // Closed meanwhile.
            continue;
        }
        // SAFETY: not negative, it is a descriptor that the kernel opened for this call alone.
        let link = unsafe { OwnedFd::from_raw_fd(answer) };
        if let Ok(info) = LinkInfo::from_fd(link.as_fd()) {
            links.push(Attachment {
                program: info.prog_id,
                link: Some(info.id),
                place: place(&info.info),
            });
        }
    }
    links
}

/// The perf events of a process that have a program; whether by a link or by ioctl is not shown.
pub fn perf_events(pid: u32) -> Vec<Attachment> {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    let events = open.into_iter().flatten().flatten().filter(|file| {
        fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == PERF_EVENT)
    });
    events
        .filter_map(|file| perf_event(pid, file.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// One of them; `None` if no program is there: a buffer, say.
fn perf_event(pid: u32, file: i32) -> Option<Attachment> {
    let mut name = [0 as c_char; LONGEST_NAME];
    let mut length = LONGEST_NAME as u32;
    let (mut program, mut kind, mut offset, mut address) = (0, 0, 0, 0);
    // SAFETY: all that the kernel writes to outlives the call, and the buffer is as long as is said.
    let answer = unsafe {
        sys::bpf_task_fd_query(
            pid.cast_signed(),
            file,
            0,
            name.as_mut_ptr(),
            &raw mut length,
            &raw mut program,
            &raw mut kind,
            &raw mut offset,
            &raw mut address,
        )
    };
    if answer < 0 {
        return None;
    }
    // SAFETY: the kernel ends the name with a zero, and the buffer was all zeroes.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
    let function = if name.is_empty() {
        format!("{address:#x}")
    } else {
        name.to_string()
    };
    let place = match kind {
        sys::BPF_FD_TYPE_RAW_TRACEPOINT => format!("raw_tp {name}"),
        sys::BPF_FD_TYPE_TRACEPOINT => format!("tracepoint {name}"),
        sys::BPF_FD_TYPE_KPROBE => format!("kprobe {function}+{offset}"),
        sys::BPF_FD_TYPE_KRETPROBE => format!("kretprobe {function}"),
        sys::BPF_FD_TYPE_UPROBE => format!("uprobe {name}:{offset:#x}"),
        sys::BPF_FD_TYPE_URETPROBE => format!("uretprobe {name}:{offset:#x}"),
        _ => "perf event".to_owned(),
    };
    Some(Attachment {
        program,
        link: None,
        place,
    })
}

/// Kind and target of a link. Numbers of control groups, processes and maps are left out: those are new with each start.
fn place(link: &LinkTypeInfo) -> String {
    let text = |name: &Option<OsString>| {
        let name = name.as_ref().map(|name| name.to_string_lossy());
        name.map_or_else(|| "?".to_owned(), |name| name.into_owned())
    };
    match link {
        LinkTypeInfo::RawTracepoint(link) => format!("raw_tp {}", link.name),
        LinkTypeInfo::Tracing(link) => format!(
            "{:?} of BTF {}:{}",
            link.attach_type, link.target_obj_id, link.target_btf_id
        ),
        LinkTypeInfo::Cgroup(link) => format!("cgroup {:?}", link.attach_type),
        LinkTypeInfo::Iter(link) => format!("iterator {}", link.target_name.to_string_lossy()),
        LinkTypeInfo::NetNs(link) => format!("network namespace {:?}", link.attach_type),
        LinkTypeInfo::Xdp(link) => format!("xdp on interface {}", link.ifindex),
        LinkTypeInfo::StructOps(_) => "struct_ops".to_owned(),
        LinkTypeInfo::Netfilter(link) => {
            format!("netfilter {}:{}", link.protocol_family, link.hooknum)
        }
        LinkTypeInfo::KprobeMulti(link) => format!(
            "kprobe.multi of {} functions, flags {}",
            link.count, link.flags
        ),
        LinkTypeInfo::UprobeMulti(link) => {
            let path = link.path.as_ref().map(|path| path.clone().into_os_string());
            format!("uprobe.multi at {} places of {}", link.count, text(&path))
        }
        LinkTypeInfo::Tcx(link) => format!("{:?} on interface {}", link.attach_type, link.ifindex),
        LinkTypeInfo::Netkit(link) => {
            format!("{:?} on interface {}", link.attach_type, link.ifindex)
        }
        LinkTypeInfo::SockMap(link) => format!("sockmap {:?}", link.attach_type),
        LinkTypeInfo::PerfEvent(link) => match &link.event_type {
            PerfEventType::Tracepoint { name, .. } => format!("tracepoint {}", text(name)),
            PerfEventType::Kprobe {
                func_name,
                is_retprobe,
                addr,
                offset,
                ..
            } => {
                let function = match func_name {
                    Some(_) => text(func_name),
                    None => format!("{addr:#x}"),
                };
                if *is_retprobe {
                    format!("kretprobe {function}")
                } else {
                    format!("kprobe {function}+{offset}")
                }
            }
            PerfEventType::Uprobe {
                file_name,
                is_retprobe,
                offset,
                ..
            } => {
                let kind = if *is_retprobe { "uretprobe" } else { "uprobe" };
                format!("{kind} {}:{offset:#x}", text(file_name))
            }
            PerfEventType::Event {
                config, event_type, ..
            } => format!("perf event {event_type}:{config:#x}"),
            PerfEventType::Unknown(_) => "perf event".to_owned(),
        },
        LinkTypeInfo::Unknown => "a link of a kind that is not known here".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attach::{AttachMethod, Counter, CounterBody},
        require,
    };

    #[test]
    fn a_link_is_listed_while_it_is_there() {
        if !require::host() {
            return;
        }
        let event = "raw_syscalls:sys_enter";
        let counter = Counter::load(AttachMethod::Tracepoint, event, CounterBody::Null);
        let mut counter = counter.expect("a program");
        let known: Vec<Option<u32>> = links().iter().map(|one| one.link).collect();
        counter.attach().expect("attaching");
        let new = |all: Vec<Attachment>| {
            let new = all.into_iter().filter(|one| !known.contains(&one.link));
            new.collect::<Vec<_>>()
        };
        let there = new(links());
        let link = there
            .iter()
            .find(|one| one.place == "tracepoint sys_enter")
            .unwrap_or_else(|| panic!("{there:?}"));
        // The same program, by the perf event that the link is of.
        let events = perf_events(std::process::id());
        assert!(
            events.iter().any(|event| event.program == link.program
                && event.place == link.place
                && event.link.is_none()),
            "{events:?}"
        );
        counter.detach().expect("detaching");
        let left = new(links());
        assert!(!left.iter().any(|one| one.link == link.link), "{left:?}");
    }
}
