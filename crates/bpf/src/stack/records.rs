//! The records of the ring buffer, as a user-space program reads them.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use libbpf_rs::{MapCore, RingBuffer};

use super::taker::Delivery;
use crate::{
    error::{Result, map_failed},
    maps, plain,
    timing::{self, WorkTime},
    unwind::{RuleTable, Unwinder, read_addresses},
};

/// The printer of each stack's addresses, where stacks are printed.
pub type StackPrint = Box<dyn FnMut(&[u64])>;

/// A leaf, which is all of a counted stack's record.
const LEAF_BYTES: usize = size_of::<u64>();

/// Reads the records of stacks.
pub(super) struct StackRecords {
    ring: RingBuffer<'static>,
    reader: Rc<RefCell<Reader>>,
}

/// The records of a batch.
#[derive(Clone, Debug, Default)]
pub struct ReadStacks {
    /// Number of records.
    pub records: u64,
    pub(super) last: Vec<u64>,
    /// True where all but the first were like the last one, by the sum of their leaves, or of their addresses in the
    /// kernel's own text. The helper's records also have frames of the program, which takes the first stack of a batch
    /// elsewhere; so of a stack that is cut at a depth, another part is left.
    pub alike: bool,
    /// The time of reading, or of reading and printing.
    pub time: WorkTime,
}

impl ReadStacks {
    /// The addresses of the last record's stack, the innermost first.
    pub fn last(&self) -> &[u64] {
        &self.last
    }
}

struct Reader {
    unwinder: Rc<Unwinder>,
    print: StackPrint,
    printing: bool,
    /// Addresses of leaves: each stack is looked up in the tree once.
    paths: HashMap<u32, Rc<[u64]>>,
    records: u64,
    /// Addresses from here on are not in the kernel's own text.
    generated: u64,
    /// Sum of the leaves of all records but the first, or of their addresses in the kernel's own text.
    sum: u64,
    /// The last record's part of that sum.
    last_sum: u64,
    /// The last record, where it has addresses.
    addresses: Vec<u64>,
    /// The last record, where it has none.
    leaf: u32,
}

impl StackRecords {
    pub(super) fn new(
        map: &impl MapCore,
        unwinder: Rc<Unwinder>,
        print: StackPrint,
        rules: &RuleTable,
    ) -> Result<Self> {
        let reader = Rc::new(RefCell::new(Reader {
            unwinder,
            print,
            printing: false,
            paths: HashMap::new(),
            records: 0,
            generated: rules.generated(),
            sum: 0,
            last_sum: 0,
            addresses: Vec::new(),
            leaf: 0,
        }));
        let of_ring = Rc::clone(&reader);
        let ring = maps::ring(map, "records", move |record| {
            of_ring.borrow_mut().take(record);
        })?;
        Ok(StackRecords { ring, reader })
    }

    /// Reads all records. `after_tick`: as that of a [`timing::Request`].
    pub(super) fn read(&self, delivery: Delivery, after_tick: bool) -> Result<ReadStacks> {
        self.reader.borrow_mut().begin(delivery);
        let (read, time) = timing::time_work(after_tick, || self.ring.consume())?;
        read.map_err(map_failed("records", "reading the ring buffer"))?;
        Ok(ReadStacks {
            time,
            ..self.reader.borrow().end()
        })
    }
}

impl Reader {
    fn begin(&mut self, delivery: Delivery) {
        self.printing = delivery == Delivery::Printed;
        (self.records, self.sum, self.last_sum, self.leaf) = (0, 0, 0, 0);
        self.addresses.clear();
    }

    fn take(&mut self, record: &[u8]) {
        self.records += 1;
        if record.len() == LEAF_BYTES {
            let leaf: u64 = plain::read(record).unwrap_or_default();
            self.leaf = leaf as u32;
            self.last_sum = leaf;
        } else {
            read_addresses(record, &mut self.addresses);
            self.last_sum = self.sum_of_kernel();
        }
        if self.records > 1 {
            self.sum = self.sum.wrapping_add(self.last_sum);
        }
        if self.printing && record.len() == LEAF_BYTES {
            let unwinder = &self.unwinder;
            let path = self.paths.entry(self.leaf);
            (self.print)(path.or_insert_with_key(|leaf| unwinder.addresses(*leaf).into()));
        } else if self.printing {
            (self.print)(&self.addresses);
        }
    }

    fn sum_of_kernel(&self) -> u64 {
        let all = self.addresses.iter();
        let kernel = all.filter(|address| **address < self.generated);
        kernel.fold(0, |sum, address| sum.wrapping_add(*address))
    }

    fn end(&self) -> ReadStacks {
        ReadStacks {
            records: self.records,
            last: if self.leaf == 0 {
                self.addresses.clone()
            } else {
                self.unwinder.addresses(self.leaf)
            },
            alike: self.sum == self.last_sum.wrapping_mul(self.records.saturating_sub(1)),
            time: WorkTime::default(),
        }
    }
}
