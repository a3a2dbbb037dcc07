//! Terminal output: with colour or without, and its width.

use std::io::IsTerminal;

use bpfcost_text::printable;
use comfy_table::{Color, Table};

/// Colour and width of text for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// True to write escape sequences for colour and weight.
    pub colour: bool,
    /// Columns that a line of words may take.
    pub width: usize,
    /// Columns that a line of a table may take.
    pub table_width: usize,
}

/// The default width.
pub const WIDTH: usize = 100;
/// Below this, tables keep this width and the terminal breaks them.
const NARROWEST: usize = 60;
/// Above this, eyes lose the line.
const WIDEST: usize = 140;
/// Width of tables that no terminal shows: programs read a row on one line.
const UNBROKEN: usize = u16::MAX as usize;

impl Default for Style {
    fn default() -> Self {
        Style {
            colour: false,
            width: WIDTH,
            table_width: WIDTH,
        }
    }
}

impl Style {
    /// Returns the style for a terminal of that width.
    pub fn for_width(colour: bool, width: usize) -> Self {
        Style {
            colour,
            width,
            table_width: width,
        }
    }

    /// Returns the style for standard output: colour only on a terminal and without `NO_COLOR`; tables of any width
    /// elsewhere.
    pub fn for_stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let width = match Table::new().width() {
            Some(width) if terminal => usize::from(width).clamp(NARROWEST, WIDEST),
            _ => WIDTH,
        };
        Style {
            colour: terminal && !no_colour && !dumb,
            width,
            table_width: if terminal { width } else { UNBROKEN },
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrapped(text, "1")
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrapped(text, "2")
    }

    pub(crate) fn alarm(self, text: &str) -> String {
        self.wrapped(text, "1;31")
    }

    pub(crate) fn caution(self, text: &str) -> String {
        self.wrapped(text, "33")
    }

    fn wrapped(self, text: &str, code: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Sequences that styles are made of: those above, those of [`Tone`]s (as comfy-table writes them), of `check`, and of
/// the help (as clap writes them).
const SEQUENCES: [&str; 16] = [
    "\u{1b}[0m",
    "\u{1b}[1m",
    "\u{1b}[2m",
    "\u{1b}[4m",
    "\u{1b}[1;31m",
    "\u{1b}[31m",
    "\u{1b}[32m",
    "\u{1b}[33m",
    "\u{1b}[39m",
    "\u{1b}[22m",
    "\u{1b}[38;5;1m",
    "\u{1b}[38;5;3m",
    "\u{1b}[38;5;5m",
    "\u{1b}[38;5;6m",
    "\u{1b}[38;5;8m",
    "\u{1b}[m",
];

/// `text` as standard output may have it: no sequence but those of our own style drives a terminal.
pub fn cleaned(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut out = printable(parts.next().unwrap_or_default());
    for part in parts {
        let own = (SEQUENCES.iter())
            .filter_map(|sequence| sequence.strip_prefix('\u{1b}'))
            .find(|own| part.starts_with(own));
        match own {
            Some(own) => {
                out.push('\u{1b}');
                out.push_str(own);
                out.push_str(&printable(&part[own.len()..]));
            }
            None => {
                out.push('\u{FFFD}');
                out.push_str(&printable(part));
            }
        }
    }
    out
}

/// Meaning of a line or a cell, shown as a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    /// No colour.
    #[default]
    Plain,
    /// Costs more.
    More,
    /// Costs less.
    Less,
    /// The same, or of less weight.
    Quiet,
    /// Unresolved, or noted.
    Open,
    /// Has no result.
    Alarm,
}

impl Tone {
    pub(crate) fn colour(self) -> Option<Color> {
        match self {
            Tone::Plain => None,
            Tone::More => Some(Color::DarkYellow),
            Tone::Less => Some(Color::DarkCyan),
            Tone::Quiet => Some(Color::DarkGrey),
            Tone::Open => Some(Color::DarkMagenta),
            Tone::Alarm => Some(Color::DarkRed),
        }
    }
}

#[cfg(test)]
mod tests {
    use comfy_table::{Attribute, Cell};

    use super::*;

    #[test]
    fn own_styles_pass_and_nothing_else() {
        let style = Style {
            colour: true,
            ..Style::default()
        };
        let mut table = Table::new();
        table.enforce_styling();
        table.set_header([Cell::new("head").add_attribute(Attribute::Dim)]);
        for tone in [Tone::More, Tone::Less, Tone::Quiet, Tone::Open, Tone::Alarm] {
            let colour = tone.colour().expect("a colour");
            table.add_row([Cell::new("cell").fg(colour)]);
        }
        let own = [
            style.bold("a"),
            style.dim("b"),
            style.alarm("c"),
            style.caution("d"),
            table.to_string(),
        ];
        let own = own.join("\n");
        assert!(own.matches('\u{1b}').count() >= 20, "{own:?}");
        assert_eq!(cleaned(&own), own);
        for foreign in ["]0;title\u{7}", "[2J", "[8mhidden", "[1", "c", "\u{1b}"] {
            let cleaned = cleaned(&format!("a\u{1b}{foreign}"));
            assert!(!cleaned.contains(['\u{1b}', '\u{7}']), "{cleaned:?}");
        }
    }
}
