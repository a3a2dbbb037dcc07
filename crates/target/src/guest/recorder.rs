//! Records which instructions an emulated guest executes: QEMU logs the address of each to a pipe. Beside that log, it
//! executes and counts as ever, only some hundred times slower.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::Path,
    thread::{self, JoinHandle},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use bpfcost_guest::Monitor;
use bpfcost_program::{RunTrace, TraceReader};

/// The pipe's name in the guest's folder, which is where QEMU runs.
const PIPE: &str = "instructions";
/// What ends a recording.
const END: &str = "end";
/// One instruction at a time, by the command of QEMU from 8.1 on, and before.
const ONE_BY_ONE: [&str; 2] = ["one-insn-per-tb", "singlestep"];

/// A recording under way. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Recorder {
    monitor: Monitor,
    one_by_one: &'static str,
    pipe: File,
    reader: Option<JoinHandle<io::Result<Vec<RunTrace>>>>,
}

impl Recorder {
    /// Begins to record, in the guest with this folder, what `reader` wants.
    pub(super) fn start(
        mut monitor: Monitor,
        folder: &Path,
        reader: TraceReader,
    ) -> io::Result<Self> {
        let path = folder.join(PIPE);
        match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // Both ends, so that neither side waits for the other to open its own.
        let pipe = OpenOptions::new().read(true).write(true).open(&path)?;
        let log = pipe.try_clone()?;
        let reader = thread::spawn(move || read(BufReader::with_capacity(1 << 16, log), reader));
        let one_by_one = ONE_BY_ONE
            .into_iter()
            .find(|command| tell(&mut monitor, &format!("{command} on")).is_ok());
        let mut recorder = Recorder {
            monitor,
            one_by_one: one_by_one.unwrap_or_default(),
            pipe,
            reader: Some(reader),
        };
        if recorder.one_by_one.is_empty() {
            return Err(io::Error::other(
                "this QEMU can't execute instructions one by one",
            ));
        }
        tell(&mut recorder.monitor, &format!("logfile {PIPE}"))?;
        tell(&mut recorder.monitor, "log exec,nochain")?;
        Ok(recorder)
    }

    /// Ends it; the runs that were wanted.
    pub(super) fn stop(mut self) -> io::Result<Vec<RunTrace>> {
        self.end()?;
        let reader = self.reader.take();
        let read = reader.map(JoinHandle::join);
        match read {
            Some(Ok(runs)) => runs,
            Some(Err(_)) | None => Err(io::Error::other("reading the log failed")),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let ended = tell(&mut self.monitor, "log none")
            .and_then(|()| tell(&mut self.monitor, &format!("{} off", self.one_by_one)));
        // Whatever QEMU answered: the reader must not wait for ever.
        writeln!(self.pipe, "{END}").and(ended)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = self.end();
            let _ = reader.join();
        }
    }
}

/// Has the monitor carry out a command that answers nothing.
fn tell(monitor: &mut Monitor, command: &str) -> io::Result<()> {
    let line = json!({ "command-line": command });
    let answer = monitor.ask("human-monitor-command", line)?;
    match answer.as_str().map(str::trim) {
        None | Some("") => Ok(()),
        Some(complaint) => Err(io::Error::other(format!("{command}: {complaint}"))),
    }
}

/// Reads until the end.
fn read(mut log: impl BufRead, mut reader: TraceReader) -> io::Result<Vec<RunTrace>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if log.read_until(b'\n', &mut line)? == 0 || line.trim_ascii_end() == END.as_bytes() {
            return Ok(reader.into_runs());
        }
        if let Some(address) = address(&line) {
            reader.executed(address);
        }
    }
}

/// The address in a line of the log: `Trace 0: 0x7f84a55a8fc0 [0000000000000000/ffffffff967a668d/18c0c290/ff020201] `.
fn address(line: &[u8]) -> Option<u64> {
    let line = str::from_utf8(line).ok()?;
    let (_, rest) = line.strip_prefix("Trace ")?.split_once('[')?;
    u64::from_str_radix(rest.split('/').nth(1)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use bpfcost_bpf::program::{MachineCode, MachineFunction};

    use super::*;

    #[test]
    fn addresses_are_read_from_the_log() {
        let line =
            "Trace 0: 0x7f84a55a8fc0 [0000000000000000/ffffffff967a668d/18c0c290/ff020201] \n";
        assert_eq!(address(line.as_bytes()), Some(0xffff_ffff_967a_668d));
        for other in [
            "Trace 0: nothing",
            "Stopped execution of TB chain [0/1/2/3]",
            "",
            "\u{ff}",
        ] {
            assert_eq!(address(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_log_is_read_to_its_end() {
        let code = MachineCode {
            functions: vec![MachineFunction {
                start: 0x10,
                end: 0x20,
                exits: vec![(0x12, 0x1f)],
            }],
        };
        let line = |at: u64| format!("Trace 0: 0x1 [0/{at:x}/0/0] \n");
        let log = [
            line(0x10),
            line(0x12),
            line(0x99),
            format!("{END}\n"),
            line(0x10),
        ]
        .concat();
        let runs = read(log.as_bytes(), TraceReader::new(code)).expect("a log");
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0].instructions(), 2);
    }
}
