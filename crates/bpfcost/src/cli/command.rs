//! Commands on the command line.

use anyhow::Result;

use super::exit::usage;

/// The words of a command. Programs are started directly: a shell between them would be part of the cost.
pub(super) fn split(option: &str, command: &str) -> Result<Vec<String>> {
    match shlex::split(command) {
        Some(words) if words.iter().any(|word| shell_syntax(word)) => Err(usage(format!(
            "{option} is not run by a shell: {command}\n  Loops, pipes and redirections need a shell: {option} \"sh -c '…'\""
        ))),
        Some(words) if !words.is_empty() => Ok(words),
        Some(_) => Err(usage(format!("{option} is empty\n  Name a program"))),
        None => Err(usage(format!(
            "{option} has an unclosed quote: {command}\n  Close it"
        ))),
    }
}

/// Whether only a shell understands this word.
fn shell_syntax(word: &str) -> bool {
    let keyword = [
        "for", "while", "until", "if", "case", "&&", "||", "|", ";", "&",
    ];
    let redirection = word.trim_start_matches(|letter: char| letter.is_ascii_digit());
    keyword.contains(&word) || word.ends_with(';') || redirection.starts_with(['<', '>'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_asked_for() {
        for command in [
            "for i in 1 2; do true; done",
            "curl x > /dev/null",
            "a && b",
            "a 2>&1",
            "a | b",
        ] {
            assert!(split("--client", command).is_err(), "{command}");
        }
        for command in [
            "curl 'a&b|c'",
            "sh -c 'for i in 1; do true; done'",
            "ab -n 5 http://localhost:{port}/",
        ] {
            split("--client", command).expect(command);
        }
    }
}
