//! Rules by which the kernel does not let this process trace another one.

use super::error::Error;
use std::fs;

/// The error, with the rule that probably forbids it.
pub(super) fn refused(pid: i32) -> Error {
    let read =
        |pid: &str| Standing::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?);
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|scope| scope.trim().parse().ok());
    let reason = match (read(&pid.to_string()), read("self")) {
        (Some(process), Some(own)) => reason(process, own, scope),
        _ => OTHERS,
    };
    Error::Permission {
        pid,
        reason: reason.to_owned(),
    }
}

const USER: &str = "it belongs to another user";
const CAPABILITIES: &str = "it has capabilities that this process lacks";
const OTHERS: &str = "it is protected (not dumpable, or by a security module)";

/// Properties of a process that the kernel compares.
#[derive(Clone, Copy)]
struct Standing {
    user: u32,
    capabilities: u64,
}

impl Standing {
    /// That of a process, by its `/proc/PID/status`.
    fn parse(status: &str) -> Option<Self> {
        let value = |key: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            value.split_whitespace().next()
        };
        Some(Standing {
            user: value("Uid")?.parse().ok()?,
            capabilities: u64::from_str_radix(value("CapPrm")?, 16).ok()?,
        })
    }
}

/// `scope` is Yama's, where the kernel has that module.
fn reason(process: Standing, own: Standing, scope: Option<u8>) -> &'static str {
    if process.user != own.user {
        return USER;
    }
    if process.capabilities & !own.capabilities != 0 {
        return CAPABILITIES;
    }
    match scope {
        Some(1) => {
            "it is no child of this one, and Yama forbids the others (kernel.yama.ptrace_scope is 1)"
        }
        Some(2..) => "Yama forbids it (kernel.yama.ptrace_scope)",
        _ => OTHERS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tx\nUid:\t7\t0\t0\t0\nCapInh:\t0\nCapPrm:\t0000000000080001\nCapEff:\t0\n";

    #[test]
    fn the_first_rule_that_forbids_it_is_named() {
        let process = Standing::parse(STATUS).unwrap();
        assert_eq!((process.user, process.capabilities), (7, 0x80001));
        assert!(Standing::parse("Uid:\tx\n").is_none());
        let other = Standing { user: 8, ..process };
        assert_eq!(reason(process, other, Some(1)), USER);
        let weak = Standing {
            capabilities: 1,
            ..process
        };
        assert_eq!(reason(process, weak, Some(1)), CAPABILITIES);
        for (scope, words) in [
            (None, "it is protected"),
            (Some(0), "it is protected"),
            (Some(1), "it is no child of this one, and Yama"),
            (Some(2), "Yama forbids it"),
            (Some(3), "Yama forbids it"),
        ] {
            let reason = reason(weak, process, scope);
            assert!(reason.starts_with(words), "{scope:?}: {reason}");
        }
    }
}
