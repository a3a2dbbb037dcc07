//! Runs a tracing tool with its uprobe programs in user space: `--example tool -- [--only PID] TOOL [ARGUMENT]...`

use std::{env, error::Error, process::Command, time::Duration};

use bpfcost_uprobe::tool::{Tool, ToolEvent};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1).peekable();
    let only = match arguments.next_if(|one| one == "--only") {
        Some(_) => Some(arguments.next().ok_or("--only takes a process")?.parse()?),
        None => None,
    };
    let mut command = Command::new(arguments.next().ok_or("a tool is missing")?);
    command.args(arguments);
    let mut tool = Tool::start(command, only)?;
    let mut report = |event: ToolEvent<'_>| eprintln!("{event:?}");
    let status = loop {
        if let Some(status) = tool.run(Duration::from_secs(1), &mut report)? {
            break status;
        }
    };
    let (counts, restored) = tool.finish();
    eprintln!("{status}, {counts:?}");
    Ok(restored?)
}
