//! What the kernel made of a kprobe: its line in debugfs's `kprobes/list`.

use std::{fs, ops::RangeInclusive, rc::Rc};

use crate::{
    attach::driver::Trouble,
    error::{Result, failed},
    mount::Opened,
};

/// How a kprobe takes its hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// By a breakpoint.
    Breakpoint,
    /// By a jump in the breakpoint's place, or soon to be.
    Optimised,
    /// By the call of ftrace at a function's entry.
    Ftrace,
    /// Not at all: disabled, or its code is gone.
    Off,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Breakpoint => "a breakpoint",
            State::Optimised => "optimised to a jump",
            State::Ftrace => "on ftrace's call",
            State::Off => "off",
        }
    }
}

/// A kprobe of the machine, anyone's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) address: u64,
    pub(super) function: String,
    pub(super) offset: u32,
    pub(super) state: State,
}

/// All kprobes of the machine.
pub(super) struct List(Rc<Opened>);

impl List {
    pub(super) fn open() -> Result<Self> {
        Ok(List(Rc::new(Opened::new("debugfs")?)))
    }

    pub(super) fn read(&self) -> Result<Vec<Listed>> {
        let text = fs::read_to_string(self.0.path("kprobes/list"));
        let text = text.map_err(failed(
            "debugfs",
            "reading kprobes/list, which tells the state of a kprobe",
        ))?;
        Ok(all(&text).collect())
    }

    /// The first kprobe in that function, within those bytes of it.
    pub(super) fn find(
        &self,
        function: &str,
        offsets: RangeInclusive<u32>,
    ) -> Result<Option<Listed>> {
        let all = self.read()?;
        let is_it = |one: &Listed| one.function == function && offsets.contains(&one.offset);
        Ok(all.into_iter().find(is_it))
    }
}

/// What is wrong, where a kprobe should be in one state and is in another, or not there.
pub(super) fn trouble(expected: State, got: Option<State>) -> Option<Trouble> {
    (got != Some(expected)).then(|| Trouble {
        check: "the kprobe's state",
        expected: expected.name().to_owned(),
        got: got.map_or("not there", State::name).to_owned(),
    })
}

impl Clone for List {
    fn clone(&self) -> Self {
        List(Rc::clone(&self.0))
    }
}

/// The kprobes in the text of `kprobes/list`.
pub(super) fn all(text: &str) -> impl Iterator<Item = Listed> {
    text.lines().filter_map(listed)
}

/// A line such as `ffffffff8c1ff6b9  k  bpf_get_numa_node_id+0x9    [OPTIMIZED]`.
fn listed(line: &str) -> Option<Listed> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let place = words.nth(1)?;
    let (function, offset) = place.rsplit_once("+0x")?;
    let state = match line {
        _ if line.contains("[DISABLED]") || line.contains("[GONE]") => State::Off,
        _ if line.contains("[FTRACE]") => State::Ftrace,
        _ if line.contains("[OPTIMIZED]") => State::Optimised,
        _ => State::Breakpoint,
    };
    Some(Listed {
        address,
        function: function.to_owned(),
        offset: u32::from_str_radix(offset, 16).ok()?,
        state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let of = |line: &str| listed(line).map(|one| (one.function, one.offset, one.state));
        let optimised = "ffffffff8c1ff6b9  k  bpf_get_numa_node_id+0x9    [OPTIMIZED]";
        assert_eq!(
            of(optimised),
            Some(("bpf_get_numa_node_id".into(), 9, State::Optimised))
        );
        let ftrace = "ffffffff8c1ff6b4  r  security_bpf+0x4    [FTRACE]";
        assert_eq!(of(ftrace), Some(("security_bpf".into(), 4, State::Ftrace)));
        let plain = "ffffffff8c1ff6b9  k  f+0x1f  veth  ";
        assert_eq!(of(plain), Some(("f".into(), 0x1f, State::Breakpoint)));
        let off = "ffffffff8c1ff6b9  k  f+0x0    [DISABLED][FTRACE]";
        assert_eq!(of(off), Some(("f".into(), 0, State::Off)));
        assert_eq!(of(""), None);
        assert_eq!(of("one two three"), None);
    }
}
