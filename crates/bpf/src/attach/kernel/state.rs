//! The state of a kprobe in the kernel: its line in debugfs's `kprobes/list`.

use std::{fs, ops::RangeInclusive, rc::Rc};

use crate::{
    attach::driver::Trouble,
    error::{Result, failed},
    mount::{self, MountedFs},
};

/// The mechanism by which a kprobe takes its hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::attach) enum KprobeState {
    /// A breakpoint.
    Breakpoint,
    /// A jump in the breakpoint's place, or soon to be.
    Optimised,
    /// The call of ftrace at a function's entry.
    Ftrace,
    /// None: disabled, or its code is gone.
    Off,
}

impl KprobeState {
    fn name(self) -> &'static str {
        match self {
            KprobeState::Breakpoint => "a breakpoint",
            KprobeState::Optimised => "optimised to a jump",
            KprobeState::Ftrace => "on ftrace's call",
            KprobeState::Off => "off",
        }
    }
}

/// A kprobe of the machine, anyone's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::attach) struct KprobeEntry {
    pub(in crate::attach) address: u64,
    pub(in crate::attach) function: String,
    pub(in crate::attach) offset: u32,
    pub(in crate::attach) state: KprobeState,
}

/// All kprobes of the machine.
pub(in crate::attach) struct KprobeList(Rc<MountedFs>);

impl KprobeList {
    pub(in crate::attach) fn open() -> Result<Self> {
        Ok(KprobeList(Rc::new(mount::open("debugfs")?)))
    }

    pub(in crate::attach) fn read(&self) -> Result<Vec<KprobeEntry>> {
        let text = fs::read_to_string(self.0.path("kprobes/list"));
        let text = text.map_err(failed(
            "debugfs",
            "reading kprobes/list for the state of a kprobe",
        ))?;
        Ok(all(&text).collect())
    }

    /// The first kprobe in that function, within those bytes of it.
    pub(super) fn find(
        &self,
        function: &str,
        offsets: RangeInclusive<u32>,
    ) -> Result<Option<KprobeEntry>> {
        let all = self.read()?;
        let is_it = |one: &KprobeEntry| one.function == function && offsets.contains(&one.offset);
        Ok(all.into_iter().find(is_it))
    }
}

/// Reports a kprobe that should be in one state and is in another, or not there.
pub(super) fn trouble(expected: KprobeState, got: Option<KprobeState>) -> Option<Trouble> {
    (got != Some(expected)).then(|| Trouble {
        check: "the kprobe's state",
        expected: expected.name().to_owned(),
        got: got.map_or("not there", KprobeState::name).to_owned(),
    })
}

impl Clone for KprobeList {
    fn clone(&self) -> Self {
        KprobeList(Rc::clone(&self.0))
    }
}

/// The kprobes in the text of `kprobes/list`.
pub(super) fn all(text: &str) -> impl Iterator<Item = KprobeEntry> {
    text.lines().filter_map(listed)
}

/// A line such as `ffffffff8c1ff6b9  k  bpf_get_numa_node_id+0x9    [OPTIMIZED]`.
fn listed(line: &str) -> Option<KprobeEntry> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let place = words.nth(1)?;
    let (function, offset) = place.rsplit_once("+0x")?;
    let state = match line {
        _ if line.contains("[DISABLED]") || line.contains("[GONE]") => KprobeState::Off,
        _ if line.contains("[FTRACE]") => KprobeState::Ftrace,
        _ if line.contains("[OPTIMIZED]") => KprobeState::Optimised,
        _ => KprobeState::Breakpoint,
    };
    Some(KprobeEntry {
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
            Some(("bpf_get_numa_node_id".into(), 9, KprobeState::Optimised))
        );
        let ftrace = "ffffffff8c1ff6b4  r  security_bpf+0x4    [FTRACE]";
        assert_eq!(
            of(ftrace),
            Some(("security_bpf".into(), 4, KprobeState::Ftrace))
        );
        let plain = "ffffffff8c1ff6b9  k  f+0x1f  veth  ";
        assert_eq!(of(plain), Some(("f".into(), 0x1f, KprobeState::Breakpoint)));
        let off = "ffffffff8c1ff6b9  k  f+0x0    [DISABLED][FTRACE]";
        assert_eq!(of(off), Some(("f".into(), 0, KprobeState::Off)));
        assert_eq!(of(""), None);
        assert_eq!(of("one two three"), None);
    }
}
