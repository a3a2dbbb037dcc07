//! The host's side of load from outside a guest: runs the client while the guest waits.

use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::exit::sentence;
use crate::builtin::workload::Workload;
use bpfcost_measure::Plan;
use bpfcost_process::reaper::Reaper;
use bpfcost_target::guest::LoadReply;
use bpfcost_workload::{Definition, LoadResult, outside::LoadOrder};

/// The workload of a plan of which some case has such load.
pub(super) fn wanted(plan: &Plan) -> Result<Option<Definition>> {
    let mut cases = plan.cases.iter();
    let definition = Workload::definition_of(&plan.subject)?;
    Ok(definition.filter(|definition| cases.any(|case| definition.is_outside(&case.factors))))
}

/// The clients of a guest's servers.
pub(super) struct Clients<'a> {
    plan: &'a Plan,
    /// Where its servers are reached, and what ends clients if this program can't. Held for all of them: it is a
    /// process.
    way: Option<(u16, Arc<Reaper>)>,
}

impl<'a> Clients<'a> {
    /// Those of a guest behind this port of 127.0.0.1, where it has one.
    pub(super) fn new(plan: &'a Plan, port: Option<u16>) -> Result<Self> {
        let way = port.map(|port| Ok::<_, anyhow::Error>((port, Reaper::of_process()?)));
        Ok(Clients {
            plan,
            way: way.transpose()?,
        })
    }

    /// Makes the load that the guest orders, and returns the result.
    pub(super) fn answer(&self, order: &LoadOrder) -> LoadReply {
        self.made(order).map_err(|error| sentence(&error))
    }

    /// By this program's own plan: a guest says which of its cases is due, and no more.
    fn made(&self, order: &LoadOrder) -> Result<Option<LoadResult>> {
        const ASKED: &str =
            "the guest asks for load that is not part of this run; please report it";
        let definition = Workload::definition_of(&self.plan.subject)?.context(ASKED)?;
        let (port, _) = self.way.as_ref().context(ASKED)?;
        let mut cases = self.plan.cases.iter();
        match cases.find(|case| case.factors == order.factors) {
            Some(case) if definition.is_outside(&case.factors) => {
                order.carry_out(&definition, &case.factors, *port)
            }
            _ => bail!(ASKED),
        }
    }
}
