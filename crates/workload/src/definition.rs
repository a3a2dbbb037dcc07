//! Definition of a workload: server, clients, factors, probes, checks of a window. The schema of
//! `experiments/*.toml`; `bpfcost overhead` makes one from a command line.
//!
//! Commands and files may hold `{port}` (a free port), `{address}` (where the server is reached), `{dir}` (a
//! folder of the session), `{cpus}` (how many CPUs the server has), `{seconds}` (the length of a window),
//! `{bpfcost}` (this program itself) and every factor by its name (`{size}`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use bpfcost_model::{Headline, LOAD, OFF};

use super::Error;
use bpfcost_probe::Spec;

/// A workload as data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Definition {
    /// The experiment's name.
    pub name: String,
    /// The question in one line.
    pub about: String,
    /// Name of what pays for the probes, where it is not the workload's: `redis`.
    pub subject: Option<String>,
    /// Explanation of the result, in paragraphs.
    #[serde(default)]
    pub prose: String,
    /// One operation, in a word: `command`, `request`, `datagram`.
    pub operation: String,
    /// Account of CPU time that leads: of the server, or of the whole machine.
    #[cfg_attr(test, schemars(schema_with = "headline"))]
    #[serde(default)]
    pub headline: Headline,
    /// Milliseconds of a window; clients that have a number of operations take what that takes.
    #[serde(default = "second")]
    pub window_ms: u64,
    /// Windows of a case on one server: an odd number, three or more.
    #[serde(default = "three")]
    pub rounds: u32,
    /// Milliseconds after which the probes do again what they do seldom. Each window then holds a whole number of
    /// these periods, and a case has one window on a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
    /// Files made in `{dir}` before anything starts, by name.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Files of `workloads/`, which are part of this program: added to `files` under their last name.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Commands run once in `{dir}` before the first server starts. Their temporary files go to `{dir}/tmp`.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// Network between server and client: `here` (the default), `loopback` or `veth`, of their own, or `forwarded`, into a
    /// guest. May name a factor.
    #[serde(default)]
    pub network: String,
    /// Server, whose CPU time is measured; without one, the client's is.
    pub server: Option<ServerSpec>,
    /// Clients, each a way to make load; with several, the factor `load` picks one.
    #[serde(default, rename = "client")]
    pub clients: Vec<Client>,
    /// Access log: the server's own count of a window.
    #[serde(rename = "served")]
    pub access_log: Option<AccessLog>,
    /// Factors: what varies beside the probe.
    #[serde(default, rename = "factor")]
    pub factors: Vec<Factor>,
    /// The factor along which curves are drawn.
    pub over: Option<String>,
    /// The probes, each compared with none: `off` is always there.
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    /// Compare variants with each other too.
    #[serde(default)]
    pub against_each_other: bool,
    /// Metrics of the clients that are compared too.
    #[serde(default)]
    pub compared: Vec<String>,
}

/// The server of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerSpec {
    /// Command that starts it, program first; none where it runs already.
    #[serde(default)]
    pub command: Vec<String>,
    /// Service that runs already and is only watched.
    pub watch: Option<RunningServer>,
    /// Sign that it is ready.
    pub ready: Option<Ready>,
    /// Environment variables beside those of this program.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// CPUs that it has for itself where there are more; the others are the client's. 0: any.
    #[serde(default)]
    pub cpus: usize,
}

/// A server that runs already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunningServer {
    /// Process IDs; children and threads are included.
    #[serde(default)]
    pub pids: Vec<u32>,
    /// The systemd unit.
    pub unit: Option<String>,
    /// Command that prints the operations it has done so far.
    #[serde(default)]
    pub ops: Vec<String>,
    /// Regular expression that finds this number in the command's output.
    pub metric: Option<String>,
    /// Relative rise of the cost at which the probe is detached at once.
    pub abort_above: Option<f64>,
}

/// Sign that a server is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ready {
    /// Port at which it listens. Checked without connecting, before each window.
    pub tcp: Option<String>,
    /// Regular expression that a line of its output matches.
    pub output: Option<String>,
    /// Seconds after which it counts as failed.
    #[serde(default = "ten")]
    pub within_s: f64,
}

/// A way to make load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Client {
    /// Name of the load: `closed` (as much as the server can do), `open` (at a fixed rate), or any other word.
    #[serde(default = "closed")]
    pub name: String,
    /// Description in one line.
    #[serde(default)]
    pub about: String,
    /// Command that makes the load of one window, program first.
    pub command: Vec<String>,
    /// Command that is run once an epoch, untimed, to warm caches; without it, a window of the load.
    #[serde(default)]
    pub warm_up: Vec<String>,
    /// Reader of its output.
    #[serde(default)]
    pub output: Output,
    /// Regular expressions with one group, by name of the number that they read from the output.
    #[serde(default)]
    pub metrics: BTreeMap<String, String>,
    /// Operations of a window, if they are not read from the output.
    pub ops: Option<u64>,
    /// Run it again until the window is over; then `ops` are those of one run. Counts in its output are summed over its
    /// runs, and compared numbers are their mean.
    #[serde(default)]
    pub repeat: bool,
    /// Longest time of one run in seconds, if the command does not contain the length of a window.
    pub within_s: Option<f64>,
    /// Include it in `--quick`, beside the first one.
    #[serde(default)]
    pub quick: bool,
    /// Only in cases with these factor values.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
}

/// Reader of a load generator's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// `redis-benchmark --csv`.
    RedisBenchmark,
    /// `wrk` with the script that this program brings, which prints JSON.
    Wrk,
    /// `iperf3 --json`.
    Iperf3,
    /// This program's own open-loop generator: JSON.
    Load,
    /// Any text, of which `metrics` reads numbers.
    #[default]
    Text,
}

/// A server's access log: its own count of a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AccessLog {
    /// Log in `{dir}`: a line of numbers per operation.
    pub log: String,
    /// Names of the columns; each column's sum becomes a value of that name.
    pub sums: Vec<String>,
    /// Command that makes the server flush the log and reopen it.
    pub reopen: Vec<String>,
}

/// Something that varies beside the probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Factor {
    /// Name, as in `{size}`.
    pub name: String,
    /// Description in one line.
    pub about: String,
    /// Values.
    pub values: Vec<String>,
    /// Values that `--quick` takes; default: all.
    #[serde(default)]
    pub quick: Vec<String>,
}

/// A probe, or several joined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    /// Name in tables.
    pub name: String,
    /// Description in one line.
    pub about: String,
    /// Probe, as on the command line of `bpfcost overhead`; none for the baseline.
    #[cfg_attr(test, schemars(with = "String"))]
    #[serde(default, with = "written")]
    pub probe: Option<Spec>,
    /// Include it in `--quick`.
    #[serde(default)]
    pub quick: bool,
    /// Server of its own, which differs in arguments or environment; without it, the server is that of `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<OwnServer>,
    /// Only in cases with these factor values.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
    /// Other variants that it is compared with, beside `off`.
    #[serde(default)]
    pub against: Vec<String>,
    /// Counts that are compared in each window.
    #[serde(default, rename = "check")]
    pub checks: Vec<CountCheck>,
}

/// A server that runs beside that of the other variants, in its own folder and on its own port.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OwnServer {
    /// Words behind the server's command.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Environment variables beside those of the server.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Two counts of a window that must agree: one of the probe's, one of the workload's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CountCheck {
    /// Count of the probe: `hits`, `bytes_written`.
    pub probe: String,
    /// Count that it must equal: `ops`, or one of client, server or network.
    #[serde(default)]
    pub equals: String,
    /// Difference by which it may be more: calls of the workload that are not counted otherwise.
    #[serde(default)]
    pub beyond: u64,
    /// Or the count that it must reach, for a probe that also sees events of others.
    #[serde(default)]
    pub at_least: String,
    /// Only in cases with these factor values.
    #[serde(default)]
    pub only: BTreeMap<String, Vec<String>>,
}

/// The schema of [`Headline`], which is in another crate.
#[cfg(test)]
fn headline(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "enum": [Headline::Server, Headline::Machine] })
}

/// Periods that a window holds at least, where that makes it no longer than [`LONGEST_WINDOW_MS`]: with two, what
/// comes a little early or late is still in most of them.
const PERIODS: u64 = 2;

/// Milliseconds of the longest window, and so of the longest period.
pub const LONGEST_WINDOW_MS: u64 = 60_000;

impl Variant {
    /// No probe: what the others are compared with.
    pub fn off() -> Self {
        Variant {
            name: OFF.to_owned(),
            about: "no probe".to_owned(),
            quick: true,
            ..Variant::default()
        }
    }
}

impl Definition {
    /// The client of a case, by its factors.
    pub fn client(&self, factors: &BTreeMap<String, String>) -> Result<&Client, Error> {
        let mut clients = self.clients.iter();
        let client = match factors.get(LOAD) {
            Some(load) => clients.find(|client| client.name == *load),
            None => clients.next(),
        };
        client.ok_or_else(|| Error::Definition("there is no client".to_owned()))
    }

    /// Milliseconds of a measured window: `window_ms`, or a whole number of periods that last no less.
    pub fn trial_ms(&self) -> u64 {
        let Some(period_ms) = self.period_ms else {
            return self.window_ms;
        };
        let least = if PERIODS * period_ms <= LONGEST_WINDOW_MS {
            PERIODS
        } else {
            1
        };
        period_ms * self.window_ms.div_ceil(period_ms).max(least)
    }

    /// Milliseconds of a window that shows whether a probe fires: what it does seldom must come up.
    pub fn rehearsal_ms(&self) -> u64 {
        self.window_ms.max(self.period_ms.unwrap_or_default())
    }

    /// Windows of a case on one server.
    pub fn windows(&self) -> u32 {
        if self.period_ms.is_some() {
            1
        } else {
            self.rounds
        }
    }

    /// A copy with the variant's own server, where it has one.
    pub fn with_server(&self, own_server: Option<&OwnServer>) -> Self {
        let mut definition = self.clone();
        if let (Some(server), Some(own_server)) = (&mut definition.server, own_server) {
            server.command.extend_from_slice(&own_server.arguments);
            server.env.extend(own_server.env.clone());
        }
        definition
    }

    /// The programs that it runs itself: those that are no `{…}`.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        let server = self.server.iter().map(|server| &server.command);
        let clients = self
            .clients
            .iter()
            .flat_map(|client| [&client.command, &client.warm_up]);
        let all = self.prepare.iter().chain(server).chain(clients);
        all.filter_map(|command| command.first())
            .map(String::as_str)
            .filter(|program| !program.contains('{'))
    }
}

/// A probe as its text, and none as an empty one.
mod written {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use bpfcost_probe::Spec;

    pub(super) fn serialize<S: Serializer>(
        probe: &Option<Spec>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = probe.as_ref().map(Spec::to_string);
        serializer.serialize_str(&text.unwrap_or_default())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Spec>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let probe = (!text.is_empty()).then(|| text.parse()).transpose();
        probe.map_err(|error| D::Error::custom(format!("the key `probe`: {error}")))
    }
}

/// Returns whether factor values are among those that are allowed.
pub fn allowed(only: &BTreeMap<String, Vec<String>>, factors: &BTreeMap<String, String>) -> bool {
    only.iter().all(|(factor, values)| {
        factors
            .get(factor)
            .is_some_and(|value| values.contains(value))
    })
}

fn second() -> u64 {
    1000
}

fn three() -> u32 {
    3
}

fn ten() -> f64 {
    10.0
}

fn closed() -> String {
    "closed".to_owned()
}
