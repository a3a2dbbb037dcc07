//! Experiments as data: an [`Experiment`] with its [`Case`]s, how a [`Trial`] of one went, and how results are laid
//! out. It knows no BPF, asks no kernel, and does no I/O; who measures, keeps and shows share these types.
#![forbid(unsafe_code)]

mod case;
mod description;
mod experiment;
mod fault;
mod layout;
mod need;
mod run_facts;
mod slices;
mod trial;
mod unit;

pub use case::{Batch, Case, Metric, Pair, Role, Sizing};
pub use description::{Description, Overhead, Subject, Waivers};
pub use experiment::{Experiment, Setup};
pub use fault::{ABORTED, ENDED, Fault, Problem, differs, prove};
pub use layout::{
    CellNote, Grid, Headline, LOAD, Layout, OFF, ProbedWorkload, SECOND, Scaling, VARIANT,
};
pub use need::Need;
pub use run_facts::{
    Behaviour, Drift, Elsewhere, EventFacts, FoldedStack, HotCall, HotLine, HotSpots, MIX,
    OtherWay, ReachedLines,
};
pub use slices::Slices;
pub use trial::{LoadedEpoch, Observed, Sentinel, SentinelTrial, Trial};
pub use unit::Unit;
