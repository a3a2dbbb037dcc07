//! Dates of archives: `Sat, 21 Nov 2026 09:15:44 UTC`.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Seconds since 1970, now.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Seconds since 1970 of a date between 1970 and 9999.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (week_day, rest) = text.split_once(", ")?;
    if week_day.len() != 3 || !week_day.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let [day, month, year, clock, "UTC" | "GMT" | "+0000"] = words[..] else {
        return None;
    };
    let number = |text: &str, range: std::ops::RangeInclusive<u64>| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = text.parse().ok().filter(|_| digits)?;
        range.contains(&number).then_some(number)
    };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let days = days_since_1970(number(year, 1970..=9999)?, month, number(day, 1..=31)?);
    let mut parts = clock.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let minutes = number(hours, 0..=23)? * 60 + number(minutes, 0..=59)?;
    Some((days * 1440 + minutes) * 60 + number(seconds, 0..=60)?)
}

/// Days in the calendar of today, in years that begin with March, so that a leap day is the last one of a year.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month > 2 { year } else { year - 1 };
    let month = (month + 9) % 12;
    let of_years = year * 365 + year / 4 - year / 100 + year / 400;
    let days = of_years + (month * 153 + 2) / 5 + day - 1;
    days.saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_become_seconds() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 UTC", 0),
            ("Thu, 29 Feb 2024 23:59:59 UTC", 1_709_251_199),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
            ("Sat, 21 Nov 2026 09:15:44 UTC", 1_795_252_544),
            ("Fri, 31 Dec 9999 23:59:59 +0000", 253_402_300_799),
        ] {
            assert_eq!(parse(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "Sat, 21 Nov 2026 09:15:44",
            "Sat, 21 Nov 2026 09:15:44 CET",
            "Sat, 32 Nov 2026 09:15:44 UTC",
            "Sat, 21 November 2026 09:15:44 UTC",
            "Sat, 21 Nov 2026 24:15:44 UTC",
            "Sat, 21 Nov 2026 +9:15:44 UTC",
            "Sat, 21 Nov 2026 09:15 UTC",
            "Sat, 21 Nov 99999999999999999999 09:15:44 UTC",
            "2026-11-21T09:15:44Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
