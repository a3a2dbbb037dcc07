//! `bpfcost guest` (hidden): the first process of a guest, the guest's side of a run, and the launcher of QEMU.

use std::{
    path::Path,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};

use super::{
    exit::{Exit, exit_of, sentence},
    outside,
    place::{self, Observer, Outcome},
    select,
};
use crate::builtin::{hook::Hooks, program::Programs, workload::Workload};
use bpfcost_bpf::hook::read_lists;
use bpfcost_measure::{self, Event, Measurements};
use bpfcost_model::Experiment;
use bpfcost_record::{Disturbance, read_journal};
use bpfcost_target::{
    Host,
    guest::{
        Failure, GuestChannel, HostLoad, HostTracer, Message, SHARED, await_host, first, join_host,
        launch,
    },
};

/// What this program does for its own guests.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Be the first process of a guest.
    First {
        /// Have the host's files.
        #[arg(long)]
        host_files: bool,
        /// Read what a trace is read by, too.
        #[arg(long)]
        traced: bool,
        /// Words of the kernel's command line that the kernel hands on.
        #[arg(hide = true)]
        of_kernel: Vec<String>,
    },
    /// Inside a guest: measure what the shared folder asks for.
    Inside {
        /// Prepare for any job first, and then wait for the host.
        #[arg(long)]
        early: bool,
        /// Read what a trace is read by, too.
        #[arg(long)]
        traced: bool,
    },
    /// Become QEMU, to die with the process of this number.
    Launch {
        /// The process that is to be its parent.
        parent: u32,
        /// QEMU and its arguments.
        #[arg(last = true)]
        command: Vec<String>,
    },
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    match &args.part {
        Part::First {
            host_files, traced, ..
        } => {
            let mut arguments = vec!["guest", "inside"];
            arguments.extend(traced.then_some("--traced"));
            Err(first(*host_files, &arguments, "--early").into())
        }
        Part::Inside { early, traced } => inside(*early, *traced),
        Part::Launch { parent, command } => {
            let program = command.first().cloned().unwrap_or_default();
            Err(launch(*parent, command)).with_context(|| format!("starting {program}"))
        }
    }
}

/// Measures, and sends everything to the host. A failed measurement is sent too, and is no failure of this program.
fn inside(early: bool, traced: bool) -> Result<Exit> {
    if early {
        // Kept for later guests, too. What can't be answered now fails when it is asked for.
        let _ = place::features();
        if traced {
            read_lists();
        }
        await_host().context("cannot wait for the host")?;
        join_host().context("cannot share a folder with the host")?;
    }
    let mut channel =
        GuestChannel::open(Path::new(SHARED)).context("cannot read the shared folder")?;
    let last = match measured(&mut channel) {
        Ok(outcome) => Message::Ended {
            disturbance: outcome.disturbance,
            others: outcome.others,
            warnings: outcome.warnings,
        },
        Err(error) => Message::Failed(Failure {
            text: sentence(&error),
            exit: exit_of(&error) as u8,
            needed_s: match error.downcast_ref() {
                Some(bpfcost_measure::Error::TooShort { needed, .. }) => Some(*needed),
                _ => None,
            },
        }),
    };
    channel
        .say(&last)
        .context("cannot write to the shared folder")?;
    Ok(Exit::Done)
}

fn measured(channel: &mut GuestChannel) -> Result<Outcome> {
    let job = channel.job().context("cannot read the job")?;
    let host = Host::default();
    let requests = || channel.requests().context("cannot read the shared folder");
    let subject = &job.plan.subject;
    let programs = Programs::data_of(subject)?.filter(|programs| programs.hot_spots);
    let tracer = || Ok::<_, anyhow::Error>(Rc::new(HostTracer::new(requests()?)));
    let experiment: Box<dyn Experiment> = if let Some(programs) = programs {
        Box::new(Programs::new(programs)?.with_tracer(tracer()?))
    } else if let Some(hooked) = Hooks::data_of(subject)? {
        Box::new(Hooks::with_tracer(hooked, tracer()?)?)
    } else if let Some(definition) = outside::wanted(&job.plan)? {
        let host_load = Rc::new(HostLoad::new(requests()?));
        Box::new(Workload::new(definition).with_outside(host_load))
    } else {
        select::planned(&job.plan)?
    };
    place::able(&host, &*experiment)?;
    let machine = place::fingerprint(&host, &*experiment)?;
    let resumed = if job.resumed {
        read_journal(&channel.journal())?.measured
    } else {
        Measurements::new(&job.plan)
    };
    let message = Message::Machine(Box::new(machine));
    channel.say(&message)?;
    let interrupt = AtomicBool::new(false);
    let mut teller = Teller {
        channel,
        interrupt: &interrupt,
    };
    place::measure_here(
        &host,
        &*experiment,
        &job.plan,
        resumed,
        &interrupt,
        &mut teller,
    )
}

/// Tells the host what happens, and hears from it whether to end.
struct Teller<'a> {
    channel: &'a mut GuestChannel,
    interrupt: &'a AtomicBool,
}

impl Observer for Teller<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        if self.channel.stop_asked() {
            self.interrupt.store(true, Ordering::Relaxed);
        }
        Ok(self.channel.say(&Message::Event(event.clone()))?)
    }

    fn disturbed(&mut self, disturbance: &Disturbance) -> Result<()> {
        Ok(self.channel.say(&Message::Disturbed(*disturbance))?)
    }
}
