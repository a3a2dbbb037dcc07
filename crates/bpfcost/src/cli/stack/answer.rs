//! The answer in the shape that was asked for.

use std::io::Write as _;

use anyhow::Result;

use super::Args;
use crate::{
    cli::{
        exit::lacking,
        flame,
        output::{heard, note, write_answer},
    },
    stack::{self, Profile},
};

/// Shows the profile in the shape that was asked for.
pub(super) fn show(args: &Args, profile: &Profile) -> Result<()> {
    let summary = || stack::summary(profile);
    if args.json {
        write_answer(|out| profile.write_json(out))?;
    } else if args.folded {
        let lines = profile.folded();
        write_answer(|out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))?;
        note!("{}", summary().trim_end());
    } else if let Some(path) = &args.svg {
        note!("{}", summary().trim_end());
        if profile.stacks.is_empty() {
            return Err(lacking(
                "there are no stacks, so no flame graph was written\n  Measure longer (--duration), or choose another \
                 event, process or command",
            ));
        }
        let title = format!("Kernel stacks of {}", profile.input.events.join(", "));
        flame::write(path, title, "events", &profile.folded())?;
    } else if args.live {
        note!("{}", summary().trim_end());
    } else {
        heard(format_args!("{}", stack::table(profile, args.top)))?;
        if profile.input.totals.events == 0 && (args.pid.is_some() || args.comm.is_some()) {
            note!("The event may have come in other processes: leave out --pid and --comm.");
        }
    }
    Ok(())
}
