//! Text from a record, made safe to show: names and details come from outside.

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
            // Bidirectional controls, and the private use area that `grid` marks headings with.
            '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{E000}'..='\u{F8FF}' => {
                '\u{FFFD}'
            }
            c if c.is_control() => '\u{FFFD}',
            c => c,
        })
        .collect()
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
