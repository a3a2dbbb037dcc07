//! What `list` tells of a workload: its probes, what else varies, how load is made, and how to read what comes of it.

use anyhow::Result;

use super::{finish, table, targets};
use crate::{
    cli::output::say,
    experiment::{Case, Experiment, Role},
    report::{number::plural, style::Style, text},
    workload::{Definition, Headline, LOAD, OFF, VARIANT, Variant},
};

/// Tells all of it; `asked` is what names it on a command line.
pub(super) fn tell(
    experiment: &dyn Experiment,
    definition: &Definition,
    asked: &str,
) -> Result<()> {
    let width = Style::for_stdout().width;
    let whose = match definition.headline {
        Headline::Server => "server",
        Headline::Machine => "machine",
    };
    let first = format!(
        "Measured is CPU time of the {whose} per {}, beside throughput, latency and what the probes see and lose, in \
         windows of some {} ms. Probes go on and off on the same server, which is started anew for each epoch.",
        definition.operation, definition.window_ms
    );
    say!(
        "{}: {}\n\n{}\n",
        definition.name,
        definition.about,
        text::wrap(&first, width, "")
    )?;
    let mut probes = table([VARIANT, "the probe"]);
    for variant in &definition.variants {
        probes.add_row([
            format!("  {}{}", variant.name, starred(variant.quick)),
            format!("{}{}{}", variant.about, only(variant), against(variant)),
        ]);
    }
    finish(Some(probes))?;
    for factor in &definition.factors {
        let values = factor.values.iter().map(|value| {
            let quick = factor.quick.is_empty() || factor.quick.contains(value);
            format!("{value}{}", starred(quick))
        });
        let values: Vec<String> = values.collect();
        say!(
            "{}  {}\n  {}\n",
            factor.name,
            factor.about,
            values.join(", ")
        )?;
    }
    loads(definition)?;
    for paragraph in text::block(&definition.prose).split("\n\n") {
        say!("{}\n", text::wrap(paragraph, width, ""))?;
    }
    let cases = experiment.cases();
    let measured = cases.iter().filter(|case| case.role == Role::Case);
    let probed = |case: &&Case| case.factors.get(VARIANT).is_some_and(|name| name != OFF);
    // One that any target has.
    let inside = measured
        .clone()
        .filter(|case| !definition.is_outside(&case.factors));
    let some = inside.rev().find(probed);
    let some = some.map_or(OFF, |case| case.name.as_str());
    say!(
        "{}, named {}, as {some}; * is what --quick takes\nTargets: {}\n\
         Measure some: bpfcost run {asked} --quick · bpfcost run {asked} --case '{some}'",
        plural(measured.count(), "case"),
        pattern(definition),
        targets(&experiment.description()).join(", "),
    )
}

/// How load is made.
fn loads(definition: &Definition) -> Result<()> {
    let clients = definition.clients.iter();
    if let [client] = definition.clients.as_slice() {
        return match client.about.as_str() {
            "" => Ok(()),
            about => say!("{LOAD}  {about}\n"),
        };
    }
    let mut loads = table([LOAD, "how load is made"]);
    for (index, client) in clients.enumerate() {
        loads.add_row([
            format!("  {}{}", client.name, starred(index == 0 || client.quick)),
            client.about.clone(),
        ]);
    }
    finish(Some(loads))
}

/// The mark of what `--quick` takes.
fn starred(quick: bool) -> &'static str {
    if quick { " *" } else { "" }
}

/// ` (load writes alone)`: where a variant is not everywhere.
fn only(variant: &Variant) -> String {
    let only = variant.only.iter();
    let only: Vec<String> = only
        .map(|(factor, values)| format!("{factor} {}", values.join(" or ")))
        .collect();
    match only.is_empty() {
        true => String::new(),
        false => format!(" ({} alone)", only.join(", ")),
    }
}

/// What it is compared with beside off.
fn against(variant: &Variant) -> String {
    match variant.against.is_empty() {
        true => String::new(),
        false => format!("; compared with {} too", variant.against.join(", ")),
    }
}

/// How cases are named: `VARIANT/SIZE`. The first way to make load is left out.
fn pattern(definition: &Definition) -> String {
    let factors = definition.factors.iter().map(|factor| &factor.name);
    let parts = std::iter::once(VARIANT.to_uppercase())
        .chain(factors.map(|name| format!("/{}", name.to_uppercase())));
    let load = match definition.clients.as_slice() {
        [first, _, ..] => format!("[/{}, but {}]", LOAD.to_uppercase(), first.name),
        _ => String::new(),
    };
    parts.collect::<String>() + &load
}
