//! Pools of other crates behind the same trait, to compare with.

use std::{sync::Mutex, vec::Vec};

use concurrent_queue::ConcurrentQueue;

use crate::{Error, Object, Pool, error::check};

/// crossbeam's bounded queue.
#[derive(Debug)]
pub struct CrossbeamArray(crossbeam_queue::ArrayQueue<u32>);

/// crossbeam's unbounded queue, in segments that are allocated as it goes.
#[derive(Debug)]
pub struct CrossbeamSeg(crossbeam_queue::SegQueue<u32>, usize);

/// concurrent-queue's bounded queue.
#[derive(Debug)]
pub struct Concurrent(ConcurrentQueue<u32>, usize);

/// A vector behind the standard library's lock.
#[derive(Debug)]
pub struct Mutexed(Mutex<Vec<u32>>, usize);

impl CrossbeamArray {
    /// A pool of `objects` objects, all in it.
    pub fn new(objects: usize) -> Result<Self, Error> {
        check(objects, 1)?;
        let queue = crossbeam_queue::ArrayQueue::new(objects);
        (0..objects as u32).for_each(|index| queue.push(index).expect("there is room for all"));
        Ok(CrossbeamArray(queue))
    }
}

impl CrossbeamSeg {
    /// A pool of `objects` objects, all in it.
    pub fn new(objects: usize) -> Result<Self, Error> {
        check(objects, 1)?;
        let queue = crossbeam_queue::SegQueue::new();
        (0..objects as u32).for_each(|index| queue.push(index));
        Ok(CrossbeamSeg(queue, objects))
    }
}

impl Concurrent {
    /// A pool of `objects` objects, all in it.
    pub fn new(objects: usize) -> Result<Self, Error> {
        check(objects, 1)?;
        let queue = ConcurrentQueue::bounded(objects);
        (0..objects as u32).for_each(|index| queue.push(index).expect("there is room for all"));
        Ok(Concurrent(queue, objects))
    }
}

impl Mutexed {
    /// A pool of `objects` objects, all in it.
    pub fn new(objects: usize) -> Result<Self, Error> {
        check(objects, 1)?;
        Ok(Mutexed(Mutex::new((0..objects as u32).collect()), objects))
    }
}

impl Pool for CrossbeamArray {
    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    #[inline]
    fn pop(&self, _cpu: usize) -> Option<Object> {
        self.0.pop().map(Object)
    }

    #[inline]
    fn push(&self, _cpu: usize, Object(index): Object) {
        self.0.push(index).expect("no more come back than went out");
    }
}

impl Pool for CrossbeamSeg {
    fn capacity(&self) -> usize {
        self.1
    }

    #[inline]
    fn pop(&self, _cpu: usize) -> Option<Object> {
        self.0.pop().map(Object)
    }

    #[inline]
    fn push(&self, _cpu: usize, Object(index): Object) {
        self.0.push(index);
    }
}

impl Pool for Concurrent {
    fn capacity(&self) -> usize {
        self.1
    }

    #[inline]
    fn pop(&self, _cpu: usize) -> Option<Object> {
        self.0.pop().ok().map(Object)
    }

    #[inline]
    fn push(&self, _cpu: usize, Object(index): Object) {
        self.0.push(index).expect("no more come back than went out");
    }
}

impl Pool for Mutexed {
    fn capacity(&self) -> usize {
        self.1
    }

    #[inline]
    fn pop(&self, _cpu: usize) -> Option<Object> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .pop()
            .map(Object)
    }

    #[inline]
    fn push(&self, _cpu: usize, Object(index): Object) {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .push(index);
    }
}
