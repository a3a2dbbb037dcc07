//! `bpfcost load` (hidden): the load generator.

use std::time::Duration;

use anyhow::Result;

use super::{
    exit::{Exit, usage},
    output::say,
};
use bpfcost_workload::generator::{LoadTarget, Pace, drive};

/// Requests that one call makes at most.
const MAX_REQUESTS: f64 = 1e8;

/// Make load for a server on loopback, at a fixed rate or as fast as it answers, and print the result
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bpfcost load redis://127.0.0.1:6379/set/3 --rate 20000 --seconds 1
  bpfcost load https://127.0.0.1:8443/1k --requests 10000 --connections 50")]
pub(super) struct Args {
    /// http://127.0.0.1:PORT/PATH, https://… (any certificate), or redis://127.0.0.1:PORT/set/BYTES.
    url: String,
    /// Requests a second, whatever the server does.
    #[arg(long, requires = "seconds", conflicts_with = "requests")]
    rate: Option<f64>,
    /// For how long, in seconds.
    #[arg(long, requires = "rate")]
    seconds: Option<f64>,
    /// This many requests instead, as fast as the server answers.
    #[arg(long)]
    requests: Option<u64>,
    /// Connections, each with one request at most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    let target = LoadTarget::parse(&args.url).map_err(|error| usage(format!("{error:#}")))?;
    let report = drive(&target, pace(args)?, args.connections.into())?;
    say!("{}", serde_json::to_string(&report)?)?;
    Ok(Exit::Done)
}

fn pace(args: &Args) -> Result<Pace> {
    let (pace, requests) = match (args.rate, args.seconds, args.requests) {
        (Some(rate), Some(seconds), None) if rate > 0.0 && seconds > 0.0 => {
            let time = Duration::try_from_secs_f64(seconds)
                .map_err(|_| usage(format!("{seconds} is not a number of seconds")))?;
            (Pace::Open { rate, time }, rate * seconds)
        }
        (None, None, Some(requests)) => (Pace::Closed { requests }, requests as f64),
        _ => {
            return Err(usage(
                "the amount of load is missing\n  Give --rate N --seconds S, both above 0, or \
                 --requests N",
            ));
        }
    };
    if !(1.0..=MAX_REQUESTS).contains(&requests.round()) {
        return Err(usage(format!(
            "these options make {requests} requests; the range is 1 to {MAX_REQUESTS}\n  Change --rate, --seconds or --requests"
        )));
    }
    Ok(pace)
}
