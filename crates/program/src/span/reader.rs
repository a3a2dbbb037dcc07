//! Reads a trace, instruction by instruction.

use super::{
    Instruction, Trace,
    event::Events,
    log::Log,
    stack::{Change, Frame, ShadowStack, UNMARKED},
    watch::{Span, Watch},
};

/// Instructions after which a span counts as endless.
const MOST_INSTRUCTIONS: usize = 1 << 23;

/// Reads a trace.
#[derive(Debug, Default)]
pub struct TraceReader {
    watch: Watch,
    stack: ShadowStack,
    log: Log,
    /// Spans in which a program has begun.
    open: Vec<OpenSpan>,
    /// True if the kernel went back to user mode in one of them, which a single step may go on with.
    at_user: bool,
    /// True in a visit to the kernel in which the task slept: calls from before that are not known.
    has_slept: bool,
    events: Vec<Events>,
    unexplained: Vec<u64>,
    slept: Vec<u64>,
    in_window: bool,
    window: u64,
    spent: u64,
}

/// A span under way, with the first frames of its programs.
#[derive(Debug)]
struct OpenSpan {
    context: usize,
    frame: usize,
    root: u32,
    runs: Vec<(usize, u32)>,
}

impl TraceReader {
    /// Reads one of these programs.
    pub fn new(watch: Watch) -> Self {
        let programs = watch.programs.len();
        TraceReader {
            in_window: watch.window.is_none(),
            watch,
            events: vec![Events::default(); programs],
            unexplained: vec![0; programs],
            slept: vec![0; programs],
            ..TraceReader::default()
        }
    }

    /// The next instruction.
    pub fn executed(&mut self, one: Instruction) {
        if one.is_user() {
            self.user_mode();
            return;
        }
        let at = one.address;
        let is_step = self.at_user && self.watch.kernel.step == Some(at);
        if self.at_user && !is_step {
            self.end_visit();
        }
        while let Some(change) = self.stack.step(at, &self.watch.kernel) {
            match change {
                Change::Entered if is_step => self.go_on(),
                Change::Entered => self.entered(),
                Change::Jumped { from } => self.jumped(from, at),
                // As XDP's dispatcher does, which compares addresses.
                Change::Branched { from } if self.program_at(at).is_some() => self.enter(from, at),
                Change::Branched { .. } => {}
                Change::Left { context, frame } => self.leave(context, frame),
                Change::Lost => self.lose(),
            }
        }
        if self.watch.kernel.switch == Some(at) {
            for span in std::mem::take(&mut self.open) {
                for (program, _) in span.runs {
                    self.slept[program] += 1;
                }
            }
            self.forget();
            self.has_slept = true;
            return;
        }
        self.mark_window(at);
        if self.in_window && !self.in_interrupt() {
            self.window += 1;
        }
        if let Some(program) = self.program_at(at) {
            self.begun(program, at);
        }
        if let Some(&mut Frame { mark, .. }) = self.stack.top()
            && mark != UNMARKED
        {
            self.log.push(at, mark);
            if self.log.len() > MOST_INSTRUCTIONS {
                self.lose();
                return;
            }
        }
        self.stack.executed(one);
    }

    /// The events of the trace, which ends here.
    pub fn finish(mut self) -> Trace {
        if self.at_user {
            self.end_visit();
        }
        self.lose();
        let events = self.events.into_iter();
        let lost = self.unexplained.into_iter().zip(self.slept);
        Trace {
            programs: events
                .zip(lost)
                .map(|(events, (unexplained, slept))| events.finish(unexplained, slept))
                .collect(),
            window: self.window,
            spent: self.spent,
        }
    }

    fn program_at(&self, address: u64) -> Option<usize> {
        let mut programs = self.watch.programs.iter();
        programs.position(|one| one.begins(address))
    }

    fn spans(&self) -> impl Iterator<Item = &Span> {
        self.watch.programs.iter().flat_map(|one| &one.spans)
    }

    fn mark_window(&mut self, address: u64) {
        match self.watch.window {
            Some((begin, _)) if begin == address => self.in_window = true,
            Some((_, end)) if end == address => self.in_window = false,
            _ => {}
        }
    }

    fn in_interrupt(&self) -> bool {
        let mut contexts = (0..self.stack.depth()).map(|at| self.stack.frames(at)[0].entry);
        contexts.any(|entry| self.watch.kernel.is_interrupt(entry))
    }

    /// A frame was added: it gets a number if what is executed in it may be of an event.
    fn entered(&mut self) {
        let depth = self.stack.depth();
        let frames = self.stack.frames(depth - 1);
        let is_context = frames.len() == 1;
        let below = match frames {
            [.., below, _] => Some(*below),
            _ if depth > 1 => self.stack.frames(depth - 2).last().copied(),
            _ => None,
        };
        let Some(&frame) = frames.last() else {
            return;
        };
        let parent = below
            .map(|frame| frame.mark)
            .filter(|mark| *mark != UNMARKED);
        if parent.is_some() || self.may_begin(&frame, is_context) {
            let mark = self
                .log
                .node(parent, frame.entry, frame.site, is_context && depth > 1);
            if let Some(top) = self.stack.top() {
                top.mark = mark;
            }
        }
    }

    /// True if a span may begin with this frame.
    fn may_begin(&self, frame: &Frame, is_context: bool) -> bool {
        let begins = |span: &Span| match span {
            Span::Program => false,
            Span::Function { .. } => {
                span.leads_from(frame.site)
                    || (is_context && self.watch.kernel.breakpoint == Some(frame.entry))
            }
            Span::Return => self.watch.kernel.returns.contains(&frame.entry),
            Span::Call(functions) => functions.contains(&frame.entry),
            Span::Visit => is_context && self.stack.depth() == 1,
            // Each call may be one.
            Span::Caller => is_context,
        };
        self.spans().any(begins) || self.program_at(frame.entry).is_some()
    }

    /// A jump is taken as a call where it leads from a function to its hook, or to a program; and where it leads to the first
    /// function of a dispatch, as a thunk and a call at a function's end do.
    fn jumped(&mut self, from: u64, to: u64) {
        let depth = self.stack.depth();
        let frames = self.stack.frames(depth - 1);
        let to_hook = |span: &Span| match span {
            Span::Call(functions) => {
                let calls = frames.get(1..).unwrap_or_default();
                functions.contains(&to)
                    && !calls.iter().any(|frame| functions.contains(&frame.entry))
            }
            span => span.leads_from(from) && !span.has(to),
        };
        if self.spans().any(to_hook) || self.program_at(to).is_some() {
            self.enter(from, to);
            return;
        }
        let back = |frame: &Frame, span: &Span| {
            frame.is_jump && span.leads_from(frame.site) && span.has(to)
        };
        if let Some(top) = frames.last()
            && self.spans().any(|span| back(top, span))
        {
            self.leave(depth - 1, frames.len() - 1);
        }
    }

    fn enter(&mut self, from: u64, to: u64) {
        self.stack.enter(to, from);
        self.entered();
    }

    /// A program begins.
    fn begun(&mut self, program: usize, at: u64) {
        if !self.in_window {
            return;
        }
        if self.stack.top().is_none_or(|top| top.entry != at) {
            self.unexplained[program] += 1;
            return;
        }
        let context = self.stack.depth() - 1;
        let frames = self.stack.frames(context);
        let run = frames.last().map_or(UNMARKED, |top| top.mark);
        let Some(frame) = self.root(program, frames) else {
            // An interrupt's calls are all known.
            let lost = if self.has_slept && context == 0 {
                &mut self.slept
            } else {
                &mut self.unexplained
            };
            lost[program] += 1;
            return;
        };
        let root = frames[frame].mark;
        if let Some(span) = self.open.iter_mut().find(|one| one.root == root) {
            // An instruction whose fault was repaired is executed twice.
            if !span.runs.contains(&(program, run)) {
                span.runs.push((program, run));
            }
            return;
        }
        self.open.push(OpenSpan {
            context,
            frame,
            root,
            runs: vec![(program, run)],
        });
    }

    /// The frame with which the span of a program that has just begun did begin.
    fn root(&self, program: usize, frames: &[Frame]) -> Option<usize> {
        let kernel = &self.watch.kernel;
        // The first frame is the context itself, which no call led to.
        let last = |wanted: &dyn Fn(&Frame) -> bool| {
            let calls = frames.get(1..)?;
            Some(calls.iter().rposition(wanted)? + 1)
        };
        let root = |span: &Span| match span {
            Span::Program => frames.len().checked_sub(1),
            Span::Function { .. } => last(&|frame| span.leads_from(frame.site)).or_else(|| {
                let base = frames.first()?;
                (kernel.breakpoint == Some(base.entry)).then_some(0)
            }),
            Span::Return => last(&|frame| kernel.returns.contains(&frame.entry)),
            Span::Call(functions) => {
                let is_one = |frame: &Frame| functions.contains(&frame.entry);
                let mut at = last(&is_one)?;
                while at > 1 && is_one(&frames[at - 1]) {
                    at -= 1;
                }
                Some(at)
            }
            Span::Visit => (self.stack.depth() == 1).then_some(0),
            Span::Caller => frames.len().checked_sub(2).filter(|at| *at > 0),
        };
        self.watch.programs[program]
            .spans
            .iter()
            .filter_map(root)
            .max()
    }

    /// Ends frames, and the spans that began with them.
    fn leave(&mut self, context: usize, frame: usize) {
        self.end_spans(context, frame);
        self.stack.leave(context, frame);
        let marked = |at| {
            self.stack
                .frames(at)
                .iter()
                .any(|frame| frame.mark != UNMARKED)
        };
        if self.open.is_empty() && !(0..self.stack.depth()).any(marked) {
            self.log.clear();
        }
    }

    fn end_spans(&mut self, context: usize, frame: usize) {
        let ends = |one: &mut OpenSpan| {
            one.context > context || (one.context == context && one.frame >= frame)
        };
        let mut ended: Vec<OpenSpan> = self.open.extract_if(.., ends).collect();
        // The inner ones first: what is of them is not of others.
        ended.sort_by_key(|one| std::cmp::Reverse(one.root));
        for span in ended {
            for (place, &(program, _)) in span.runs.iter().enumerate() {
                // A session runs at entry and at return: one event.
                if span.runs[..place].iter().any(|&(one, _)| one == program) {
                    continue;
                }
                let watched = &self.watch.programs[program];
                let (mut event, spent) = self.log.event(span.root, program, &span.runs, watched);
                if self.watch.calls {
                    event.calls = self.log.calls(span.root, program, &span.runs, watched);
                }
                self.events[program].push(event);
                if place == 0 {
                    self.spent += spent;
                }
            }
            self.log.take(span.root);
        }
    }

    /// The kernel went back to user mode. A span that is all of the visit may go on with a single step; one that waits for a
    /// call to return has no end any more.
    fn user_mode(&mut self) {
        self.has_slept = false;
        if self.at_user || !self.open.iter().any(OpenSpan::is_visit) {
            self.end_visit();
            return;
        }
        self.at_user = true;
        self.stack.clear();
    }

    /// A single step, whose exception is of the span that it follows.
    fn go_on(&mut self) {
        self.at_user = false;
        let root = self.open.iter().find(|one| one.is_visit());
        if let (Some(root), Some(top)) = (root.map(|one| one.root), self.stack.top()) {
            top.mark = root;
        }
    }

    fn end_visit(&mut self) {
        let others: Vec<OpenSpan> = self.open.extract_if(.., |one| !one.is_visit()).collect();
        self.end_spans(0, 0);
        self.open = others;
        self.lose();
    }

    /// The ends of what is under way are not seen.
    fn lose(&mut self) {
        for span in std::mem::take(&mut self.open) {
            for (program, _) in span.runs {
                self.unexplained[program] += 1;
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.at_user = false;
        self.open.clear();
        self.stack.clear();
        self.log.clear();
    }
}

impl OpenSpan {
    /// True if it began with the visit to the kernel.
    fn is_visit(&self) -> bool {
        (self.context, self.frame) == (0, 0)
    }
}
