//! A table with its notes and captions, made once for the terminal, Markdown and HTML alike.

use serde::Serialize;

use crate::style::Tone;
use bpfcost_text::number;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Title; may be empty.
    pub title: String,
    /// Headings; the first column is of names.
    pub head: Vec<Head>,
    /// Rows, as long as the head.
    pub rows: Vec<Vec<Cell>>,
    /// Headings between rows, each with the place of the row that follows it.
    pub groups: Vec<(usize, String)>,
    /// Findings, most important first.
    pub notes: Vec<Note>,
    /// Captions, which say how to read the table.
    pub captions: Vec<String>,
}

/// The heading of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Words. A terminal breaks them at `\n`.
    pub text: String,
    /// True for a column of numbers, which are right-aligned.
    pub number: bool,
    /// True if the column belongs to the one before: they are never parted, Markdown joins their cells, and only a
    /// page, where each can be sorted by, shows this heading.
    pub joined: bool,
    /// True if the column stays beside the one before.
    pub adjacent: bool,
}

/// A column: its heading, and the cell of each row.
pub struct Column<'a, R: ?Sized> {
    head: Head,
    cell: Box<dyn Fn(&R) -> Cell + 'a>,
}

impl<R: ?Sized> Column<'_, R> {
    /// The same column, empty where it is not wanted; no view shows an empty one.
    pub fn only(self, wanted: bool) -> Self {
        if wanted {
            self
        } else {
            self.head.cells(|_| Cell::default())
        }
    }
}

/// A cell: its text, and its number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// The text.
    pub text: String,
    /// Number by which a page sorts the column.
    pub key: Option<f64>,
    /// Tone of the text.
    pub tone: Tone,
}

/// A sentence below a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The words.
    pub text: String,
    /// Importance.
    pub tone: Tone,
}

impl Note {
    /// A sentence in a tone.
    pub fn new(tone: Tone, text: impl Into<String>) -> Self {
        Note {
            text: text.into(),
            tone,
        }
    }
}

impl Head {
    /// A column of words.
    pub fn words(text: impl Into<String>) -> Self {
        Head {
            text: text.into(),
            ..Head::default()
        }
    }

    /// A column of numbers.
    pub fn number(text: impl Into<String>) -> Self {
        Head {
            number: true,
            ..Head::words(text)
        }
    }

    /// The same column, joined to the one before it.
    pub fn joined(self) -> Self {
        Head {
            joined: true,
            ..self
        }
    }

    /// The same column, which stays beside the one before it.
    pub fn adjacent(self) -> Self {
        Head {
            adjacent: true,
            ..self
        }
    }

    /// Returns the column, with the cell of each row.
    pub fn cells<'a, R: ?Sized>(self, cell: impl Fn(&R) -> Cell + 'a) -> Column<'a, R> {
        Column {
            head: self,
            cell: Box::new(cell),
        }
    }

    pub(crate) fn line(&self) -> String {
        self.text.replace("-\n", "-").replace('\n', " ")
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
            key: Some(key),
            ..Cell::words(text)
        }
    }

    /// A number as `show` writes it; an empty cell without one.
    pub fn number_or_empty(value: Option<f64>, show: impl FnOnce(f64) -> String) -> Self {
        value.map_or_else(Cell::default, |value| Cell::number(show(value), value))
    }

    /// A text that sorts by a number, where it has one.
    pub fn keyed(text: impl Into<String>, key: Option<f64>) -> Self {
        Cell {
            key,
            ..Cell::words(text)
        }
    }

    /// The same in a tone.
    pub fn toned(self, tone: Tone) -> Self {
        Cell { tone, ..self }
    }
}

impl Table {
    /// Returns a table of rows.
    pub fn new<'r, R: 'r>(
        columns: Vec<Column<'_, R>>,
        rows: impl IntoIterator<Item = &'r R>,
    ) -> Self {
        Table::by_group(columns, [(String::new(), rows)])
    }

    /// A table of rows under headings; those without rows have none.
    pub fn by_group<'r, R: 'r, Rows: IntoIterator<Item = &'r R>>(
        columns: Vec<Column<'_, R>>,
        groups: impl IntoIterator<Item = (String, Rows)>,
    ) -> Self {
        let mut table = Table::default();
        for (name, rows) in groups {
            let start = table.rows.len();
            let row = |row| columns.iter().map(|column| (column.cell)(row)).collect();
            table.rows.extend(rows.into_iter().map(row));
            if !name.is_empty() && table.rows.len() > start {
                table.groups.push((start, name));
            }
        }
        table.head = columns.into_iter().map(|column| column.head).collect();
        table
    }

    /// The table, unless it has no rows.
    pub fn filled(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }

    /// The places of the columns that have anything in them; names always.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let filled = |at: &usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(*at));
            *at == 0 || cells.any(|cell| !cell.text.is_empty())
        };
        (0..self.head.len()).filter(filled).collect()
    }

    /// The rows by heading; without headings all under an empty one.
    pub(crate) fn row_groups(&self) -> Vec<(&str, &[Vec<Cell>])> {
        let mut starts: Vec<(usize, &str)> = Vec::new();
        starts.extend(self.groups.iter().map(|(at, name)| (*at, name.as_str())));
        if starts.first().is_none_or(|first| first.0 > 0) {
            starts.insert(0, (0, ""));
        }
        let ends = starts[1..].iter().map(|start| start.0);
        let ends: Vec<usize> = ends.chain([self.rows.len()]).collect();
        let section = |((at, name), end): (&(usize, _), usize)| (*name, &self.rows[*at..end]);
        let parts = starts.iter().zip(ends).map(section);
        parts.filter(|part| !part.1.is_empty()).collect()
    }
}

/// A text for people that holds blocks alone.
pub fn plain(tables: &[Table], show: impl Fn(&Table, &mut String)) -> String {
    let mut out = String::new();
    for table in tables {
        show(table, &mut out);
    }
    number::plain_spaces(&out)
}
