//! Numbers as people read them: as many digits as the interval supports, and no more.
//!
//! Nothing here panics or prints `NaN`: what is not finite is shown as [`MISSING`].

/// Stands where there is no number.
pub const MISSING: &str = "–";
/// Between a number and its unit, so that no line ends between them. Text for terminals turns it
/// into a plain space at the end ([`plain_spaces`]).
pub const HOLD: char = '\u{A0}';
/// More decimals than this are below any clock's precision for an operation.
const MAX_DECIMALS: usize = 2;
/// The same for counts: one in a batch of a million operations can be distinguished from none.
const MAX_COUNTED_DECIMALS: usize = 6;

/// Decimals at which `width` (a half-width, or a bracket) keeps two significant digits.
pub fn decimals(width: f64) -> usize {
    if !width.is_finite() || width <= 0.0 {
        return 2;
    }
    (1.0 - width.log10().floor()).clamp(0.0, 3.0) as usize
}

/// Decimals for a value that has no interval: three significant digits.
pub fn plain_decimals(value: f64) -> usize {
    if !value.is_finite() || value == 0.0 {
        return 1;
    }
    (2.0 - value.abs().log10().floor()).clamp(0.0, 3.0) as usize
}

/// Decimals for an estimate with or without its interval.
pub fn estimate_decimals(value: f64, ci95: Option<[f64; 2]>) -> usize {
    match ci95 {
        Some([low, high]) if (high - low) > 0.0 => decimals((high - low) / 2.0),
        _ => plain_decimals(value),
    }
    .min(MAX_DECIMALS)
}

/// Decimals for a value that was counted: none where it is whole, else two at most (amortised costs).
pub fn counted_decimals(value: f64) -> usize {
    match (value * 100.0).round() {
        hundredths if hundredths % 100.0 == 0.0 => 0,
        hundredths if hundredths % 10.0 == 0.0 => 1,
        _ => 2,
    }
}

/// Two counts, with as many decimals as distinguish them.
pub fn apart(ends: [f64; 2]) -> [String; 2] {
    let least = ends.map(counted_decimals).into_iter().max().unwrap_or(0);
    let most = MAX_COUNTED_DECIMALS;
    let texts = |decimals| ends.map(|end| fixed(end, decimals));
    let differ = |decimals: &usize| {
        let [low, high] = texts(*decimals);
        low != high
    };
    texts((least..most).find(differ).unwrap_or(most))
}

/// `value` with a fixed number of decimals, digits in threes, a true minus sign.
pub fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return MISSING.to_owned();
    }
    if value.abs() >= 1e15 {
        return format!("{value:.2e}").replace('-', "−");
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = match text.find('.') {
        Some(dot) => text.split_at(dot),
        None => (text.as_str(), ""),
    };
    let negative = value < 0.0 && text.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    let sign = if negative { "−" } else { "" };
    format!("{sign}{}{rest}", in_threes(whole))
}

/// As [`fixed`], with a plus sign where it is positive.
pub fn signed(value: f64, decimals: usize) -> String {
    let text = fixed(value, decimals);
    let positive = value > 0.0 && text.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    if positive { format!("+{text}") } else { text }
}

/// `[low, high]`.
pub fn interval([low, high]: [f64; 2], decimals: usize) -> String {
    format!("[{}, {}]", fixed(low, decimals), fixed(high, decimals))
}

/// `[+1.1, +2.7]`.
pub fn signed_interval(ends: [f64; 2], decimals: usize) -> String {
    let [low, high] = ends.map(|end| signed(end, decimals));
    format!("[{low}, {high}]")
}

/// `+1.9 %` and `[+1.1, +2.7]`: a difference as a share, in percent; the second empty without an interval.
pub fn change(share: f64, ci95: Option<[f64; 2]>) -> (String, String) {
    let ends = ci95.map(|ends| ends.map(|end| end * 100.0));
    let value = share * 100.0;
    let decimals = match value.abs() {
        0.0 if ends.is_none() => 0,
        // As many as leave a digit: one instruction in thousands is a difference.
        size if size < 0.0095 && ends.is_none() => 4,
        size if size < 9.95 => estimate_decimals(value, ends),
        _ => estimate_decimals(value, ends).min(1),
    };
    let text = match signed(value, decimals).as_str() {
        MISSING => MISSING.to_owned(),
        text => format!("{text}{HOLD}%"),
    };
    let interval = ends.map(|ends| signed_interval(ends, decimals));
    (text, interval.unwrap_or_default())
}

/// `20.1 ±0.3`: a value, and as far as its interval reaches from it.
pub fn with_reach(value: f64, ci95: Option<[f64; 2]>) -> String {
    let decimals = estimate_decimals(value, ci95);
    let text = fixed(value, decimals);
    match ci95.map(|[low, high]| (value - low).max(high - value)) {
        Some(reach) => format!("{text}{HOLD}±{}", fixed(reach, decimals)),
        None => text,
    }
}

/// A share as a percentage: 0.012 is `1.2 %`, with two significant digits below 10.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    let text = fixed(value, digits_below_ten(value));
    match text.as_str() {
        MISSING => text,
        text => format!("{text}{HOLD}%"),
    }
}

/// One decimal below 10, two below 0.1, none from 10 on.
fn digits_below_ten(value: f64) -> usize {
    match value.abs() {
        size if size >= 9.95 => 0,
        size if size < 0.095 && size > 0.0 => 2,
        _ => 1,
    }
}

/// A share of which people name whole numbers: 0.01 is `1 %`, 0.025 is `2.5 %`.
pub fn round_percent(share: f64) -> String {
    let text = percent(share);
    text.replace(".0\u{A0}%", "\u{A0}%")
}

/// `118,204`.
pub fn count(value: u64) -> String {
    in_threes(&value.to_string())
}

/// `1 case`, `3 cases`.
pub fn plural(number: usize, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(number as u64))
}

/// The counts above zero, with their words: `2 cost more`, `1 is the same`.
pub fn counts(all: &[(usize, &str)]) -> Vec<String> {
    let singular = [
        ("cost ", "costs "),
        ("differ", "differs"),
        ("are ", "is "),
        ("cases ", "case "),
    ];
    let words = |&(number, words): &(usize, &str)| {
        let mut words = words.to_owned();
        if number == 1 {
            for (many, one) in singular {
                words = words.replacen(many, one, 1);
            }
        }
        format!("{} {words}", count(number as u64))
    };
    let some = all.iter().filter(|one| one.0 > 0);
    some.map(words).collect()
}

/// `a, b and c`.
pub fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

/// A time as one names it: `40 s`, `3 min`, `2.5 h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return MISSING.to_owned();
    }
    match seconds {
        s if s < 0.9995 => format!("{}{HOLD}ms", fixed(s * 1e3, plain_decimals(s * 1e3).min(1))),
        s if s < 9.95 => format!("{s:.1}{HOLD}s").replace(".0\u{A0}", "\u{A0}"),
        s if s < 119.5 => format!("{s:.0}{HOLD}s"),
        s if s < 119.5 * 60.0 => format!("{:.0}{HOLD}min", s / 60.0),
        s => format!("{}{HOLD}h", fixed(s / 3600.0, 1)),
    }
}

/// A size in memory: `38 MB` (powers of ten).
pub fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b < 1e3 => format!("{b:.0}{HOLD}B"),
        b if b < 1e6 => format!("{:.0}{HOLD}kB", b / 1e3),
        b if b < 1e9 => format!("{:.0}{HOLD}MB", b / 1e6),
        b => format!("{:.1}{HOLD}GB", b / 1e9),
    }
}

/// `text` with plain spaces alone, for terminals and files that people search.
pub fn plain_spaces(text: &str) -> String {
    text.replace(HOLD, " ")
}

/// Pads on the right with `point` and `digit` until the decimal points of right-aligned texts
/// stand below each other.
pub fn align(texts: &mut [String], point: char, digit: char) {
    let decimals = |text: &str| {
        text.find('.').map(|dot| {
            text[dot + 1..]
                .chars()
                .take_while(char::is_ascii_digit)
                .count()
        })
    };
    let most = texts.iter().filter_map(|text| decimals(text)).max();
    for text in texts {
        if !text.ends_with(|last: char| last.is_ascii_digit()) {
            continue;
        }
        match (most, decimals(text)) {
            (Some(most), Some(own)) => text.extend((own..most).map(|_| digit)),
            (Some(most), None) => {
                text.push(point);
                text.extend((0..most).map(|_| digit));
            }
            (None, _) => {}
        }
    }
}

/// The next of 1, 2, 5 times a power of ten.
pub fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let rounds = [1.0, 2.0, 5.0].map(|factor| factor * power);
    let mut rounds = rounds.into_iter();
    rounds
        .find(|round| *round >= step * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// A comma between groups of three.
fn in_threes(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_follow_the_interval() {
        assert_eq!(decimals(0.16), 2);
        assert_eq!(decimals(1.6), 1);
        assert_eq!(decimals(16.0), 0);
        assert_eq!(decimals(0.000_1), 3);
        assert_eq!(decimals(f64::NAN), 2);
        assert_eq!(fixed(83.142, 2), "83.14");
        assert_eq!(fixed(118_204.0, 0), "118,204");
        assert_eq!(fixed(-0.001, 2), "0.00");
        assert_eq!(signed(0.001, 2), "0.00");
        assert_eq!(signed(-12.34, 1), "−12.3");
        assert_eq!(fixed(f64::NAN, 2), MISSING);
        assert_eq!(fixed(f64::INFINITY, 2), MISSING);
        assert_eq!(fixed(1e300, 2), "1.00e300");
    }

    #[test]
    fn counts_that_differ_look_different() {
        let texts = |ends| apart(ends).join(" ");
        assert_eq!(texts([41.0, 43.0]), "41 43");
        assert_eq!(texts([41.0, 41.5]), "41.0 41.5");
        assert_eq!(texts([41.000_4, 41.002]), "41.000 41.002");
        assert_eq!(texts([41.0, 41.000_001]), "41.000000 41.000001");
        // No more than a batch can distinguish.
        assert_eq!(texts([41.0, 41.000_000_1]), "41.000000 41.000000");
    }

    #[test]
    fn counts_have_decimals_only_where_they_need_them() {
        let counted = |value| fixed(value, counted_decimals(value));
        assert_eq!(counted(293.0), "293");
        assert_eq!(counted(2_972.5), "2,972.5");
        assert_eq!(counted(0.333), "0.33");
        assert_eq!(counted(292.999), "293");
        assert_eq!(counted(-3.0), "−3");
        assert_eq!(counted(f64::NAN), MISSING);
        assert_eq!(counted(f64::INFINITY), MISSING);
    }

    #[test]
    fn percentages_and_times() {
        assert_eq!(plain_spaces(&percent(0.012)), "1.2 %");
        assert_eq!(plain_spaces(&percent(0.193)), "19 %");
        assert_eq!(plain_spaces(&percent(0.000_5)), "0.05 %");
        assert_eq!(plain_spaces(&round_percent(0.01)), "1 %");
        assert_eq!(percent(f64::NAN), MISSING);
        assert_eq!(plain_spaces(&duration(40.0)), "40 s");
        assert_eq!(plain_spaces(&duration(0.0123)), "12.3 ms");
        assert_eq!(plain_spaces(&duration(3_000.0)), "50 min");
        assert_eq!(plain_spaces(&duration(9_000.0)), "2.5 h");
        assert_eq!(duration(f64::INFINITY), MISSING);
        assert_eq!(plural(1, "case"), "1 case");
        assert_eq!(plural(1_200, "case"), "1,200 cases");
    }

    #[test]
    fn decimal_points_line_up() {
        let mut texts = ["83.14", "855.7", "4", MISSING].map(str::to_owned);
        align(&mut texts, ' ', ' ');
        assert_eq!(texts, ["83.14", "855.7 ", "4   ", MISSING]);
    }
}
