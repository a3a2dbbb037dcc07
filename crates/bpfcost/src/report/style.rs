//! Terminal output: with colour or without, and its width.

use std::io::IsTerminal;

use comfy_table::{Color, Table};

/// How text for a terminal is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether escape sequences for colour and weight are written.
    pub colour: bool,
    /// Columns that a line may take.
    pub width: usize,
}

/// The default width.
pub const WIDTH: usize = 100;
/// Below this, tables keep this width and the terminal breaks them.
const NARROWEST: usize = 60;
/// Above this, eyes lose the line.
const WIDEST: usize = 140;

impl Default for Style {
    fn default() -> Self {
        Style {
            colour: false,
            width: WIDTH,
        }
    }
}

impl Style {
    /// What fits standard output: colour on a terminal alone, and not with `NO_COLOR`.
    pub fn for_stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Style {
            colour: terminal && !no_colour && !dumb,
            width: match Table::new().width() {
                Some(width) if terminal => usize::from(width).clamp(NARROWEST, WIDEST),
                _ => WIDTH,
            },
        }
    }

    /// Headings.
    pub(super) fn bold(self, text: &str) -> String {
        self.wrapped(text, "1")
    }

    /// What matters less.
    pub(super) fn dim(self, text: &str) -> String {
        self.wrapped(text, "2")
    }

    /// What went wrong.
    pub(super) fn alarm(self, text: &str) -> String {
        self.wrapped(text, "1;31")
    }

    /// What asks for attention.
    pub(super) fn caution(self, text: &str) -> String {
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

/// What a line or a cell says, beyond its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    /// Nothing beyond them.
    #[default]
    Plain,
    /// Costs more.
    More,
    /// Costs less.
    Less,
    /// The same, or of less weight.
    Quiet,
    /// Not known well enough.
    Open,
    /// Has no result.
    Alarm,
}

impl Tone {
    /// The terminal's colour for it.
    pub(super) fn colour(self) -> Option<Color> {
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
