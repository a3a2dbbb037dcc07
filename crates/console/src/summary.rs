//! The result as Markdown at the end of a file, such as the summary of a CI job.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::exit::usage;

/// Where to append it.
#[derive(Debug, clap::Args)]
pub struct SummaryArgs {
    /// Also append the result to this file as Markdown, e.g. "$GITHUB_STEP_SUMMARY"
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    summary: Option<PathBuf>,
}

impl SummaryArgs {
    /// Refuses a file that can't be written, before anything is measured.
    pub fn check(&self) -> Result<()> {
        self.append(String::new)
    }

    /// Appends a text, if there is a file for it.
    pub fn append(&self, text: impl FnOnce() -> String) -> Result<()> {
        let Some(file) = &self.summary else {
            return Ok(());
        };
        write(file, &text()).map_err(|error| {
            usage(format!(
                "cannot append the result to {}: {error}\n  Choose another file with --summary",
                file.display()
            ))
        })
    }
}

fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let mut open = File::options().create(true).append(true).open(file)?;
    open.write_all(text.as_bytes())
}
