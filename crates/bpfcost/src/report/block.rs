//! A small table with what is to know of it, made once for the terminal, Markdown and HTML alike.

use std::fmt::Write;

use crate::report::{
    markdown, number,
    style::{Style, Tone},
    table::{self, GAP, Grid},
    text,
};

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// What it is about.
    pub title: String,
    /// Headings; the first column is of names, and those that hold numbers are right-aligned.
    pub head: Vec<Head>,
    /// Rows, as long as the head.
    pub rows: Vec<Vec<Cell>>,
    /// Findings, most important first.
    pub notes: Vec<Note>,
    /// How to read it.
    pub captions: Vec<String>,
}

/// The heading of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its words.
    pub text: String,
    /// Whether numbers are below it.
    pub number: bool,
}

/// A cell: its text, and the number that it is of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// The text.
    pub text: String,
    /// What it sorts by.
    pub key: Option<f64>,
    /// What it says beyond its words.
    pub tone: Tone,
}

/// A sentence below a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The words.
    pub text: String,
    /// How much it matters.
    pub tone: Tone,
}

impl Head {
    /// A column of words.
    pub fn words(text: impl Into<String>) -> Self {
        let text = text.into();
        Head {
            text,
            number: false,
        }
    }

    /// A column of numbers.
    pub fn number(text: impl Into<String>) -> Self {
        let text = text.into();
        Head { text, number: true }
    }
}

impl Cell {
    /// Words.
    pub fn words(text: impl Into<String>) -> Self {
        Cell {
            text: text.into(),
            ..Cell::default()
        }
    }

    /// A number.
    pub fn number(text: impl Into<String>, key: f64) -> Self {
        Cell {
            text: text.into(),
            key: Some(key),
            tone: Tone::Plain,
        }
    }
}

impl Block {
    /// For a terminal.
    pub fn terminal(&self, out: &mut String, style: Style) {
        let title = text::wrap(&self.title, style.width, "");
        let _ = writeln!(out, "{}", style.bold(&title));
        for columns in self.beside(style.width) {
            out.push_str(&self.grid(&columns, style));
        }
        for note in &self.notes {
            let text = text::wrap(&note.text, style.width, "  ");
            let text = match note.tone {
                Tone::Open | Tone::Alarm => style.caution(&text),
                _ => text,
            };
            let _ = writeln!(out, "{text}");
        }
        for words in &self.captions {
            table::caption(out, words, style);
        }
        out.push('\n');
    }

    /// Some of its columns.
    fn grid(&self, columns: &[usize], style: Style) -> String {
        let head: Vec<&str> = columns
            .iter()
            .map(|&at| self.head[at].text.as_str())
            .collect();
        let right = (0..columns.len()).filter(|&place| self.head[columns[place]].number);
        let mut grid = Grid::new(&head, &right.collect::<Vec<usize>>(), style);
        for row in &self.rows {
            let cells = columns.iter().filter_map(|&at| row.get(at));
            grid.row(cells.map(|cell| (cell.text.clone(), cell.tone)).collect());
        }
        grid.render()
    }

    /// The columns that stand beside each other: all of them, unless they are numbers that have no room.
    /// Names stand before each part.
    fn beside(&self, room: usize) -> Vec<Vec<usize>> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let numbers = self.head.iter().skip(1).all(|head| head.number);
        let mut parts: Vec<Vec<usize>> = vec![vec![0]];
        let mut used = self.width(0);
        for at in 1..self.head.len() {
            let own = GAP + self.width(at);
            if numbers && used + own > room && parts.last().is_some_and(|part| part.len() > 1) {
                parts.push(vec![0]);
                used = self.width(0);
            }
            used += own;
            if let Some(part) = parts.last_mut() {
                part.push(at);
            }
        }
        parts
    }

    /// What a column takes of a line.
    fn width(&self, at: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let texts = self.head[at]
            .text
            .lines()
            .chain(cells.map(|cell| cell.text.as_str()));
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    }

    /// As Markdown.
    pub fn markdown(&self, out: &mut String) {
        let escaped = |text: &str| markdown::escape(text);
        let _ = writeln!(out, "**{}**\n", escaped(&self.title));
        if !self.rows.is_empty() {
            let head = self.head.iter().map(|head| {
                // A name that takes two lines on a terminal has room here.
                escaped(&head.text.replace('\n', ""))
            });
            let _ = writeln!(out, "| {} |", head.collect::<Vec<_>>().join(" | "));
            let marks = self.head.iter().map(|head| match head.number {
                true => "--:|",
                false => ":--|",
            });
            let _ = writeln!(out, "|{}", marks.collect::<String>());
            for row in &self.rows {
                let cells = row.iter().enumerate().map(|(place, cell)| match place {
                    0 => markdown::code(&cell.text),
                    _ => escaped(&cell.text),
                });
                let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
            }
            out.push('\n');
        }
        let notes = self.notes.iter().map(|note| escaped(&note.text));
        let captions = self.captions.iter().map(|text| escaped(text));
        let below: Vec<String> = notes.chain(captions).collect();
        if !below.is_empty() {
            let _ = writeln!(out, "{}\n", below.join("  \n"));
        }
    }
}

/// A text for people that holds blocks alone.
pub fn plain(blocks: &[Block], show: impl Fn(&Block, &mut String)) -> String {
    let mut out = String::new();
    for block in blocks {
        show(block, &mut out);
    }
    number::plain_spaces(&out)
}
