//! A profile: distinct stacks by name, with their counts, and what became of all events.

use std::{collections::HashMap, fmt};

use bpfcost_bpf::{
    stack_counter::{StackCount, StackTotals},
    unwind::KernelSymbols,
};
use serde::Serialize;

/// Names on a stack of calls whose callers are hidden: ftrace or kprobes have put their own address there.
const HIDING: [&str; 3] = [
    "return_to_handler",
    "arch_rethook_trampoline",
    "kretprobe_trampoline",
];

/// The kernel's symbols, each time that modules came or went.
#[derive(Clone, Debug)]
pub struct SymbolHistory(Vec<KernelSymbols>);

impl SymbolHistory {
    /// From these symbols on.
    pub fn new(symbols: KernelSymbols) -> Self {
        SymbolHistory(vec![symbols])
    }

    /// Modules came or went; these are the symbols from now on.
    pub fn push(&mut self, symbols: KernelSymbols) {
        self.0.push(symbols);
    }

    /// An address of a stack that was taken in that generation. `is_first` of the innermost address, which is where the
    /// event was and not behind a call.
    pub fn frame(&self, address: u64, generation: usize) -> Frame {
        let symbols = self.0.get(generation).or(self.0.last());
        let symbol = symbols.and_then(|symbols| symbols.symbol(address));
        match symbol {
            Some(symbol) => Frame {
                address,
                name: symbol.name.to_owned(),
                module: symbol.module.map(str::to_owned),
                offset: symbol.offset,
            },
            None => Frame {
                address,
                name: format!("{address:#x}"),
                module: None,
                offset: 0,
            },
        }
    }
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// Where the function goes on.
    pub address: u64,
    /// The function, or the address where none is known.
    pub name: String,
    /// The module that it is in, or `bpf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Bytes behind the function's start.
    pub offset: u64,
}

impl Frame {
    /// The function and its module, without the offset.
    pub fn function(&self) -> String {
        match &self.module {
            Some(module) => format!("{} [{module}]", self.name),
            None => self.name.clone(),
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if self.offset > 0 {
            write!(f, "+{:#x}", self.offset)?;
        }
        match &self.module {
            Some(module) => write!(f, " [{module}]"),
            None => Ok(()),
        }
    }
}

/// A stack by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProfiledStack {
    /// How often it came.
    pub count: u64,
    /// The innermost first.
    pub frames: Vec<Frame>,
}

impl ProfiledStack {
    /// Whether callers are hidden on it: their return addresses were replaced by those of a tracer.
    pub fn is_incomplete(&self) -> bool {
        let hides = |frame: &Frame| HIDING.contains(&&*frame.name);
        self.frames.iter().any(hides)
    }
}

/// What a profile is made of.
#[derive(Clone, Debug)]
pub struct ProfileInput {
    /// The events' names.
    pub events: Vec<String>,
    /// How stacks were taken: `by hand (ORC)`, `by the kernel's helper`.
    pub taken: String,
    /// Seconds that it took.
    pub seconds: f64,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Addresses that were asked for.
    pub depth: u32,
    /// Bytes of kernel memory.
    pub kernel_bytes: u64,
    /// What became of events.
    pub totals: StackTotals,
}

/// Distinct stacks with their counts.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What it was made of.
    pub input: ProfileInput,
    /// The most frequent first.
    pub stacks: Vec<ProfiledStack>,
}

impl Profile {
    /// Names the addresses. Stacks that differ in addresses of the same names stay apart, but for generations.
    pub fn new(input: ProfileInput, counted: Vec<StackCount>, symbols: &SymbolHistory) -> Self {
        let mut places: HashMap<Vec<String>, usize> = HashMap::new();
        let mut stacks: Vec<ProfiledStack> = Vec::new();
        for stack in counted {
            let frame = |address: &u64| symbols.frame(*address, stack.generation);
            let frames: Vec<Frame> = stack.addresses.iter().map(frame).collect();
            let key = frames.iter().map(ToString::to_string).collect();
            match places.get(&key) {
                Some(&place) => stacks[place].count += stack.count,
                None => {
                    places.insert(key, stacks.len());
                    stacks.push(ProfiledStack {
                        count: stack.count,
                        frames,
                    });
                }
            }
        }
        stacks.sort_by(|one, other| other.count.cmp(&one.count));
        Profile { input, stacks }
    }

    /// Stacks whose callers are hidden.
    pub fn incomplete(&self) -> u64 {
        let incomplete = self.stacks.iter().filter(|stack| stack.is_incomplete());
        incomplete.map(|stack| stack.count).sum()
    }

    /// Stacks as long as was asked for, which may have gone on.
    pub fn cut(&self) -> u64 {
        let long = |stack: &&ProfiledStack| stack.frames.len() >= self.input.depth as usize;
        self.stacks
            .iter()
            .filter(long)
            .map(|stack| stack.count)
            .sum()
    }

    /// Lines as flame graphs are made of: `outer;inner COUNT`, in the order of names.
    pub fn folded(&self) -> Vec<String> {
        let mut counts: HashMap<String, u64> = HashMap::new();
        for stack in &self.stacks {
            let names: Vec<String> = (stack.frames.iter().rev())
                .map(|frame| frame.function().replace(';', ":"))
                .collect();
            *counts.entry(names.join(";")).or_default() += stack.count;
        }
        let mut lines: Vec<String> = counts
            .into_iter()
            .map(|(names, count)| format!("{names} {count}"))
            .collect();
        lines.sort();
        lines
    }

    /// As JSON.
    pub fn json(&self) -> serde_json::Value {
        let totals = &self.input.totals;
        serde_json::json!({
            "events": self.input.events,
            "taken": self.input.taken,
            "seconds": self.input.seconds,
            "totals": {
                "events": totals.events,
                "counted": totals.counted,
                "reported": totals.reported,
                "lost": totals.lost,
                "missed": totals.missed,
                "walks_lost": totals.losses.lost,
                "tree_full": totals.losses.full,
                "stale": totals.losses.stale,
                "cut": self.cut(),
                "incomplete": self.incomplete(),
            },
            "cost": {
                "runs": totals.runs,
                "run_ns": totals.run_ns,
                "kernel_bytes": self.input.kernel_bytes,
            },
            "stacks": self.stacks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
ffffffff81000000 T entry
ffffffff81000100 T middle
ffffffff81000200 T inner
ffffffff81000300 T return_to_handler
ffffffffc0000000 t of_module\t[loop]
";

    fn count(addresses: &[u64], count: u64, generation: usize) -> StackCount {
        StackCount {
            addresses: addresses.to_vec(),
            count,
            generation,
        }
    }

    fn profile() -> Profile {
        let mut symbols = SymbolHistory::new(KernelSymbols::parse(SYMBOLS));
        symbols.push(KernelSymbols::parse(
            &SYMBOLS.replace("of_module\t[loop]", "other\t[dummy]"),
        ));
        let (entry, middle, inner) = (0xffffffff81000010, 0xffffffff81000110, 0xffffffff81000200);
        let (hiding, module) = (0xffffffff81000300, 0xffffffffc0000004);
        let counted = vec![
            count(&[inner, middle, entry], 5, 0),
            count(&[inner, middle, entry], 2, 1),
            count(&[inner, hiding], 3, 0),
            count(&[module, entry], 1, 0),
            count(&[module, entry], 4, 1),
        ];
        let input = ProfileInput {
            events: vec!["inner".to_owned()],
            taken: "by hand (ORC)".to_owned(),
            seconds: 1.0,
            cpus: 2,
            depth: 3,
            kernel_bytes: 0,
            totals: StackTotals {
                events: 15,
                counted: 15,
                ..StackTotals::default()
            },
        };
        Profile::new(input, counted, &symbols)
    }

    #[test]
    fn stacks_have_the_names_of_when_they_came() {
        let profile = profile();
        let shown: Vec<(u64, Vec<String>)> = (profile.stacks.iter())
            .map(|stack| {
                (
                    stack.count,
                    stack.frames.iter().map(Frame::to_string).collect(),
                )
            })
            .collect();
        assert_eq!(
            shown[0],
            (
                7,
                vec!["inner".into(), "middle+0x10".into(), "entry+0x10".into()]
            )
        );
        assert_eq!(
            shown[1],
            (4, vec!["other+0x4 [dummy]".into(), "entry+0x10".into()])
        );
        assert_eq!(shown.len(), 4);
        assert_eq!((profile.incomplete(), profile.cut()), (3, 7));
    }

    #[test]
    fn folded_lines_begin_with_the_outermost() {
        assert_eq!(
            profile().folded(),
            [
                "entry;middle;inner 7",
                "entry;of_module [loop] 1",
                "entry;other [dummy] 4",
                "return_to_handler;inner 3",
            ]
        );
    }
}
