//! Lists of CPUs as the kernel and `--cpus` write them: `0-3,8`.

use thiserror::Error;

/// The highest CPU number that any kernel has (its `NR_CPUS` is at most 8192). Bounds what a typo
/// such as `0-4000000000` can ask for.
const MAX_CPU: u32 = 8191;

/// Why a list of CPUs can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CpuError(String);

fn empty() -> CpuError {
    CpuError("the list of CPUs is empty; write it like 0-3,8".to_owned())
}

fn syntax(part: &str) -> CpuError {
    CpuError(format!(
        "`{part}` is not a CPU number or a range of them; write the list like 0-3,8"
    ))
}

/// Reads a list of CPUs, sorted and each once.
pub fn parse_cpus(text: &str) -> Result<Vec<u32>, CpuError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(empty());
    }
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first, part)?, number(last, part)?),
            None => (number(part, part)?, number(part, part)?),
        };
        if first > last {
            return Err(CpuError(format!(
                "the range `{part}` runs backwards; write the lower CPU first"
            )));
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// One number of a list; `part` is what an error quotes.
fn number(text: &str, part: &str) -> Result<u32, CpuError> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax(part));
    }
    let value: u64 = text.parse().map_err(|_| syntax(part))?;
    match u32::try_from(value) {
        Ok(cpu) if cpu <= MAX_CPU => Ok(cpu),
        _ => Err(CpuError(format!(
            "CPU {value} is above Linux's limit ({MAX_CPU})\n  Choose a CPU of this machine: lscpu"
        ))),
    }
}

/// Writes sorted CPUs as a list with ranges.
pub fn format_cpus(cpus: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = cpus;
    while let Some(&first) = rest.first() {
        let run = rest
            .iter()
            .zip(first..)
            .take_while(|(cpu, expected)| *cpu == expected)
            .count();
        let last = rest[run - 1];
        parts.push(match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        });
        rest = &rest[run..];
    }
    parts.join(",")
}

/// Refuses CPUs that are offline or that the machine doesn't have.
pub fn usable_cpus(asked: &[u32], online: &[u32], possible: &[u32]) -> Result<(), CpuError> {
    if asked.is_empty() {
        return Err(empty());
    }
    let Some(&cpu) = asked.iter().find(|cpu| !online.contains(cpu)) else {
        return Ok(());
    };
    let online = format_cpus(online);
    Err(CpuError(if possible.contains(&cpu) {
        format!(
            "CPU {cpu} is offline; online are {online}\n  Switch it on with `echo 1 > \
             /sys/devices/system/cpu/cpu{cpu}/online`, or choose others with --cpus"
        )
    } else {
        format!("there is no CPU {cpu} on this machine; online are {online}\n  Choose with --cpus")
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(parse_cpus("0-3,8"), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_cpus(" 4, 2 ,2-3\n"), Ok(vec![2, 3, 4]));
        assert_eq!(parse_cpus("8191"), Ok(vec![8191]));
    }

    #[test]
    fn bad_lists_say_why() {
        assert_eq!(parse_cpus(" \n"), Err(empty()));
        for (list, part) in [
            ("0,,1", ""),
            ("1-2-3", "1-2-3"),
            ("-1", "-1"),
            ("+1", "+1"),
            ("99999999999999999999999", "99999999999999999999999"),
        ] {
            assert_eq!(parse_cpus(list), Err(syntax(part)));
        }
        for (list, why) in [
            ("3-1", "`3-1` runs backwards"),
            ("8192", "CPU 8192 is above"),
            ("0-4000000000", "CPU 4000000000 is above"),
        ] {
            let error = parse_cpus(list).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn offline_and_missing_cpus_are_told_apart() {
        let (online, possible) = ([0, 1, 3], [0, 1, 2, 3]);
        assert_eq!(usable_cpus(&[0, 3], &online, &possible), Ok(()));
        let offline = usable_cpus(&[0, 2], &online, &possible).unwrap_err();
        assert!(
            offline
                .to_string()
                .starts_with("CPU 2 is offline; online are 0,1,3\n"),
            "{offline}"
        );
        let missing = usable_cpus(&[7], &online, &possible).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "there is no CPU 7 on this machine; online are 0,1,3\n  Choose with --cpus"
        );
        assert_eq!(usable_cpus(&[], &online, &possible), Err(empty()));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9,\\- x]{0,20}") {
            let _ = parse_cpus(&text);
        }

        #[test]
        fn what_is_written_reads_back(mut cpus in prop::collection::vec(0u32..=MAX_CPU, 1..40)) {
            cpus.sort_unstable();
            cpus.dedup();
            prop_assert_eq!(parse_cpus(&format_cpus(&cpus)), Ok(cpus));
        }
    }
}
