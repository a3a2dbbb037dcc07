//! Events and the result, as they go to standard output.

use std::borrow::Cow;

use anyhow::Result;
use bpfcost_bpf::{
    attach::ObjectEvent,
    typed::{DataType, Value},
};
use serde::Serialize;

use super::answer::Answer;
use crate::cli::{
    exit::Exit,
    output::{heard, note},
};

/// Bytes of a record that a line of text shows.
const SHOWN_BYTES: usize = 64;

/// Format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OutputFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: a line for each event, the result in the last.
    Json,
}

/// Standard output.
pub(super) struct Output {
    format: OutputFormat,
    record: Option<DataType>,
    /// Lines that are not written yet.
    lines: String,
    reader_left: bool,
    has_attached: bool,
    /// The exit code of the first process that could not be attached to.
    failed: Option<Exit>,
}

impl Output {
    pub(super) fn new(format: OutputFormat, record: Option<DataType>) -> Self {
        Output {
            format,
            record,
            lines: String::new(),
            reader_left: false,
            has_attached: false,
            failed: None,
        }
    }

    /// True if nothing reads the output any more (`| head -1`).
    pub(super) fn reader_left(&self) -> bool {
        self.reader_left
    }

    /// The exit code where processes could not be attached to, and none other was.
    pub(super) fn failed_throughout(&self) -> Option<Exit> {
        self.failed.filter(|_| !self.has_attached)
    }

    /// Takes an event.
    pub(super) fn show(&mut self, event: ObjectEvent<'_>) {
        self.has_attached |= matches!(event, ObjectEvent::Attached(_));
        if let ObjectEvent::Failed(pid, error) = &event {
            note!("note: process {pid} is not probed: {error}");
            self.failed.get_or_insert(if error.is_input() {
                Exit::Usage
            } else {
                Exit::Lacking
            });
        }
        let line = match self.format {
            OutputFormat::Text => self.text(&event),
            OutputFormat::Json => serde_json::to_string(&self.line(&event)).ok(),
        };
        if let Some(line) = line {
            self.lines.push_str(&line);
            self.lines.push('\n');
        }
    }

    /// Writes the lines that came.
    pub(super) fn flush(&mut self) -> Result<()> {
        if !self.lines.is_empty() && !self.reader_left {
            self.reader_left = !heard(format_args!("{}", self.lines))?;
        }
        self.lines.clear();
        Ok(())
    }

    /// Writes the result.
    pub(super) fn finish(&mut self, answer: &Answer) -> Result<()> {
        match self.format {
            OutputFormat::Text => {
                self.lines.push_str(&answer.text());
            }
            OutputFormat::Json => {
                self.lines.push_str(&answer.json()?);
                self.lines.push('\n');
            }
        }
        self.flush()
    }

    /// The value of a record; `None` where its type is not known, or the record is too short for it.
    fn value(&self, bytes: &[u8]) -> Option<Value> {
        let kind = self.record.as_ref()?;
        (bytes.len() >= kind.bytes()).then(|| kind.value(bytes))
    }

    fn text(&self, event: &ObjectEvent<'_>) -> Option<String> {
        match event {
            ObjectEvent::Record { map, pid, bytes } => {
                let value = self.value(bytes).map(|value| value.to_string());
                let value = value.unwrap_or_else(|| dump(bytes));
                Some(bpfcost_text::line(&format!("{map} {pid}: {value}")))
            }
            ObjectEvent::Line(line) => Some(bpfcost_text::line(&line.to_string())),
            ObjectEvent::Attached(_) | ObjectEvent::Ended(_) | ObjectEvent::Failed(..) => None,
        }
    }

    fn line<'a>(&self, event: &ObjectEvent<'a>) -> EventLine<'a> {
        match event {
            ObjectEvent::Attached(pid) => EventLine::Attached { pid: *pid },
            ObjectEvent::Ended(pid) => EventLine::Ended { pid: *pid },
            ObjectEvent::Failed(pid, error) => EventLine::Failed {
                pid: *pid,
                error: error.to_string(),
            },
            ObjectEvent::Record { map, pid, bytes } => {
                let value = self.value(bytes);
                EventLine::Record {
                    pid: *pid,
                    map,
                    bytes: value.is_none().then(|| Value::Bytes(bytes.to_vec())),
                    value,
                }
            }
            ObjectEvent::Line(line) => EventLine::Line {
                pid: line.pid,
                thread: line.thread,
                cpu: line.cpu,
                time_ns: line.time,
                text: String::from_utf8_lossy(line.text),
            },
        }
    }
}

/// An event, for programs. The shape is documented in docs/user-probes.md.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum EventLine<'a> {
    Attached {
        pid: i32,
    },
    Failed {
        pid: i32,
        error: String,
    },
    Ended {
        pid: i32,
    },
    Record {
        pid: i32,
        map: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<Value>,
    },
    Line {
        pid: i32,
        thread: u32,
        cpu: u32,
        time_ns: u64,
        text: Cow<'a, str>,
    },
}

/// Bytes in hexadecimal digits, and as characters where they are some.
fn dump(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let digits: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    let letters: String = shown
        .iter()
        .map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        })
        .collect();
    let more = match bytes.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} bytes more"),
    };
    format!("{}  |{letters}|{more}", digits.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_no_known_type_are_bytes() {
        assert_eq!(dump(b"a\x1b\xff"), "61 1b ff  |a..|");
        let long = dump(&[b'x'; 70]);
        assert!(long.ends_with("x| and 6 bytes more"), "{long}");
    }
}
