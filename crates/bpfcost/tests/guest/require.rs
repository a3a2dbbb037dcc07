//! Checks that guests can be had here; a skip says why, and is a failure where `BPFCOST_REQUIRE` names `vm`.

use std::{path::PathBuf, sync::OnceLock};

pub(crate) use crate::shared::{required, skip, skip_as};

use crate::tool::Tool;

/// The kernel that tests boot, unless `BPFCOST_TEST_KERNEL` names another one.
const KERNEL: &str = "6.12";

/// The kernel to boot, as `--on vm:` takes it; `None` where there can be no guest, and why is printed.
pub(crate) fn kernel() -> Option<&'static str> {
    static KNOWN: OnceLock<Result<String, String>> = OnceLock::new();
    match KNOWN.get_or_init(find) {
        Ok(kernel) => Some(kernel),
        Err(why) => {
            skip_as("vm", format!("there can be no guest: {why}"));
            None
        }
    }
}

fn find() -> Result<String, String> {
    let kernel = std::env::var("BPFCOST_TEST_KERNEL").unwrap_or_else(|_| KERNEL.to_owned());
    bpfcost_target::guest::Tools::find().map_err(|error| error.to_string())?;
    there(&kernel).or_else(|why| {
        if required("vm") {
            says("kernel add trixie").and_then(|()| there(&kernel))
        } else {
            Err(why)
        }
    })?;
    Ok(kernel)
}

/// Returns true if there is a kernel of this version, of this suite. One that is not there is fetched where guests
/// are required; `false` where it can't be had, and why is printed.
pub(crate) fn version(version: &str, suite: &str) -> bool {
    if kernel().is_none() {
        return false;
    }
    let found = there(version).or_else(|why| {
        if required("vm") {
            says(&format!("kernel add {suite}")).and_then(|()| there(version))
        } else {
            Err(why)
        }
    });
    if let Err(why) = &found {
        skip_as("vm", format!("there is no kernel {version}: {why}"));
    }
    found.is_ok()
}

/// Returns true if there is a kernel that `bpfcost kernel build` makes. It is not built here: that takes 10 minutes and
/// more, so its tests are of a kind of their own.
pub(crate) fn built(kernel: &str) -> bool {
    if self::kernel().is_none() {
        return false;
    }
    let found = there(kernel);
    if found.is_err() {
        skip_as(
            "built",
            format!(
                "there is no kernel {kernel}; build it once: bpfcost kernel build --frame-pointer"
            ),
        );
    }
    found.is_ok()
}

fn there(kernel: &str) -> Result<(), String> {
    says(&format!("run xdp-lb --on vm:{kernel} --dry-run"))
}

/// The program's output where it failed.
fn says(line: &str) -> Result<(), String> {
    let tool = Tool::new();
    let said = tool.with_caches(tool.command(line)).output();
    let said = crate::tool::said(&said.expect("the binary runs"));
    match said.code {
        Some(0) => Ok(()),
        _ => Err(said.err),
    }
}

/// Image of a kernel, as the program itself names it.
pub(crate) fn image(kernel: &str) -> PathBuf {
    let tool = Tool::new();
    let line = format!("run xdp-lb --on vm:{kernel} --dry-run");
    let said = tool.with_caches(tool.command(&line)).output();
    let out = crate::tool::said(&said.expect("the binary runs")).out;
    let named = out.lines().find(|line| line.starts_with("in a guest"));
    let path = named.and_then(|line| line.split_once('('));
    let (_, path) = path.expect("the kernel is named");
    PathBuf::from(path.trim_end_matches(')'))
}
