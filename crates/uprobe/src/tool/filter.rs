//! The filter under which a tool runs: which of its system calls the supervisor sees.

use std::os::raw::c_int;

use libbpf_rs::libbpf_sys as sys;

/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;
/// Places in `struct seccomp_data`: the call's number, the architecture, and the lower half of an argument.
const NUMBER: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS: u32 = 16;

/// The calls' numbers in programs of 32 bits, and the mark of calls with pointers of 32 bits.
const NUMBERS_32: [u32; 4] = [21, 336, 357, libc::SYS_fsopen as u32];
const X32: u32 = 1 << 30;
/// The error of such calls: `EOPNOTSUPP`.
const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;

/// Calls that are shown whatever their arguments are.
const SHOWN: [u32; 3] = [
    libc::SYS_perf_event_open as u32,
    libc::SYS_mount as u32,
    libc::SYS_fsopen as u32,
];

/// `PERF_EVENT_IOC_SET_BPF`.
pub(super) const SET_BPF: u32 = 0x4004_2408;

/// Commands of `bpf` that make, fill, or attach something.
pub(super) const COMMANDS: [u32; 16] = [
    sys::BPF_MAP_CREATE,
    sys::BPF_MAP_LOOKUP_ELEM,
    sys::BPF_MAP_UPDATE_ELEM,
    sys::BPF_MAP_DELETE_ELEM,
    sys::BPF_MAP_GET_NEXT_KEY,
    sys::BPF_MAP_LOOKUP_AND_DELETE_ELEM,
    sys::BPF_MAP_LOOKUP_BATCH,
    sys::BPF_MAP_LOOKUP_AND_DELETE_BATCH,
    sys::BPF_MAP_UPDATE_BATCH,
    sys::BPF_MAP_DELETE_BATCH,
    sys::BPF_PROG_LOAD,
    sys::BPF_PROG_ATTACH,
    sys::BPF_PROG_TEST_RUN,
    sys::BPF_RAW_TRACEPOINT_OPEN,
    sys::BPF_LINK_CREATE,
    sys::BPF_LINK_UPDATE,
];

/// The filter: all calls pass but those that it shows to the supervisor.
pub(super) fn program() -> Vec<libc::sock_filter> {
    let shown = |values: &[u32]| equal_any(values, libc::SECCOMP_RET_USER_NOTIF);
    let set_bpf = shown(&[SET_BPF]);
    let commands = shown(&COMMANDS);
    // Programs of 32 bits: calls that are answered of others fail.
    let old = equal_any(&NUMBERS_32, REFUSED);
    let past_old = u8::try_from(old.len() + 1).expect("the calls are few");
    let mut program = vec![
        load(ARCHITECTURE_AT),
        jump(ARCHITECTURE, past_old, 0),
        load(NUMBER),
    ];
    program.extend(old);
    program.push(load(NUMBER));
    let answers = [(0, libc::SECCOMP_RET_USER_NOTIF), (X32, REFUSED)];
    for (mark, verdict) in answers {
        for call in SHOWN {
            program.extend([jump(mark | call, 0, 1), answer(verdict)]);
        }
    }
    program.extend([jump(X32 | libc::SYS_bpf as u32, 0, 1), answer(REFUSED)]);
    for (call, argument, values) in [(libc::SYS_ioctl, 1, set_bpf), (libc::SYS_bpf, 0, commands)] {
        // Past the argument's load, and past its values.
        let past = u8::try_from(values.len() + 1).expect("the values are few");
        program.push(jump(call as u32, 0, past));
        program.push(load(ARGUMENTS + 8 * argument));
        program.extend(values);
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program
}

/// The end for a word that was loaded: `verdict` if it is one of these, or else allowed.
fn equal_any(values: &[u32], verdict: u32) -> Vec<libc::sock_filter> {
    let mut code = Vec::new();
    for (index, &value) in values.iter().enumerate() {
        // To what is behind the values, and the one that allows.
        let left = u8::try_from(values.len() - index).expect("the values are few");
        code.push(jump(value, left, 0));
    }
    code.push(answer(libc::SECCOMP_RET_ALLOW));
    code.push(answer(verdict));
    code
}

fn instruction(code: c_int, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    let code = u16::try_from(code).expect("codes have 16 bits");
    libc::sock_filter { code, jt, jf, k }
}

fn load(at: u32) -> libc::sock_filter {
    let code = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    instruction(code as c_int, 0, 0, at)
}

fn jump(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    instruction(code as c_int, yes, no, value)
}

fn answer(answer: u32) -> libc::sock_filter {
    instruction((libc::BPF_RET | libc::BPF_K) as c_int, 0, 0, answer)
}
