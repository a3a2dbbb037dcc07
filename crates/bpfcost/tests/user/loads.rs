//! Processes that are probed.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::tool::Tool;

/// A process that answers each line with one.
pub(crate) struct Lines {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// That of its files.
    folder: Option<Tool>,
}

impl Lines {
    fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Lines {
            input: child.stdin.take().expect("a pipe"),
            child,
            output,
            folder: None,
        }
    }

    /// The program `target` of a folder.
    fn in_folder(folder: Tool) -> Self {
        let mut lines = Lines::spawn(&mut Command::new(folder.path("target"))).ready();
        lines.folder = Some(folder);
        lines
    }

    fn ready(mut self) -> Self {
        assert!(self.line().starts_with("ready"));
        self
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it prints");
        line.trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("it reads");
        self.line()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The target `called.c` of `crates/uprobe`: its function `work` is called by four threads.
pub(crate) struct Called(Lines);

/// The same, which calls as often as a line says.
pub(crate) fn caller() -> Lines {
    let folder = Tool::new();
    let options = ["-O2", "-pthread", "-fno-omit-frame-pointer", "-o", "target"];
    compile(&folder, "called.c", &options);
    Lines::in_folder(folder)
}

impl Called {
    pub(crate) fn start() -> Self {
        Called(caller())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn path(&self) -> PathBuf {
        let folder = self.0.folder.as_ref();
        folder.expect("it was compiled").path("target")
    }

    /// Has it called so often, and does not wait for that.
    pub(crate) fn begin(&mut self, times: u64) {
        writeln!(self.0.input, "{times}").expect("it reads");
    }

    pub(crate) fn call(&mut self, times: u64) {
        assert_eq!(self.0.ask(&times.to_string()), "done 0");
    }
}

/// Compiles a target of `crates/uprobe` in a folder.
fn compile(folder: &Tool, target: &str, options: &[&str]) {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../uprobe/tests/targets");
    let mut compiler = folder.wrapped("gcc", "");
    compiler.arg(targets.join(target)).args(options);
    assert!(compiler.status().expect("gcc runs").success());
}

/// A process that looks names up: `NAME TIMES`.
pub(crate) fn resolver() -> Lines {
    let script = "import socket, sys\n\
                  print('ready', flush=True)\n\
                  for line in sys.stdin:\n    \
                      name, times = line.split()\n    \
                      for i in range(int(times)): socket.getaddrinfo(name, 80 + i)\n    \
                      print('done', flush=True)\n";
    Lines::spawn(Command::new("/usr/bin/python3").args(["-c", script])).ready()
}

/// A shell at no terminal, which reads its lines as at one.
pub(crate) fn shell() -> Lines {
    let mut command = Command::new("setsid");
    command.args(["/bin/bash", "--norc", "--noprofile", "-i"]);
    let mut shell = Lines::spawn(command.env_remove("HISTFILE").stderr(Stdio::null()));
    assert_eq!(shell.ask("echo ready"), "ready");
    shell
}

/// A process with the sites of a Java VM, which collects as often as a line says.
pub(crate) fn collector() -> Lines {
    let folder = Tool::new();
    let library = ["-O2", "-DLIBRARY", "-shared", "-fPIC", "-o", "libjvm.so"];
    compile(&folder, "collector.c", &library);
    let linked = ["-L.", "-l:libjvm.so", "-Wl,-rpath,$ORIGIN"];
    compile(
        &folder,
        "collector.c",
        &[&["-O2", "-o", "target"], &linked[..]].concat(),
    );
    Lines::in_folder(folder)
}
