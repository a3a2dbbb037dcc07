//! A shadow stack: which calls an instruction is in, by the calls and returns that were executed.

use super::{Flow, Instruction, watch::KernelPlaces};

/// Frames that a return may skip: those of thunks, and of trampolines that return to their caller's caller.
const SKIPPED: usize = 64;
/// Frames that are kept of one context; the outermost go first.
const MOST_FRAMES: usize = 4096;

/// A call, or a jump that is taken as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// First instruction.
    pub(super) entry: u64,
    /// The instruction that led to it; 0 if none did.
    pub(super) site: u64,
    /// Address to which it returns, if that is known.
    pub(super) return_to: Option<u64>,
    /// True if it ends with the one below it.
    pub(super) is_jump: bool,
    /// The number that its user gave it.
    pub(super) mark: u32,
}

/// No number was given.
pub(super) const UNMARKED: u32 = u32::MAX;

/// Work of the kernel for one task, or in one interrupt of another context.
#[derive(Debug)]
struct Context {
    /// Never empty: the first is the context itself.
    frames: Vec<Frame>,
    last: Option<Instruction>,
    /// True if it goes on behind an interrupt or exception, maybe elsewhere.
    resumed: bool,
}

/// A change of the stack by one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A frame was added, for a call or a context.
    Entered,
    /// Frames are to end, those from this one of this context on.
    Left { context: usize, frame: usize },
    /// A jump, or a return to where no frame is.
    Jumped { from: u64 },
    /// A branch was taken.
    Branched { from: u64 },
    /// A context ended, and nothing is known of what goes on.
    Lost,
}

/// Contexts, each in the one that it interrupted.
#[derive(Debug, Default)]
pub(super) struct ShadowStack {
    contexts: Vec<Context>,
}

impl Frame {
    fn new(entry: u64, site: u64, return_to: Option<u64>) -> Self {
        Frame {
            entry,
            site,
            return_to,
            is_jump: false,
            mark: UNMARKED,
        }
    }
}

impl Context {
    /// The frame of code to which a function returned instead of to its caller, if that code goes on from there: by a return,
    /// or by a thunk, which makes a call first.
    fn return_hook(&self, kernel: &KernelPlaces) -> Option<usize> {
        let is_hook =
            |frame: &Frame| frame.return_to.is_none() && kernel.returns.contains(&frame.entry);
        let calls = self.frames.iter().enumerate().skip(1).rev().take(2);
        calls
            .into_iter()
            .find(|(_, frame)| is_hook(frame))
            .map(|(at, _)| at)
    }
}

impl ShadowStack {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.contexts.clear();
    }

    /// Number of contexts.
    pub(super) fn depth(&self) -> usize {
        self.contexts.len()
    }

    /// Frames of a context, from the outermost on.
    pub(super) fn frames(&self, context: usize) -> &[Frame] {
        self.contexts.get(context).map_or(&[], |one| &one.frames)
    }

    /// The innermost frame.
    pub(super) fn top(&mut self) -> Option<&mut Frame> {
        self.contexts.last_mut()?.frames.last_mut()
    }

    /// Takes the jump to `entry` as a call.
    pub(super) fn enter(&mut self, entry: u64, from: u64) {
        if let Some(context) = self.contexts.last_mut() {
            let below = context.frames.last().and_then(|frame| frame.return_to);
            context.frames.push(Frame {
                is_jump: true,
                ..Frame::new(entry, from, below)
            });
        }
    }

    /// Removes frames, those from `frame` on of a context, and the contexts above it.
    pub(super) fn leave(&mut self, context: usize, frame: usize) {
        self.contexts.truncate(context + 1);
        if frame == 0 {
            self.contexts.truncate(context);
            if let Some(below) = self.contexts.last_mut() {
                below.resumed = true;
            }
        } else if let Some(context) = self.contexts.last_mut() {
            context.frames.truncate(frame);
        }
    }

    /// The change that leads to this instruction, which the stack has then made, but for the frames that end: the caller
    /// removes those. Call it until there is none.
    pub(super) fn step(&mut self, at: u64, kernel: &KernelPlaces) -> Option<Change> {
        let depth = self.contexts.len();
        let Some(context) = self.contexts.last_mut() else {
            self.open(at, 0);
            return Some(Change::Entered);
        };
        let last = context.last?;
        let resumed = std::mem::take(&mut context.resumed);
        let interrupted = if kernel.is_entry(at) {
            last.flow != Flow::Jump(Some(at)) && !(last.flow == Flow::Next && last.next == at)
        } else {
            !resumed && last.flow == Flow::Next && at != last.next && at != last.address
        };
        if interrupted {
            let site = last.address;
            self.open(at, site);
            return Some(Change::Entered);
        }
        context.last = None;
        if resumed && at == last.address {
            // A fault was repaired, and it is executed once more.
            return None;
        }
        match last.flow {
            Flow::Branch if at != last.next => Some(Change::Branched { from: last.address }),
            Flow::Next | Flow::Branch => None,
            Flow::Call => {
                if context.frames.len() == MOST_FRAMES {
                    context.frames.remove(1);
                }
                context
                    .frames
                    .push(Frame::new(at, last.address, Some(last.next)));
                Some(Change::Entered)
            }
            Flow::Jump(_) => Some(Change::Jumped { from: last.address }),
            Flow::Return => {
                let frames = context.frames.iter().enumerate().rev().take(SKIPPED);
                let mut found = frames
                    .filter(|(at, _)| *at > 0)
                    .find(|(_, frame)| frame.return_to == Some(at))
                    .map(|(at, _)| at);
                while let Some(frame) = found
                    && frame > 1
                    && context.frames[frame].is_jump
                {
                    found = Some(frame - 1);
                }
                let left = |frame| Change::Left {
                    context: depth - 1,
                    frame,
                };
                match found {
                    Some(frame) => Some(left(frame)),
                    None if kernel.returns.contains(&at) => {
                        context.frames.push(Frame::new(at, last.address, None));
                        Some(Change::Entered)
                    }
                    // Behind a sleep, the caller that a return hook goes on to is not known.
                    None => Some(match context.return_hook(kernel) {
                        Some(frame) => left(frame),
                        None => Change::Jumped { from: last.address },
                    }),
                }
            }
            Flow::EndOfInterrupt if depth > 1 => Some(Change::Left {
                context: depth - 1,
                frame: 0,
            }),
            Flow::EndOfInterrupt => Some(Change::Lost),
        }
    }

    /// The instruction was executed.
    pub(super) fn executed(&mut self, one: Instruction) {
        if let Some(context) = self.contexts.last_mut() {
            context.last = Some(one);
        }
    }

    fn open(&mut self, entry: u64, site: u64) {
        self.contexts.push(Context {
            frames: vec![Frame::new(entry, site, None)],
            last: None,
            resumed: false,
        });
    }
}
