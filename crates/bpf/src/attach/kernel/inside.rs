//! Kprobes inside a function: by a breakpoint, or by the jump that the kernel puts in its place (optimised kprobe).

use std::{cell::RefCell, rc::Rc, thread, time::Duration};

use libbpf_rs::{Link, ProgramMut};

use super::{
    link,
    optimisation::{OptimisationGuard, Switch},
    peek::MemoryReader,
    state::{KprobeList, KprobeState, trouble},
};
use crate::{
    attach::{
        Attach,
        driver::{Attachment, Trouble},
    },
    error::{Result, unattachable},
};

/// Offsets where a kprobe is tried first: behind `endbr64` and the call of ftrace, then behind that call alone.
const LIKELY: [u32; 2] = [9, 5];
/// Bytes of a function in which a kprobe is tried at all.
const FARTHEST: u32 = 64;

/// Most checks of whether the kernel has optimised a kprobe, which takes it some 2 s. A number of
/// times, and no time: clocks of emulated guests leap while they wait.
const ASKS: u32 = 1000;
const BETWEEN_ASKS: Duration = Duration::from_millis(10);

/// Tools to place a kprobe inside a function, made once.
pub(in crate::attach) struct Tools {
    list: KprobeList,
    switch: Option<Rc<Switch>>,
    peek: Rc<RefCell<MemoryReader>>,
    /// Offset in the function at which the kernel took a kprobe.
    offset: Option<u32>,
}

impl Tools {
    pub(in crate::attach) fn make() -> Result<Self> {
        Ok(Tools {
            list: KprobeList::open()?,
            switch: Switch::find(),
            peek: Rc::new(RefCell::new(MemoryReader::load()?)),
            offset: None,
        })
    }
}

/// A kprobe inside a function.
pub(in crate::attach) struct Inside {
    /// Dropped before the switch is turned back.
    link: Link,
    _turned: Option<OptimisationGuard>,
    function: String,
    offset: u32,
    expected: KprobeState,
    list: KprobeList,
    peek: Rc<RefCell<MemoryReader>>,
}

/// Attaches to the function where it was possible before, else at the first place that the kernel takes
/// and that is not ftrace's.
pub(in crate::attach) fn attach(
    attach: Attach,
    program: &ProgramMut<'_>,
    function: &str,
    tools: &mut Tools,
) -> Result<Inside> {
    let optimised = attach == Attach::KprobeOptimised;
    let turned = match &tools.switch {
        Some(switch) => Some(switch.turn(optimised)?),
        None if optimised => {
            return Err(unattachable(
                attach.name(),
                "this kernel has no optimised kprobes (it has no sysctl \
                 debug.kprobes-optimization: CONFIG_OPTPROBES is not set)",
            ));
        }
        None => None,
    };
    let (link, offset) = place(attach, program, function, tools)?;
    tools.offset = Some(offset);
    let mut inside = Inside {
        link,
        _turned: turned,
        function: function.to_owned(),
        offset,
        expected: if optimised {
            KprobeState::Optimised
        } else {
            KprobeState::Breakpoint
        },
        list: tools.list.clone(),
        peek: Rc::clone(&tools.peek),
    };
    if optimised {
        inside.await_optimised(attach)?;
    }
    Ok(inside)
}

fn place(
    attach: Attach,
    program: &ProgramMut<'_>,
    function: &str,
    tools: &Tools,
) -> Result<(Link, u32)> {
    let others = (1..FARTHEST).filter(|offset| !LIKELY.contains(offset));
    let mut refused = None;
    for offset in tools.offset.into_iter().chain(LIKELY).chain(others) {
        match link::inside(program, function, offset as usize) {
            Ok(link) => {
                let listed = tools.list.find(function, offset..=offset)?;
                if listed.is_some_and(|listed| listed.state != KprobeState::Ftrace) {
                    return Ok((link, offset));
                }
            }
            // No instruction begins there.
            Err(no) => refused = refused.or(Some(no)),
        }
    }
    match refused {
        Some(source) => Err(super::function::explain(attach, function, source)),
        None => Err(unattachable(
            attach.name(),
            format!("the kernel accepts no kprobe in the first {FARTHEST} bytes of {function}"),
        )),
    }
}

impl Inside {
    fn await_optimised(&mut self, attach: Attach) -> Result<()> {
        for _ in 0..ASKS {
            if self.trouble()?.is_none() {
                return Ok(());
            }
            thread::sleep(BETWEEN_ASKS);
        }
        Err(unattachable(
            attach.name(),
            format!(
                "the kernel did not optimise the kprobe at {}+{:#x} within {ASKS} checks",
                self.function, self.offset
            ),
        ))
    }
}

impl Attachment for Inside {
    fn trouble(&mut self) -> Result<Option<Trouble>> {
        let got = match self.list.find(&self.function, self.offset..=self.offset)? {
            Some(listed)
                if matches!(
                    listed.state,
                    KprobeState::Breakpoint | KprobeState::Optimised
                ) =>
            {
                self.peek.borrow_mut().state(listed.address)?
            }
            listed => listed.map(|listed| listed.state),
        };
        Ok(trouble(self.expected, got))
    }

    fn missed(&mut self) -> Result<u64> {
        link::missed(&self.link)
    }
}
