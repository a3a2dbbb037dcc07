//! `bpfcost report`: records as one HTML page, as Markdown, or as a picture.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{
    exit::{Exit, usage},
    parse,
};
use crate::note;
use bpfcost_pages::attach;
use bpfcost_record::Record;
use bpfcost_report::rate::EventLoad;

/// Write records as one self-contained HTML page, as Markdown, or as an SVG picture
///
/// The page needs no network and no server. The same records always give the same file. Records of `attach` become an
/// atlas: the cost of each way to attach, on each kernel.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  bpfcost report run1.json run2.json -o report.html
  bpfcost report records/ -o atlas.md              Markdown")]
pub struct Args {
    /// Records, or folders of records
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Write to this file: Markdown for .md, a picture for .svg, otherwise HTML
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// Show the share of a core that this rate takes, e.g. 200k/s (attach, map)
    #[arg(long, value_name = "RATE", value_parser = parse::rate, allow_hyphen_values = true)]
    rate: Option<f64>,
    /// Show the highest rate that this share of a core allows (attach, map)
    #[arg(long, value_name = "PERCENT", value_parser = parse::share, allow_hyphen_values = true)]
    core_share: Option<f64>,
}

/// Writes the report.
pub fn run(args: &Args) -> Result<Exit> {
    let mut records: Vec<Record> = Vec::new();
    for path in &args.records {
        records.extend(bpfcost_record::load(path)?);
    }
    if records.is_empty() {
        return Err(usage(
            "these folders hold no record\n  Make one with: bpfcost run xdp-lb",
        ));
    }
    let load = EventLoad {
        rate: args.rate,
        core_share: args.core_share,
    };
    answerable(&records, load)?;
    let page = match args.out.extension().and_then(|ending| ending.to_str()) {
        Some("md") => bpfcost_pages::document(&records, load),
        Some("svg") => picture(&records)?,
        _ => bpfcost_pages::page(&records, load)?,
    };
    write(&args.out, &page)?;
    note!("wrote {}", args.out.display());
    Ok(Exit::Done)
}

/// The one record as a picture.
fn picture(records: &[Record]) -> Result<String> {
    let [record] = records else {
        return Err(usage(format!(
            "a picture shows one record, and these are {}\n  Name one, or write a page: -o report.html",
            records.len()
        )));
    };
    bpfcost_pages::picture(record).ok_or_else(|| {
        usage(
            "a picture shows 1 to 40 cases with a cost, and this record has none or more\n  Write \
             a page: -o report.html",
        )
    })
}

/// Refuses a question about rates that none of the records can answer.
fn answerable(records: &[Record], load: EventLoad) -> Result<()> {
    if load == EventLoad::default() {
        return Ok(());
    }
    let mut gridded = records
        .iter()
        .filter(|record| record.layout.compares_nets());
    match gridded.clone().count() {
        0 => Err(usage(format!(
            "--rate and --core-share need the costs of single operations, and none of these records \
             has them\n  Make one with: bpfcost run {}",
            attach::NAME
        ))),
        _ if gridded.all(|record| record.unit.is_counted()) => Err(usage(format!(
            "--rate and --core-share need nanoseconds, and these records count instructions\n  \
             Measure the time instead: bpfcost run {} --on host",
            attach::NAME
        ))),
        _ => Ok(()),
    }
}

/// Writes a page whole or not at all; straight on where there is no file to replace, as in
/// `-o /dev/stdout`.
fn write(out: &Path, page: &str) -> Result<()> {
    match fs::metadata(out) {
        Ok(there) if there.is_dir() => Err(usage(format!(
            "{} is a folder\n  Name a file in it: -o {}",
            out.display(),
            out.join("report.html").display()
        ))),
        Ok(there) if !there.is_file() => fs::write(out, page).with_context(|| {
            format!(
                "cannot write {}; choose another file with -o",
                out.display()
            )
        }),
        _ => Ok(bpfcost_record::replace(out, |file| {
            file.write_all(page.as_bytes())
        })?),
    }
}
