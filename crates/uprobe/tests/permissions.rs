//! Who may probe what: tools without privilege, protected processes, other architectures and namespaces. What is refused
//! is refused with the reason, and the process goes on as it was.

mod common;

use bpfcost_uprobe::process::{Error, Function, Image, Memory, Probe, Remote, Runtime, Stopped};
use common::{Binary, Target, program, require, wait_until};
use std::{
    fs,
    process::{Command, Stdio},
};

/// The process that a tool attaches to.
const TARGET: &str = "BPFCOST_UPROBE_TARGET";
/// A user who owns nothing, as setpriv has it.
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

fn function(pid: i32, name: &str) -> Result<Function, Error> {
    Image::of_program(pid)?.function(name)
}

/// Attaches to `work` of a process, and detaches after some calls.
fn probe(pid: i32) -> Result<(), Error> {
    let work = function(pid, "work")?;
    let mut runtime = Runtime::open(pid)?;
    let empty = program::empty(&mut runtime);
    let probe = Probe {
        function: &work,
        entry: Some(empty),
        returns: Some(empty),
        inside: &[],
    };
    let attachment = runtime.attach(&[probe])?;
    wait_until(|| runtime.hits(&attachment)[0].returns.hits > 100);
    runtime.detach(attachment).map(drop)
}

#[test]
#[ignore = "is the tool that other tests start with less privilege"]
fn attach_once() {
    let pid = std::env::var(TARGET).unwrap().parse().unwrap();
    match probe(pid) {
        Ok(()) => println!("probed"),
        Err(error) => println!("refused: {error}"),
    }
}

/// Who a tool is.
#[derive(Clone, Copy, Debug)]
enum User {
    /// Root with all capabilities but CAP_SYS_PTRACE.
    RootWithoutPtrace,
    /// Another user, with CAP_SYS_PTRACE and CAP_DAC_OVERRIDE alone.
    NobodyWithBoth,
    NobodyWithPtrace,
    Nobody,
}

/// Returns what this program says as a tool that attaches to a process.
fn tool(user: User, pid: i32) -> String {
    let (is_root, capabilities) = match user {
        User::RootWithoutPtrace => (true, "-sys_ptrace"),
        User::NobodyWithBoth => (false, "-all,+sys_ptrace,+dac_override"),
        User::NobodyWithPtrace => (false, "-all,+sys_ptrace"),
        User::Nobody => (false, "-all"),
    };
    let mut command = Command::new("setpriv");
    if !is_root {
        command.args(NOBODY);
        command.arg(format!("--ambient-caps={capabilities}"));
    }
    // The build folder may be closed to others: they get the program as an open file.
    let program = fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let output = command
        .arg(format!("--bounding-set={capabilities}"))
        .arg(format!("--inh-caps={capabilities}"))
        .args(["/proc/self/fd/0", "--exact", "attach_once"])
        .args(["--ignored", "--nocapture"])
        .stdin(program)
        .env(TARGET, pid.to_string())
        .output()
        .expect("setpriv runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    text
}

/// A process that works, and is to be as it was in the end.
struct Untouched {
    process: Target,
    work: Function,
    memory: Memory,
    _binary: Binary,
}

impl Untouched {
    fn start(starter: &[&str], mode: &str) -> Self {
        let binary = Binary::compile("busy.c", &[]);
        let process = binary.start_by(starter, &["2", mode]);
        Untouched {
            work: function(process.pid(), "work").unwrap(),
            memory: Memory::open(process.pid()).unwrap(),
            process,
            _binary: binary,
        }
    }

    /// A tool of that user is refused, for this reason.
    #[track_caller]
    fn refuses(&self, user: User, reason: &str) {
        let pid = self.process.pid();
        let text = tool(user, pid);
        let expected = format!("refused: no permission to trace process {pid}: {reason}");
        assert!(text.contains(&expected), "{user:?}: {text}");
        let way_out = "\n  run as root, or with CAP_SYS_PTRACE (and CAP_DAC_OVERRIDE";
        assert!(text.contains(way_out), "{text}");
        self.is_as_before();
    }

    #[track_caller]
    fn lets(&self, user: User) {
        let text = tool(user, self.process.pid());
        assert!(text.contains("probed\n"), "{user:?}: {text}");
        self.is_as_before();
    }

    /// Nobody traces it, and its threads call an unchanged function.
    fn is_as_before(&self) {
        self.work.check(&self.memory).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid())).unwrap();
        assert!(status.contains("TracerPid:\t0\n"), "{status}");
        let calls = || self.memory.read_u64(self.process.address(0)).unwrap();
        let before = calls();
        wait_until(|| calls() > before);
    }

    fn ends_well(mut self) {
        self.is_as_before();
        assert_eq!(self.process.stop().1, 0);
    }
}

#[test]
fn without_privilege_the_reason_is_named() {
    let process = Untouched::start(&[], "");
    process.refuses(User::Nobody, "it belongs to another user\n");
    // It may trace the process, but not open its memory.
    process.refuses(User::NobodyWithPtrace, "it belongs to another user\n");
    process.refuses(
        User::RootWithoutPtrace,
        "it has capabilities that this process lacks\n",
    );
    process.ends_well();
}

#[test]
fn two_capabilities_are_enough() {
    let process = Untouched::start(&[], "");
    process.lets(User::NobodyWithBoth);
    process.ends_well();
}

/// Yama's earlier setting, which is put back in the end.
struct Scope(String);

impl Drop for Scope {
    fn drop(&mut self) {
        fs::write(YAMA, &self.0).expect("root may write it");
    }
}

#[test]
fn a_users_own_process_is_probed_unless_yama_forbids_it() {
    let starter = [&["setpriv"], &NOBODY[..]].concat();
    let process = Untouched::start(&starter, "");
    let Ok(before) = fs::read_to_string(YAMA) else {
        process.lets(User::Nobody);
        process.ends_well();
        return require::skip_as("features", "the kernel has no Yama to forbid it");
    };
    let _scope = Scope(before);
    for (scope, reason) in [
        ("0", None),
        (
            "1",
            Some(
                "it is no child of this one, and Yama forbids the others (kernel.yama.ptrace_scope is 1)\n",
            ),
        ),
        ("2", Some("Yama forbids it (kernel.yama.ptrace_scope)\n")),
    ] {
        fs::write(YAMA, scope).expect("root may write it");
        match reason {
            Some(reason) => process.refuses(User::Nobody, reason),
            None => process.lets(User::Nobody),
        }
        process.lets(User::NobodyWithPtrace);
    }
    process.ends_well();
}

#[test]
fn a_seccomp_filter_is_suspended_by_root_alone() {
    let process = Untouched::start(&[], "p");
    let text = tool(User::NobodyWithBoth, process.process.pid());
    assert!(
        text.contains("runs under seccomp, which can't be suspended: "),
        "{text}"
    );
    assert!(text.contains("\n  run as root\n"), "{text}");
    process.ends_well();
}

#[test]
fn a_32_bit_process_is_refused() {
    let binary = Binary::compile("old.S", &["-m32", "-nostdlib", "-static", "-no-pie"]);
    // A kernel without IA32_EMULATION starts none.
    if let Err(error) = Command::new(binary.path()).stdin(Stdio::null()).output() {
        return require::skip_as(
            "features",
            format!("32-bit programs don't run here: {error}"),
        );
    }
    let mut process = binary.start(&[]);
    let pid = process.pid();
    let refused = |error: Error| {
        let text =
            format!("process {pid} is not a 64-bit x86 process\n  use a kernel uprobe for it");
        assert_eq!(error.to_string(), text);
    };
    refused(Image::of_program(pid).unwrap_err());
    refused(Runtime::open(pid).unwrap_err());
    // It waits in read(2), which goes on.
    let memory = Memory::open(pid).unwrap();
    let stopped = Stopped::all(pid).unwrap();
    refused(Remote::new(&stopped, &memory).unwrap_err());
    drop(stopped);
    assert_eq!(process.stop(), (1, 0));
}

#[test]
fn a_process_of_another_pid_namespace_is_probed() {
    let binary = Binary::compile("busy.c", &[]);
    let starter = ["unshare", "--pid", "--fork", "--kill-child"];
    let mut process = binary.start_by(&starter, &["2", "ct"]);
    let id = process.pid();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let pid = children.trim().parse().unwrap();
    for _ in 0..3 {
        probe(pid).unwrap();
    }
    let work = function(pid, "work").unwrap();
    work.check(&Memory::open(pid).unwrap()).unwrap();
    assert_eq!(process.stop().1, 0);
}
