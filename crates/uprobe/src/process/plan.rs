//! Which programs are to run at which places of functions.

use super::{
    attachment::Probe,
    error::{Error, Result},
    image::Function,
    runtime::Program,
    site::{Site, When},
};

/// A place, and what is to run there.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    pub(super) function: &'a Function,
    pub(super) site: Site,
    /// The address of a USDT site's semaphore.
    pub(super) semaphore: Option<u64>,
    /// The programs in their order, and the probes that they are of.
    pub(super) programs: Vec<(usize, Program)>,
}

/// The places of probes, by ascending address. An error where two of them overlap.
pub(super) fn plan<'a>(probes: &[Probe<'a>]) -> Result<Vec<Planned<'a>>> {
    let mut all: Vec<Planned<'a>> = Vec::new();
    for (number, probe) in probes.iter().enumerate() {
        let function = probe.function;
        let mut add = |site: Site, program, semaphore: Option<u64>| {
            let key = site.key(function);
            let same = all
                .iter_mut()
                .find(|other| other.site.is_same(&site) && other.site.key(other.function) == key);
            let planned = match same {
                Some(planned) => planned,
                None => {
                    all.push(Planned {
                        function,
                        site,
                        semaphore,
                        programs: Vec::new(),
                    });
                    all.last_mut().expect("it was just pushed")
                }
            };
            planned.programs.push((number, program));
            let name = &planned.site.function;
            planned.semaphore = one_semaphore(name, planned.semaphore, semaphore)?;
            Ok::<_, Error>(())
        };
        if let Some(program) = probe.entry {
            add(Site::entry(function)?, program, None)?;
        }
        if let Some(program) = probe.returns {
            for site in Site::returns(function)?.complete(function)? {
                add(site, program, None)?;
            }
        }
        for inside in probe.inside {
            let site = Site::at(function, inside.offset)?;
            add(site, inside.program, inside.semaphore)?;
        }
    }
    all.sort_by_key(|planned| planned.site.address);
    for pair in all.windows(2) {
        check_apart(&pair[0], &pair[1])?;
    }
    Ok(all)
}

/// The semaphore of a place that gets another program, which may have one. It is raised once for all of them.
pub(super) fn one_semaphore(
    function: &str,
    semaphore: Option<u64>,
    other: Option<u64>,
) -> Result<Option<u64>> {
    match (semaphore, other) {
        (Some(one), Some(other)) if one != other => Err(Error::Unpatchable {
            function: function.to_owned(),
            reason: "two USDT probes with different semaphores are there".to_owned(),
        }),
        _ => Ok(semaphore.or(other)),
    }
}

/// An error where two places overlap, of which the second is not before the first.
fn check_apart(one: &Planned<'_>, other: &Planned<'_>) -> Result<()> {
    if one.site.end() <= other.site.address {
        return Ok(());
    }
    let function = one.function;
    if function.address != other.function.address {
        return Err(overlaps(&other.site));
    }
    let reason = if (one.site.when, other.site.when) == (When::Entry, When::Return) {
        "it is too short for a probe of its entry and one of its return".to_owned()
    } else {
        let offset = |site: &Site| site.probed() - function.address;
        let (one, other) = (offset(&one.site), offset(&other.site));
        format!("the jumps for +{one:#x} and +{other:#x} would overlap")
    };
    Err(Error::Unpatchable {
        function: function.name.clone(),
        reason,
    })
}

/// The error where another probe has some of a site's bytes.
pub(super) fn overlaps(site: &Site) -> Error {
    Error::Unpatchable {
        function: site.function.clone(),
        reason: "another probe of this program has replaced some of the bytes there".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_semaphore() {
        let both = |one, other| one_semaphore("f", one, other);
        assert_eq!(both(None, None).unwrap(), None);
        assert_eq!(both(Some(8), None).unwrap(), Some(8));
        assert_eq!(both(None, Some(8)).unwrap(), Some(8));
        assert_eq!(both(Some(8), Some(8)).unwrap(), Some(8));
        let error = both(Some(8), Some(16)).unwrap_err().to_string();
        assert!(
            error.contains("two USDT probes with different semaphores"),
            "{error}"
        );
    }
}
