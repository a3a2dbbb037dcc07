//! Selects experiments and cases by name; suggests the nearest name.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use wildmatch::WildMatch;

use super::exit::{sentence, usage};
use crate::builtin::{self, hook::Hooks, program::Programs, workload::Workload};
use bpfcost_measure::Plan;
use bpfcost_model::{Case, Experiment, Pair, Role};
use bpfcost_text::suggest;
use bpfcost_workload::Definition;

/// What the names of files end with that define workloads.
pub(super) const DEFINITION: &str = ".toml";

/// The experiment of that name, or of that file.
pub(super) fn experiment(name: &str) -> Result<Box<dyn Experiment>> {
    if name.ends_with(DEFINITION) {
        let definition = Definition::read(Path::new(name))?;
        return Ok(Box::new(Workload::new(definition)));
    }
    builtin::named(name).ok_or_else(|| {
        let all = builtin::all().into_iter();
        let names: Vec<String> = all.map(|one| one.description().name).collect();
        let near = suggest(name, names.iter().map(String::as_str));
        usage(format!(
            "there is no experiment {name}{near}\n  Experiments: {}\n  See: bpfcost list",
            names.join(", ")
        ))
    })
}

/// The experiment on these CPUs, with these values of its factors.
pub(super) fn settle(
    mut experiment: Box<dyn Experiment>,
    cpus: &[u32],
    settings: &BTreeMap<String, String>,
) -> Result<Box<dyn Experiment>> {
    experiment.on_cpus(cpus);
    for (factor, values) in settings {
        experiment
            .set(factor, values)
            .map_err(|error| usage(format!("--set {factor}={values}: {}", sentence(&error))))?;
    }
    Ok(experiment)
}

/// The experiment of a plan, as it was when the plan was made.
pub(super) fn planned(plan: &Plan) -> Result<Box<dyn Experiment>> {
    if let Some(definition) = Workload::definition_of(&plan.subject)? {
        return Ok(Box::new(Workload::new(definition)));
    }
    if let Some(programs) = Programs::data_of(&plan.subject)? {
        return Ok(Box::new(Programs::new(programs)?));
    }
    if let Some(programs) = Hooks::data_of(&plan.subject)? {
        return Ok(Box::new(Hooks::new(programs)?));
    }
    settle(experiment(&plan.experiment)?, &plan.cpus, &plan.settings)
}

/// What shows the cases of an experiment: one that the command line makes is in no list.
fn listing(experiment: &dyn Experiment) -> String {
    let name = experiment.description().name;
    let is_listed = builtin::all()
        .iter()
        .any(|one| one.description().name == name);
    if is_listed {
        format!("bpfcost list {name}")
    } else {
        "the same command with --dry-run".to_owned()
    }
}

/// The cases that the globs pick (all where there are none) and the floors that they need, in the
/// experiment's order; and the pairs among them. `quick` takes fewer where none are picked.
pub(super) fn cases(
    experiment: &dyn Experiment,
    globs: &[String],
    quick: bool,
) -> Result<(Vec<Case>, Vec<Pair>)> {
    let all = experiment.cases();
    for glob in globs {
        let pattern = WildMatch::new(glob);
        if !all.iter().any(|case| pattern.matches(&case.name)) {
            let near = suggest(glob, all.iter().map(|case| case.name.as_str()));
            return Err(usage(format!(
                "no case of {} matches {glob}{near}\n  See its cases: {}",
                experiment.description().name,
                listing(experiment)
            )));
        }
    }
    let patterns: Vec<WildMatch> = globs.iter().map(|glob| WildMatch::new(glob)).collect();
    let picked = |case: &Case| match case.role {
        Role::Case if patterns.is_empty() => !quick || !case.slow,
        Role::Case => patterns.iter().any(|one| one.matches(&case.name)),
        Role::Floor => patterns.iter().any(|one| one.matches(&case.name)),
    };
    if !globs.is_empty()
        && !all
            .iter()
            .any(|case| case.role == Role::Case && picked(case))
    {
        return Err(usage(format!(
            "{} picks only floors, which are measured with the cases that need them\n  \
             Name a case too; see: {}",
            globs.join(", "),
            listing(experiment)
        )));
    }
    let mut wanted: Vec<&str> = all
        .iter()
        .filter(|case| picked(case))
        .map(|case| case.name.as_str())
        .collect();
    // A floor may have a floor itself: go on until nothing is added.
    let mut next = 0;
    while let Some(name) = wanted.get(next).copied() {
        next += 1;
        let floor = all
            .iter()
            .find(|case| case.name == name)
            .and_then(|case| case.floor.as_deref());
        if let Some(floor) = floor
            && !wanted.contains(&floor)
        {
            wanted.push(floor);
        }
    }
    let cases: Vec<Case> = all
        .iter()
        .filter(|case| wanted.contains(&case.name.as_str()))
        .cloned()
        .collect();
    let runs = |name: &str| cases.iter().any(|case| case.name == name);
    let pairs = experiment.pairs();
    let pairs = pairs
        .into_iter()
        .filter(|pair| runs(&pair.case) && runs(&pair.baseline))
        .collect();
    Ok((cases, pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xdp_lb() -> Box<dyn Experiment> {
        experiment("xdp-lb").expect("it is registered")
    }

    #[test]
    fn a_case_brings_its_floors() {
        let (cases, pairs) =
            cases(&*xdp_lb(), &["tcp-v4-lru-hit".into()], false).expect("it exists");
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["tcp-v4-lru-hit", "floor/none", "floor/strip"]);
        assert!(pairs.is_empty());
    }

    #[test]
    fn pairs_need_both_cases() {
        let globs = ["tcp-v4-ch".to_owned(), "tcp-v4-lru-hit".to_owned()];
        let (_, pairs) = cases(&*xdp_lb(), &globs, false).expect("they exist");
        assert_eq!(pairs.len(), 1);
    }

    #[test]
    fn mistakes_get_the_nearest_name() {
        let error = experiment("xdplb")
            .err()
            .expect("there is none")
            .to_string();
        assert!(error.contains("did you mean xdp-lb?"), "{error}");
        let error = cases(&*xdp_lb(), &["tcp-v4-lru-hits".into()], false)
            .expect_err("none")
            .to_string();
        assert!(error.contains("did you mean tcp-v4-lru-hit?"), "{error}");
        let error = cases(&*xdp_lb(), &["zzz*".into()], false)
            .expect_err("none")
            .to_string();
        assert!(!error.contains("did you mean"), "{error}");
    }
}
