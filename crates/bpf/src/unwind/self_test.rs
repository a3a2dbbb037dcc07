//! A test that the walk takes this kernel's stacks rightly, asked of the kernel's helper before any is shown.

use std::{thread, time::Duration};

use super::{RuleTable, StackTruth, Timed};
use crate::{
    attach::AttachMethod,
    error::{Error, Result},
};

/// An event that this process makes when it sleeps.
const EVENT: &str = "sched:sched_switch";
/// Number of sleeps, and the length of each.
const SLEEPS: u32 = 20;
const SLEEP: Duration = Duration::from_micros(100);

impl RuleTable {
    /// Takes the stacks of a few events both by these rules and by the kernel's helper.
    ///
    /// # Errors
    ///
    /// Where most of them differ, or the kernel rejects the program that compares them. Some may: a return address that
    /// a tracer has replaced is hidden from the walk alone.
    pub fn self_test(&self) -> Result<()> {
        let mut truth = StackTruth::load(AttachMethod::RawTp, EVENT, self)?;
        truth.attach(EVENT, Timed::Nothing)?;
        for _ in 0..SLEEPS {
            thread::sleep(SLEEP);
        }
        let counts = truth.detach()?;
        let same = counts.equal + counts.unlisted;
        if counts.events > 0 && same >= counts.different {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "the walk by this kernel's unwind rules and the kernel's helper took other stacks at {} of {} events of {EVENT}\n  \
             Take them with the helper: bpfcost stack --helper",
            counts.different, counts.events
        )))
    }
}
