//! Filters of system calls (seccomp), and which of the calls that probes make they let pass.
//!
//! A process may have filters that probes never notice: those of containers deny `bpf` and `ptrace`, and not `gettid`. So
//! each filter is run here for each of those calls. What a filter decides by what is not known here, such as a pointer, may
//! be anything; then, and where a filter can't be read, the call counts as one that may not pass.

use super::{
    error::Result,
    stopped::{Stopped, has_seccomp, is_filtered},
};
use libc::sock_filter;

/// A system call, and its arguments that are always the same.
#[derive(Clone, Copy)]
struct Call {
    name: &'static str,
    number: i64,
    arguments: [Option<u64>; 6],
}

const fn call(name: &'static str, number: i64) -> Call {
    with(name, number, [None; 6])
}

const fn with(name: &'static str, number: i64, arguments: [Option<u64>; 6]) -> Call {
    Call {
        name,
        number,
        arguments,
    }
}

/// Calls by which helpers ask who the thread is, what the time is, and whether a holder of a lock is there (`blob/`).
const ASK: [Call; 9] = [
    call("gettid", libc::SYS_gettid),
    call("getpid", libc::SYS_getpid),
    call("getuid", libc::SYS_getuid),
    call("getgid", libc::SYS_getgid),
    call("clock_gettime", libc::SYS_clock_gettime),
    call("sched_yield", libc::SYS_sched_yield),
    call("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    with(
        "kill",
        libc::SYS_kill,
        [None, Some(0), None, None, None, None],
    ),
    with(
        "prctl",
        libc::SYS_prctl,
        [Some(libc::PR_GET_NAME as u64), None, None, None, None, None],
    ),
];

/// Calls by which memory is read that may not be there (`blob/guard.h`, `blob/memory.h`, [`super::guard`]).
const READ: [Call; 5] = [
    call("process_vm_readv", libc::SYS_process_vm_readv),
    call("rt_sigaction", libc::SYS_rt_sigaction),
    call("sigaltstack", libc::SYS_sigaltstack),
    call("rt_sigreturn", libc::SYS_rt_sigreturn),
    call("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
];

/// Calls by which a forked child takes memory (`trampoline/child.rs`).
const FOLLOW: [Call; 1] = [with(
    "mremap",
    libc::SYS_mremap,
    [
        None,
        Some(0),
        None,
        Some((libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64),
        None,
        None,
    ],
)];

/// System calls that a process's filters may not let pass: the first of each group, where there is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Denied {
    /// The one of those that helpers and probes make to ask who and when.
    pub ask: Option<&'static str>,
    /// The one of those that read memory, and of the former.
    pub read: Option<&'static str>,
    /// The one of those by which forked children are followed, and of the first.
    pub follow: Option<&'static str>,
}

impl Denied {
    /// Those of a process. It is stopped for a moment if it has filters, by this process itself: nothing of it is changed, so
    /// that it may go on at any time.
    pub fn find(pid: i32) -> Result<Self> {
        if !has_seccomp(pid)? {
            return Ok(Denied::default());
        }
        let stopped = Stopped::all(pid)?;
        let mut filters = Some(Vec::new());
        for thread in stopped.threads().filter(|&one| is_filtered(one)) {
            match (&mut filters, stopped.filters(thread)) {
                (Some(all), Some(more)) => all.extend(more),
                _ => filters = None,
            }
        }
        Ok(Denied::by(filters.as_deref()))
    }

    /// Those of these filters; `None` where they can't be read.
    fn by(filters: Option<&[Vec<sock_filter>]>) -> Self {
        let passes =
            |call: &Call| filters.is_some_and(|all| all.iter().all(|one| lets_pass(one, call)));
        let first = |calls: &[Call]| calls.iter().find(|call| !passes(call)).map(|one| one.name);
        let ask = first(&ASK);
        Denied {
            ask,
            read: ask.or_else(|| first(&READ)),
            follow: ask.or_else(|| first(&FOLLOW)),
        }
    }
}

/// Returns whether a filter has a call made, which is then seen by no one.
fn lets_pass(filter: &[sock_filter], call: &Call) -> bool {
    let action = answer(filter, call).map(|answer| answer & libc::SECCOMP_RET_ACTION_FULL);
    action == Some(libc::SECCOMP_RET_ALLOW)
}

/// `AUDIT_ARCH_X86_64`.
const ARCH: u32 = 0xc000_003e;
/// The bytes of `struct seccomp_data`: number, architecture, instruction pointer, arguments.
const DATA: u32 = 64;

/// A number, if it is known.
type Number = Option<u32>;

/// The filter's answer to a call; `None` if it depends on what is not known.
fn answer(filter: &[sock_filter], call: &Call) -> Number {
    let (mut a, mut x): (Number, Number) = (Some(0), Some(0));
    let mut memory: [Number; 16] = [Some(0); 16];
    let mut at = 0;
    loop {
        let one = filter.get(at)?;
        at += 1;
        let (code, k) = (u32::from(one.code), one.k);
        let operand = if code & libc::BPF_X == 0 { Some(k) } else { x };
        let word = memory.get_mut(k as usize);
        match code & 7 {
            libc::BPF_RET if code & 0x18 == libc::BPF_A => return a,
            libc::BPF_RET => return Some(k),
            libc::BPF_ST => *word? = a,
            libc::BPF_STX => *word? = x,
            libc::BPF_MISC if code & 0xf8 == libc::BPF_TXA => a = x,
            libc::BPF_MISC => x = a,
            class @ (libc::BPF_LD | libc::BPF_LDX) => {
                let value = match code & 0xe0 {
                    libc::BPF_IMM => Some(k),
                    libc::BPF_ABS => load(k, call),
                    libc::BPF_MEM => *word?,
                    libc::BPF_LEN => Some(DATA),
                    _ => None,
                };
                *(if class == libc::BPF_LD {
                    &mut a
                } else {
                    &mut x
                }) = value;
            }
            libc::BPF_ALU => a = compute(code & 0xf0, a, operand),
            // A jump.
            _ if code & 0xf0 == libc::BPF_JA => at += k as usize,
            _ => {
                let (a, operand) = (a?, operand?);
                let is_so = match code & 0xf0 {
                    libc::BPF_JEQ => a == operand,
                    libc::BPF_JGT => a > operand,
                    libc::BPF_JGE => a >= operand,
                    libc::BPF_JSET => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if is_so { one.jt } else { one.jf });
            }
        }
    }
}

/// Four bytes of `struct seccomp_data`.
fn load(offset: u32, call: &Call) -> Number {
    match offset {
        0 => Some(call.number as u32),
        4 => Some(ARCH),
        16..DATA if offset.is_multiple_of(4) => {
            let argument = call.arguments[(offset as usize - 16) / 8]?;
            let half = if offset.is_multiple_of(8) { 0 } else { 32 };
            Some((argument >> half) as u32)
        }
        // Where the call is.
        _ => None,
    }
}

fn compute(operation: u32, a: Number, operand: Number) -> Number {
    if operation == libc::BPF_NEG {
        return Some(a?.wrapping_neg());
    }
    let (a, operand) = (a?, operand?);
    match operation {
        libc::BPF_ADD => Some(a.wrapping_add(operand)),
        libc::BPF_SUB => Some(a.wrapping_sub(operand)),
        libc::BPF_MUL => Some(a.wrapping_mul(operand)),
        libc::BPF_DIV => a.checked_div(operand),
        libc::BPF_AND => Some(a & operand),
        libc::BPF_OR => Some(a | operand),
        libc::BPF_XOR => Some(a ^ operand),
        libc::BPF_LSH => a.checked_shl(operand),
        libc::BPF_RSH => a.checked_shr(operand),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
        let code = code as u16;
        sock_filter { code, jt, jf, k }
    }

    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

    /// Lets all calls pass but these, or no others.
    fn filter(calls: &[i64], passes: bool) -> Vec<sock_filter> {
        let mut all = vec![
            one(LOAD, 0, 0, 4),
            one(EQUAL, 1, 0, ARCH),
            one(RETURN, 0, 0, KILL),
            one(LOAD, 0, 0, 0),
        ];
        for (index, &number) in calls.iter().enumerate() {
            let to_last = (calls.len() - index) as u8;
            all.push(one(EQUAL, to_last, 0, number as u32));
        }
        let (others, these) = if passes { (KILL, ALLOW) } else { (ALLOW, KILL) };
        all.extend([one(RETURN, 0, 0, others), one(RETURN, 0, 0, these)]);
        all
    }

    #[test]
    fn calls_are_denied_by_any_filter_and_named() {
        let none = filter(&[libc::SYS_bpf, libc::SYS_ptrace], false);
        assert_eq!(
            Denied::by(Some(std::slice::from_ref(&none))),
            Denied::default()
        );
        let read = filter(&[libc::SYS_process_vm_readv], false);
        let denied = Denied::by(Some(&[none.clone(), read]));
        let expected = Denied {
            read: Some("process_vm_readv"),
            ..Denied::default()
        };
        assert_eq!(denied, expected);
        let numbers = |calls: &[Call]| calls.iter().map(|one| one.number).collect::<Vec<_>>();
        let some = filter(&[numbers(&ASK), numbers(&FOLLOW)].concat(), true);
        let denied = Denied::by(Some(&[some, none]));
        assert_eq!(denied, expected);
        let denied = Denied::by(Some(&[filter(&[libc::SYS_write], true)]));
        let first = Some("gettid");
        let all = Denied {
            ask: first,
            read: first,
            follow: first,
        };
        assert_eq!(denied, all);
        assert_eq!(Denied::by(None), all, "they can't be read");
    }

    #[test]
    fn arguments_decide_only_where_they_are_known() {
        // kill(_, 0) passes, and no other signal.
        let signal = |offset: u32| {
            [
                one(LOAD, 0, 0, offset),
                one(EQUAL, 0, 1, 0),
                one(RETURN, 0, 0, ALLOW),
                one(RETURN, 0, 0, KILL),
            ]
        };
        let kill = ASK.iter().find(|call| call.name == "kill");
        let kill = kill.expect("it is among them");
        assert_eq!(answer(&signal(24), kill), Some(ALLOW));
        // The process's number, and where the call is.
        assert_eq!(answer(&signal(16), kill), None);
        assert_eq!(answer(&signal(8), kill), None);
        // What was loaded first is of no use any more.
        let loads = [
            one(LOAD, 0, 0, 16),
            one(libc::BPF_STX, 0, 0, 3),
            one(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
            one(libc::BPF_LD | libc::BPF_MEM, 0, 0, 3),
            one(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, 0, 0, 40),
            one(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K, 0, 0, 2),
            one(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
        ];
        assert_eq!(answer(&loads, kill), Some(160));
        assert_eq!(answer(&loads[..6], kill), None, "it has no end");
        let shifted = [
            one(libc::BPF_LD | libc::BPF_LEN, 0, 0, 0),
            one(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 0, 0, 32),
            one(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
        ];
        assert_eq!(answer(&shifted, kill), None);
    }
}
