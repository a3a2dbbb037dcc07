//! The guest's console: keeps its last lines, and finds the reason of a guest's death in them.

use std::collections::VecDeque;

/// Lines that are kept, and characters of each: a screenful, however much is printed.
const LINES: usize = 200;
const WIDTH: usize = 400;

/// Lines that an error shows.
const SHOWN: usize = 15;

/// Lines of those before the cause of death.
const BEFORE: usize = 3;

/// The last output of a console.
#[derive(Debug, Default)]
pub struct Console {
    lines: VecDeque<String>,
    partial: Vec<u8>,
}

impl Console {
    /// Adds output that was read, whole lines or not.
    pub fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => {
                    let line = clean(&self.partial);
                    self.partial.clear();
                    self.keep(line);
                }
                // A line without an end must not take all memory.
                _ if self.partial.len() < 4 * WIDTH => self.partial.push(*byte),
                _ => {}
            }
        }
    }

    fn keep(&mut self, line: String) {
        if line.is_empty() {
            return;
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// All that is kept, the unfinished line included.
    pub fn lines(&self) -> Vec<String> {
        let rest = clean(&self.partial);
        let rest = (!rest.is_empty()).then_some(rest);
        self.lines.iter().cloned().chain(rest).collect()
    }

    /// The last lines for an error message, each on its own line, indented; where the cause of
    /// death is known, the lines around it, because a kernel prints much after it.
    pub fn last_words(&self) -> String {
        let lines = self.lines();
        if lines.is_empty() {
            return "\n  Its console is empty".to_owned();
        }
        let last = lines.len().saturating_sub(SHOWN);
        let from = cause(&lines).map_or(last, |(index, _)| last.min(index.saturating_sub(BEFORE)));
        let shown = &lines[from..lines.len().min(from + SHOWN)];
        let mut text = "\n  Last lines of its console:".to_owned();
        for line in shown {
            text += "\n    ";
            text += line;
        }
        text
    }
}

/// A line without escape sequences, control characters, and white space at its end.
fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut kept = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\x1b' {
            skip_escape(&mut rest);
        } else if c == '\t' {
            kept.push(' ');
        } else if !c.is_control() && kept.chars().count() < WIDTH {
            kept.push(c);
        }
    }
    kept.truncate(kept.trim_end().len());
    kept
}

/// Passes over the rest of an escape sequence (ECMA-48: CSI ends with a letter, others have one).
fn skip_escape(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    if rest.next() != Some('[') {
        return;
    }
    for c in rest.by_ref() {
        if ('\x40'..='\x7e').contains(&c) {
            return;
        }
    }
}

/// Returns what a console says of a guest's death, as a clause; `None` where it says nothing known. The first
/// cause counts: what comes later follows from it.
pub fn trouble(lines: &[String]) -> Option<String> {
    cause(lines).map(|(_, clause)| clause)
}

/// The cause of a guest's death: the line that shows it, and its meaning.
fn cause(lines: &[String]) -> Option<(usize, String)> {
    const NO_9P: &str = "cannot mount a folder of this machine: its modules 9p and 9pnet_virtio are missing, or do \
                         not load. Give its image with them: lib/modules/RELEASE beside boot";
    const NO_IMAGE: &str = "cannot boot: its image is not a kernel, or is damaged";
    /// Words of the kernel, of QEMU and of the first process, and what they mean.
    const KNOWN: [(&str, &str); 12] = [
        ("Out of memory", "ran out of memory"),
        ("System is deadlocked on memory", "ran out of memory"),
        (
            "No space left on device",
            "found no space in the shared folder",
        ),
        ("cannot mount share (9p)", NO_9P),
        ("cannot mount root (9p)", NO_9P),
        ("initrd is too large", "has too little memory to boot"),
        (
            "Initramfs unpacking failed: write error",
            "has too little memory to boot",
        ),
        (
            "Unable to mount root fs",
            "does not take an initramfs (CONFIG_BLK_DEV_INITRD), or not this program in it",
        ),
        (
            "Could not set up host forwarding rule",
            "cannot use its port, which another program has just taken. Run it again",
        ),
        (
            "network backend 'user' is not compiled",
            "cannot be reached: this QEMU has no user-mode network (libslirp)",
        ),
        ("invalid kernel header", NO_IMAGE),
        ("linux kernel too old to load a ram disk", NO_IMAGE),
    ];
    let cause = lines.iter().enumerate().find_map(|(index, line)| {
        let (_, meaning) = KNOWN.iter().find(|(words, _)| line.contains(words))?;
        Some((index, (*meaning).to_owned()))
    });
    cause.or_else(|| {
        lines.iter().enumerate().find_map(|(index, line)| {
            let (_, why) = line.split_once("Kernel panic - not syncing: ")?;
            Some((index, format!("had a kernel panic: {why}")))
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(text: &str) -> Vec<String> {
        let mut console = Console::default();
        console.feed(text.as_bytes());
        console.lines()
    }

    #[test]
    fn lines_are_clean_and_may_be_unfinished() {
        assert_eq!(
            said("\x1b[1;31mred\x1b[0m\r\n\r\n\x1bcnext\tword  \nunfin"),
            ["red", "next word", "unfin"]
        );
        let mut console = Console::default();
        for part in ["ha", "lf\nsec", "ond\n"] {
            console.feed(part.as_bytes());
        }
        assert_eq!(console.lines(), ["half", "second"]);
    }

    #[test]
    fn the_last_lines_are_shown() {
        let mut console = Console::default();
        assert!(console.last_words().contains("empty"));
        for line in 0..1000 {
            console.feed(format!("line {line}\n").as_bytes());
        }
        let words = console.last_words();
        assert!(
            words.contains("line 985") && words.contains("line 999"),
            "{words}"
        );
        assert!(!words.contains("line 984"), "{words}");
        assert_eq!(console.lines().len(), LINES);
    }

    #[test]
    fn a_cause_of_death_is_shown_with_what_is_around_it() {
        let mut console = Console::default();
        for line in 0..50 {
            console.feed(format!("before {line}\n").as_bytes());
        }
        console.feed(b"Kernel panic - not syncing: why\n");
        for line in 0..50 {
            console.feed(format!("after {line}\n").as_bytes());
        }
        let words = console.last_words();
        assert!(
            words.contains("before 47\n") && words.contains(": why"),
            "{words}"
        );
        assert!(
            words.contains("after 10") && !words.contains("after 11"),
            "{words}"
        );
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut console = Console::default();
        for _ in 0..1000 {
            console.feed(&[b'x'; 1000]);
        }
        assert_eq!(console.lines(), ["x".repeat(WIDTH)]);
    }

    #[test]
    fn causes_of_death_are_named() {
        for (line, clause) in [
            (
                "[ 1.2] Kernel panic - not syncing: sysrq triggered crash",
                "had a kernel panic: sysrq triggered crash",
            ),
            (
                "[ 9.1] Out of memory: Killed process 93 (tail)",
                "ran out of memory",
            ),
            (
                "bpfcost: cannot mount share (9p) on /run/bpfcost: No such device (os error 19)",
                "its modules 9p",
            ),
            (
                "[ 1.2] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
                "does not take an initramfs",
            ),
            ("qemu: invalid kernel header", "cannot boot"),
            (
                "[    2.328436] Initramfs unpacking failed: write error",
                "too little memory",
            ),
            (
                "qemu: initrd is too large, cannot support.(max: 25001983, need 125159480)",
                "too little memory",
            ),
            (
                "qemu: -netdev user,id=outside,hostfwd=udp:127.0.0.1:45999-10.0.2.15:5201: Could not set up host \
                 forwarding rule 'udp:127.0.0.1:45999-10.0.2.15:5201'",
                "another program has just taken",
            ),
        ] {
            let found = trouble(&said(line)).expect(line);
            assert!(found.contains(clause), "{found}");
        }
        assert_eq!(trouble(&said("all is well\n")), None);
        // What follows from it does not hide a cause.
        let lines =
            said("Out of memory: Killed\nKernel panic - not syncing: Attempted to kill init!\n");
        assert_eq!(trouble(&lines).as_deref(), Some("ran out of memory"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes: Vec<u8>) {
            let mut console = Console::default();
            console.feed(&bytes);
            prop_assert!(console.lines().iter().all(|line| !line.contains('\x1b')));
            let _ = (console.last_words(), trouble(&console.lines()));
        }
    }
}
