//! Records which instructions an emulated guest executes, one by one: its tracer writes them to a pipe. Beside that, the
//! guest executes and counts as ever, only some hundred times slower. A QEMU that takes no plugins writes its log instead.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::Path,
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use bpfcost_guest::{
    GuestLimit, GuestWait, Monitor, PIPE, Traced, TracerSwitch, end_recording, read_traced,
};
use bpfcost_program::{Instruction, Trace, TraceReader};

/// The line that ends a recording by the log.
const END: &str = "end";
/// One instruction at a time, by the command of QEMU from 8.1 on, and before.
const ONE_BY_ONE: [&str; 2] = ["one-insn-per-tb", "singlestep"];
/// CPU time of QEMU until the guest has executed one more instruction, by which its tracer sees the end.
const END_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A recording under way. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Recorder {
    monitor: Monitor,
    qemu: u32,
    one_by_one: &'static str,
    pipe: File,
    /// `None` where QEMU writes its log.
    tracer: Option<TracerSwitch>,
    reader: Option<JoinHandle<io::Result<Trace>>>,
}

impl Recorder {
    /// Begins a recording, in the guest of this QEMU with this folder, of what `reader` wants; `number` is not that of an earlier one.
    pub(super) fn start(
        mut monitor: Monitor,
        qemu: u32,
        folder: &Path,
        number: u32,
        reader: TraceReader,
    ) -> io::Result<Self> {
        let path = folder.join(PIPE);
        match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // Both ends, so that neither side waits for the other to open its own.
        let pipe = OpenOptions::new().read(true).write(true).open(&path)?;
        let from = BufReader::with_capacity(1 << 16, pipe.try_clone()?);
        let tracer = TracerSwitch::open(folder).ok();
        let by_tracer = tracer.is_some();
        let read = move || match by_tracer {
            true => read_trace(from, reader),
            false => read_log(from, reader),
        };
        let reader = thread::spawn(read);
        let one_by_one = ONE_BY_ONE
            .into_iter()
            .find(|command| tell(&mut monitor, &format!("{command} on")).is_ok());
        let mut recorder = Recorder {
            monitor,
            qemu,
            one_by_one: one_by_one.unwrap_or_default(),
            pipe,
            tracer,
            reader: Some(reader),
        };
        if recorder.one_by_one.is_empty() {
            return Err(io::Error::other(
                "this QEMU can't execute instructions one by one",
            ));
        }
        if let Some(tracer) = &recorder.tracer {
            tracer.set(number)?;
        } else {
            tell(&mut recorder.monitor, &format!("logfile {PIPE}"))?;
            tell(&mut recorder.monitor, "log in_asm,exec,nochain")?;
        }
        Ok(recorder)
    }

    /// Ends it; the trace.
    pub(super) fn stop(mut self) -> io::Result<Trace> {
        self.end()?;
        let reader = self.reader.take();
        let read = reader.map(JoinHandle::join);
        match read {
            Some(Ok(trace)) => trace,
            Some(Err(_)) | None => Err(io::Error::other("reading the trace failed")),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let one_by_one_off = format!("{} off", self.one_by_one);
        let Some(tracer) = &self.tracer else {
            let ended = tell(&mut self.monitor, "log none")
                .and_then(|()| tell(&mut self.monitor, &one_by_one_off));
            // Whatever QEMU answered: the reader must not wait for ever.
            return writeln!(self.pipe, "{END}").and(ended);
        };
        let ended = tracer.set(0);
        let mut wait = GuestWait::begin(self.qemu);
        let is_read = || self.reader.as_ref().is_none_or(JoinHandle::is_finished);
        while ended.is_ok() && !is_read() {
            if let Some(time) = wait.over(GuestLimit::new(END_TIMEOUT, None)) {
                end_recording(&mut self.pipe)?;
                return Err(io::Error::other(format!(
                    "the guest's tracer has not answered for {time}"
                )));
            }
            sleep(POLL_INTERVAL);
        }
        tell(&mut self.monitor, &one_by_one_off).and(ended)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = match self.tracer.as_ref().map(|tracer| tracer.set(0)) {
                Some(_) => end_recording(&mut self.pipe),
                None => self.end(),
            };
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

/// Reads what the tracer writes.
fn read_trace(pipe: impl BufRead, mut reader: TraceReader) -> io::Result<Trace> {
    let mut instructions: Vec<Option<Instruction>> = Vec::new();
    let mut unknown = 0;
    read_traced(pipe, |one| match one {
        Traced::Defined {
            number,
            address,
            bytes,
            length,
        } => {
            let at = number as usize;
            if instructions.len() <= at {
                instructions.resize(at + 1, None);
            }
            instructions[at] = Some(Instruction::decode(address, &bytes[..length]));
        }
        Traced::Executed(number) => match instructions.get(number as usize) {
            Some(Some(instruction)) => reader.executed(*instruction),
            _ => unknown += 1,
        },
    })?;
    if unknown > 0 {
        return Err(io::Error::other(
            "the guest's tracer wrote what can't be read",
        ));
    }
    Ok(reader.finish())
}

/// Reads a log to its end.
fn read_log(mut log: impl BufRead, mut reader: TraceReader) -> io::Result<Trace> {
    let mut translated: HashMap<u64, Instruction> = HashMap::new();
    // The instruction whose lines are being read.
    let mut address = 0;
    let mut bytes = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if log.read_until(b'\n', &mut line)? == 0 || line.trim_ascii_end() == END.as_bytes() {
            return Ok(reader.finish());
        }
        let text = String::from_utf8_lossy(&line);
        if text.starts_with("IN:") {
            bytes.clear();
        } else if let Some((at, more)) = translated_line(&text) {
            if bytes.is_empty() {
                address = at;
            }
            bytes.extend(more);
            translated.insert(address, Instruction::decode(address, &bytes));
        } else if let Some(instruction) = executed_line(&text).and_then(|at| translated.get(&at)) {
            reader.executed(*instruction);
        }
    }
}

/// Address and bytes in a line of translated code: `0xffffffff81000000:  48 8d 25 51        leaq …`. Long instructions
/// have two lines.
fn translated_line(line: &str) -> Option<(u64, Vec<u8>)> {
    let (address, rest) = line.strip_prefix("0x")?.split_once(':')?;
    let digits = rest
        .split_ascii_whitespace()
        .take_while(|word| word.len() == 2);
    let bytes = digits.map_while(|word| u8::from_str_radix(word, 16).ok());
    Some((u64::from_str_radix(address, 16).ok()?, bytes.collect()))
}

/// The address in a line of executed code: `Trace 0: 0x7f84a55a8fc0 [0000000000000000/ffffffff967a668d/18c0c290/ff020201] `.
fn executed_line(line: &str) -> Option<u64> {
    let (_, rest) = line.strip_prefix("Trace ")?.split_once('[')?;
    u64::from_str_radix(rest.split('/').nth(1)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use bpfcost_bpf::program::{MachineCode, MachineFunction};
    use bpfcost_program::{KernelPlaces, Span, Watch, WatchedProgram};

    use super::*;

    #[test]
    fn lines_of_the_log() {
        let line =
            "Trace 0: 0x7f84a55a8fc0 [0000000000000000/ffffffff967a668d/18c0c290/ff020201] \n";
        assert_eq!(executed_line(line), Some(0xffff_ffff_967a_668d));
        for other in [
            "Trace 0: nothing",
            "Stopped execution of TB chain [0/1/2/3]",
            "",
            "\u{ff}",
        ] {
            assert_eq!(executed_line(other), None, "{other}");
            assert_eq!(translated_line(other), None, "{other}");
        }
        let line = "0xffffffff81000000:  48 8d 25 51 3f a0 01     leaq     0x1a03f51(%rip), %rsp\n";
        let bytes = vec![0x48, 0x8d, 0x25, 0x51, 0x3f, 0xa0, 0x01];
        assert_eq!(translated_line(line), Some((0xffff_ffff_8100_0000, bytes)));
    }

    #[test]
    fn a_log_is_read_to_its_end() {
        let (start, kernel) = (0xffff_ffff_c000_0010_u64, 0xffff_ffff_8100_0000_u64);
        let code = MachineCode {
            functions: vec![MachineFunction {
                start,
                end: start + 0x10,
            }],
        };
        let translated = |at: u64, bytes: &str| format!("IN: \n{at:#x}:  {bytes}   words\n");
        let executed = |at: u64| format!("Trace 0: 0x1 [0/{at:x}/0/0] \n");
        let log = [
            // call, nop, ret, nop
            translated(kernel, "e8 00 00 00 00"),
            executed(kernel),
            translated(start, "90"),
            executed(start),
            translated(start + 1, "c3"),
            executed(start + 1),
            translated(kernel + 5, "90"),
            executed(kernel + 5),
            format!("{END}\n"),
            executed(start),
        ]
        .concat();
        let watch = Watch {
            programs: vec![WatchedProgram {
                code,
                spans: vec![Span::Program],
            }],
            kernel: KernelPlaces::default(),
            calls: false,
            window: None,
        };
        let trace = read_log(log.as_bytes(), TraceReader::new(watch)).expect("a log");
        assert_eq!(trace.programs[0].events.len(), 1);
        assert_eq!(trace.programs[0].events[0].total(), 2);
    }
}
