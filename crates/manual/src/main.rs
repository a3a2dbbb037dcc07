//! Writes manual pages and completions of bpfcost: `bpfcost-manual FOLDER`. They are made from the definition of its
//! command line, in a program of their own, so that bpfcost itself depends on nothing for them.

use std::{env, fs, path::Path};

use anyhow::{Context, Result, bail};
use clap::Command;
use clap_complete::Shell;

fn main() -> Result<()> {
    let mut words = env::args_os().skip(1);
    let (Some(folder), None) = (words.next(), words.next()) else {
        bail!("usage: bpfcost-manual FOLDER");
    };
    let folder = Path::new(&folder);
    write(folder).with_context(|| format!("cannot write to {}", folder.display()))
}

/// Writes a folder of pages, and one of completions for each shell.
fn write(folder: &Path) -> Result<()> {
    let man = folder.join("man");
    fs::create_dir_all(&man)?;
    // The version alone: a commit would be that of this program.
    let whole = bpfcost::cli::command().long_version(None::<&'static str>);
    clap_mangen::generate_to(whole, &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let folder = folder.join(shell.to_string());
        fs::create_dir_all(&folder)?;
        clap_complete::generate_to(shell, &mut visible(), "bpfcost", &folder)?;
    }
    Ok(())
}

/// The command line without its hidden subcommands, which shells would complete.
fn visible() -> Command {
    let whole = bpfcost::cli::command();
    let shown = whole.get_subcommands().filter(|one| !one.is_hide_set());
    Command::new("bpfcost")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(shown.cloned())
}
