//! `bpfcost report`: records as one HTML page.

use std::{fs, path::PathBuf};

use anstream::eprintln;
use anyhow::{Context, Result};

use super::exit::{Exit, usage};
use crate::{
    record::{self, Record},
    report,
};

/// Make one self-contained HTML page of records.
///
/// The page needs no network and no server: send it, print it, keep it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  bpfcost report run1.json run2.json -o report.html")]
pub(super) struct Args {
    /// Records, or folders of them.
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Where the page goes.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    let mut records: Vec<Record> = Vec::new();
    for path in &args.records {
        records.extend(record::load(path)?);
    }
    if records.is_empty() {
        return Err(usage(
            "these folders hold no record; make one with: bpfcost run xdp-lb",
        ));
    }
    let page = report::html::render(&records)?;
    fs::write(&args.out, page).with_context(|| format!("can't write {}", args.out.display()))?;
    eprintln!("wrote {}", args.out.display());
    Ok(Exit::Done)
}
