//! Simulated threads, each with its own clock, and the lines that they access. The thread that is
//! furthest behind runs next, so that everything happens in order of time.

use core::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    ptr::NonNull,
};
use std::{
    collections::{BinaryHeap, HashMap},
    rc::Rc,
    thread_local,
    vec::Vec,
};

use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};

use super::{
    ModelMachine,
    line::{Access, AccessOutcome, SimulatedLine, Time, time},
    random::Random,
};
use crate::Error;

/// Bytes of a simulated thread's stack; pools need little, and debug builds a few KiB.
const STACK: usize = 64 * 1024;

/// The relative variation of work, either way: without any, threads would run in lockstep.
const JITTER: f64 = 0.2;

type Switch = Yielder<(), ()>;

thread_local! {
    /// The world that this thread simulates at the moment.
    static WORLD: RefCell<Option<Rc<Simulation>>> = const { RefCell::new(None) };
}

/// Guard of a simulation: dropping it clears `WORLD`, also when a thread panics.
struct SimulationGuard;

impl Drop for SimulationGuard {
    fn drop(&mut self) {
        WORLD.set(None);
    }
}

#[derive(Default)]
struct Thread {
    clock: Cell<Time>,
    switch: Cell<Option<NonNull<Switch>>>,
    /// The factor by which its core is slower while all threads run.
    slowdown: f64,
    core: u32,
}

/// The state of a simulation.
pub(super) struct Simulation {
    machine: ModelMachine,
    threads: Vec<Thread>,
    lines: RefCell<HashMap<usize, SimulatedLine>>,
    current: Cell<usize>,
    /// The clock of the thread that runs next.
    next: Cell<Time>,
    random: Random,
}

impl Simulation {
    /// Runs a body in `threads` threads, each on its own CPU, until all have returned. A body gets its world and the
    /// number of its thread. Nothing runs if there is no memory for their stacks.
    pub(super) fn run<F>(
        machine: &ModelMachine,
        threads: u32,
        seed: u64,
        body: F,
    ) -> Result<(), Error>
    where
        F: Fn(&Simulation, usize) + Clone + 'static,
    {
        let thread = |cpu| Thread {
            slowdown: machine.slowdown(cpu, threads),
            core: machine.core(cpu),
            ..Thread::default()
        };
        let world = Rc::new(Simulation {
            machine: *machine,
            threads: (0..threads).map(thread).collect(),
            lines: RefCell::default(),
            current: Cell::new(0),
            next: Cell::new(0),
            random: Random::new(seed),
        });
        let mut routines: Vec<Coroutine<(), (), ()>> = (0..threads as usize)
            .map(|index| {
                let (world, body) = (Rc::clone(&world), body.clone());
                let stack = DefaultStack::new(STACK).map_err(|_| Error::NoStacks { threads })?;
                Ok(Coroutine::with_stack(stack, move |switch: &Switch, ()| {
                    world.threads[index].switch.set(Some(switch.into()));
                    body(&world, index);
                    world.threads[index].switch.set(None);
                }))
            })
            .collect::<Result<_, Error>>()?;
        let mut queue: BinaryHeap<_> = (0..routines.len())
            .map(|index| Reverse((0, index)))
            .collect();
        WORLD.set(Some(Rc::clone(&world)));
        let _underway = SimulationGuard;
        while let Some(Reverse((_, index))) = queue.pop() {
            world.current.set(index);
            let next = queue.peek().map_or(Time::MAX, |Reverse((clock, _))| *clock);
            world.next.set(next);
            if let CoroutineResult::Yield(()) = routines[index].resume(()) {
                queue.push(Reverse((world.threads[index].clock.get(), index)));
            }
        }
        Ok(())
    }

    /// An atomic is accessed. Nothing where nothing is simulated.
    pub(super) fn access<T>(atomic: &T, access: Access) {
        if let Some(world) = WORLD.with_borrow(Clone::clone) {
            let line = core::ptr::from_ref(atomic).addr() / world.machine.line_bytes;
            world.reach(line, access);
        }
    }

    /// A thread waits a moment before it tries again.
    pub(super) fn relax() {
        if let Some(world) = WORLD.with_borrow(Clone::clone) {
            world.pass(world.machine.own_ns);
        }
    }

    fn reach(&self, line: usize, access: Access) {
        self.turn();
        let thread = self.thread();
        let (machine, at) = (&self.machine, thread.clock.get());
        let done = self.lines.borrow_mut().entry(line).or_default().access(
            machine,
            thread.core,
            at,
            access,
            &self.random,
        );
        if let AccessOutcome::Comes(at) = done {
            thread.clock.set(at);
            self.turn();
        }
        let local = match access {
            Access::Change => machine.own_ns,
            Access::Load | Access::Store => machine.load_ns,
        };
        self.advance(local);
    }

    /// Something that takes so long and touches nothing that is shared, give or take the jitter.
    pub(super) fn pass(&self, ns: f64) {
        self.advance(ns * self.random.around_one(JITTER));
    }

    /// The clock of the thread that runs.
    pub(super) fn now(&self) -> Time {
        self.thread().clock.get()
    }

    fn advance(&self, ns: f64) {
        let thread = self.thread();
        thread
            .clock
            .set(thread.clock.get() + time(ns * thread.slowdown));
    }

    fn thread(&self) -> &Thread {
        &self.threads[self.current.get()]
    }

    /// Returns when no thread is further behind.
    fn turn(&self) {
        let thread = self.thread();
        if thread.clock.get() <= self.next.get() {
            return;
        }
        let switch = thread.switch.get().expect("it runs");
        #[allow(
            unsafe_code,
            reason = "atomics are not handed what they need to suspend a thread"
        )]
        // SAFETY: the thread that runs is the one whose body set this on entering, to a switch that lives on
        // its stack until the body returns, and clears it then.
        unsafe {
            switch.as_ref().suspend(());
        }
    }
}
