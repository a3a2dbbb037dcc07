//! Text from outside, made safe to show: names, details, the output of tools.

/// `text` without control characters or changes of writing direction, so that it can neither
/// drive a terminal nor reorder a line. Tabs become spaces, line ends stay out.
pub fn line(text: &str) -> String {
    clean(text, false)
}

/// As [`line()`], but line ends stay.
pub fn block(text: &str) -> String {
    clean(text, true)
}

fn clean(text: &str, keep_lines: bool) -> String {
    text.chars()
        .filter(|&c| c != '\r')
        .map(|c| match c {
            '\n' if keep_lines => '\n',
            '\n' | '\t' => ' ',
            // The private use area that `grid` marks headings with.
            '\u{E000}'..='\u{F8FF}' => '\u{FFFD}',
            c if drives(c) => '\u{FFFD}',
            c => c,
        })
        .collect()
}

/// `text` as a terminal may have it: line ends and tabs stay, and whatever else could drive it is replaced.
pub fn printable(text: &str) -> String {
    let kept = |c: char| matches!(c, '\n' | '\t') || !drives(c);
    text.chars()
        .filter(|&c| c != '\r')
        .map(|c| if kept(c) { c } else { '\u{FFFD}' })
        .collect()
}

/// Control characters, and those that change the direction of writing.
fn drives(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Breaks `text` into lines of at most `width` characters at spaces, each after `indent`.
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    let room = width.saturating_sub(indent.chars().count()).max(20);
    let mut lines = vec![String::new()];
    let mut used = 0;
    // A no-break space holds a number and its unit together.
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > room {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += length;
        }
    }
    lines
        .iter()
        .map(|line| format!("{indent}{line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(line("a\u{1b}[31mb\nc\u{202e}"), "a\u{FFFD}[31mb c\u{FFFD}");
        assert_eq!(block("a\r\nb\tc"), "a\nb c");
        assert_eq!(
            printable("a\u{1b}]0;b\u{7}\u{9b}c\u{202e}\r\n\td"),
            "a\u{FFFD}]0;b\u{FFFD}\u{FFFD}c\u{FFFD}\n\td"
        );
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(
            wrap("one two three four five six", 22, "  "),
            "  one two three four\n  five six"
        );
        assert_eq!(wrap("", 80, ""), "");
    }
}
