//! Parses shares and times on the command line; error messages for both.

use std::time::Duration;

pub(super) use bpfcost_console::parse::{rate, share};
use bpfcost_workload::LONGEST_WINDOW_MS;

/// A relative rise, which may be more than 100 %.
pub(super) fn rise(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').map(str::trim);
    match percent.map(str::parse::<f64>) {
        None => share(text),
        Some(Ok(percent)) if percent > 0.0 && percent.is_finite() => Ok(percent / 100.0),
        Some(_) => Err("it must be above 0%, e.g. 20%".to_owned()),
    }
}

/// A [`share`], or nothing at all.
pub(super) fn share_or_none(text: &str) -> Result<f64, String> {
    match text.trim() {
        "0" | "0%" => Ok(0.0),
        text => share(text),
    }
}

/// No interval gets as narrow: where epochs of 2.4 s differ by 1 %, a year of them leaves ±0.0005 %.
const FINEST: f64 = 1e-6;

/// A [`share`] that a run can hope to reach.
pub(super) fn precision(text: &str) -> Result<f64, String> {
    let value = share(text)?;
    if value < FINEST {
        return Err(format!(
            "no run gets that precise; the limit is {:.4}%, and 0.1% is a good choice",
            100.0 * FINEST
        ));
    }
    Ok(value)
}

/// The longest time that is taken. Forecasts of centuries would take long, and say nothing.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// `60s`, `2m`, `1h 30m`: more than nothing.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text.trim())
        .map_err(|error| format!("{error}; write a time with its unit, e.g. 60s or 2m"))?;
    if time.is_zero() {
        return Err("it must be above 0, e.g. 60s".to_owned());
    }
    if time > LONGEST {
        return Err(
            "it must be at most 30days; over more than a day a machine drifts anyway".to_owned(),
        );
    }
    Ok(time)
}

/// A [`time`] after which something comes again: whole milliseconds, and no longer than a window may be.
pub(super) fn period(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_millis(LONGEST_WINDOW_MS);
    let period = time(text)?;
    if period.subsec_nanos() % 1_000_000 != 0 {
        return Err("it must be whole milliseconds, e.g. 500ms or 10s".to_owned());
    }
    if period > longest {
        return Err(format!(
            "it must be at most {}s: each window lasts for one, and a run has at least 20 windows",
            longest.as_secs()
        ));
    }
    Ok(period)
}

/// `FACTOR=VALUES`.
pub(super) fn setting(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let parts = parts.map(|(factor, values)| (factor.trim(), values.trim()));
    match parts {
        Some((factor, values)) if !factor.is_empty() && !values.is_empty() => {
            Ok((factor.to_owned(), values.to_owned()))
        }
        _ => Err("write a factor and its values, e.g. threads=1,3,16".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let read = |text| setting(text).map(|(factor, values)| format!("{factor} is {values}"));
        assert_eq!(read(" threads = 1,3 "), Ok("threads is 1,3".to_owned()));
        for wrong in ["", "threads", "=1", "threads=", " = "] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rises_may_be_above_all() {
        assert_eq!(rise("20%"), Ok(0.2));
        assert_eq!(rise("0.2"), Ok(0.2));
        assert_eq!(rise(" 250 % "), Ok(2.5));
        // Five times or five percent?
        for wrong in ["0%", "-1%", "inf%", "NaN%", "", "%", "a%", "5"] {
            assert!(rise(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn precisions_that_no_run_reaches() {
        assert_eq!(precision("0.1%"), Ok(0.001));
        let error = precision("0.00001%").expect_err("too fine");
        assert!(error.contains("the limit is 0.0001%"), "{error}");
        assert!(precision("0%").is_err());
    }

    #[test]
    fn periods() {
        assert_eq!(period("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(period("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["0", "0s", "10", "-1s", "500us", "1ms 1us", "61s", "soon"] {
            assert!(period(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(time("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(time("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("30days"), Ok(LONGEST));
        for wrong in ["60", "0s", "-1s", "", "soon", "31days", "1000years"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
