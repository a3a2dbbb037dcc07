//! The parts of a report: tables, figures and prose. The renderers know nothing else.

use serde::Serialize;

use crate::{style::Tone, table::Table};

/// Where a view is shown, and so how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// A terminal.
    Brief,
    /// Markdown: what a terminal shows, with room for more columns.
    Document,
    /// A terminal that was asked for everything.
    Full,
    /// A page: everything, and figures.
    Page,
}

/// The view of a record, or of several together.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// What was measured where.
    pub title: String,
    /// When; empty where that is not one time.
    pub started: String,
    /// The result in a sentence.
    pub summary: String,
    /// What the summary says beyond its words.
    pub tone: Tone,
    /// What follows it.
    pub sections: Vec<Section>,
    /// Where the numbers come from; empty where the sections say so.
    pub origin: String,
}

/// A part of a view.
#[derive(Clone, Debug)]
pub enum Section {
    /// A table.
    Table(Table),
    /// Figures; a page alone has them.
    Figures(Figures),
    /// Paragraphs.
    Prose(Prose),
    /// Why something has no result.
    Problem(ProblemText),
    /// What disturbed the run.
    Warnings(Warnings),
    /// Names with what stands beside them; a page alone has them.
    Facts(Facts),
}

/// Warnings, the most important first where not all are shown.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    /// One line each.
    pub lines: Vec<String>,
    /// How many warnings and captions are left out.
    pub more: usize,
}

/// Leaves the first two captions in all, and the first one of each further table, which says how to read it. The others are
/// counted with the warnings that are left out.
pub fn shorten(sections: &mut Vec<Section>) {
    let (mut room, mut more) = (2, 0);
    for section in sections.iter_mut() {
        if let Section::Table(table) = section {
            let kept = table.captions.len().min(room);
            more += table.captions.len() - kept;
            table.captions.truncate(kept);
            room = (room - kept).max(1);
        }
    }
    match sections.last_mut() {
        Some(Section::Warnings(warnings)) => warnings.more += more,
        _ if more == 0 => {}
        _ => sections.push(Section::Warnings(Warnings {
            lines: Vec::new(),
            more,
        })),
    }
}

/// Figures under a title.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// What they show.
    pub title: String,
    /// What their colours and marks mean, as HTML.
    pub key: String,
    /// How to read them.
    pub caption: String,
    /// The figures.
    pub figures: Vec<Figure>,
    /// How they stand.
    pub order: Order,
    /// What is to know below them.
    pub below: Vec<String>,
}

impl Figures {
    /// Figures under a title, below each other; nothing without any.
    pub fn of(title: &str, key: String, caption: String, figures: Vec<Figure>) -> Option<Self> {
        (!figures.is_empty()).then(|| Figures {
            title: title.to_owned(),
            key,
            caption,
            figures,
            ..Figures::default()
        })
    }
}

impl From<String> for Figure {
    /// A figure without a title.
    fn from(markup: String) -> Self {
        Figure {
            markup,
            ..Figure::default()
        }
    }
}

/// How figures stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Below each other, each as wide as the page.
    #[default]
    Rows,
    /// Beside each other where there is room.
    Small,
    /// As many beside each other as find room.
    Strips,
}

/// A figure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figure {
    /// Its title; empty where that of all of them says it.
    pub title: String,
    /// The figure, as HTML.
    pub markup: String,
}

/// Paragraphs under a title.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Prose {
    /// Their title; may be empty.
    pub title: String,
    /// The paragraphs.
    pub paragraphs: Vec<String>,
    /// Whether they stand out.
    pub tone: Tone,
}

/// Why something has no result.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProblemText {
    /// What was expected, and what was seen.
    pub problem: String,
    /// The detail as it was recorded, by lines; columns stay columns.
    pub details: Vec<String>,
}

/// Names with what stands beside them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// Their title; those without one are figures to weigh everything else by.
    pub title: String,
    /// The facts.
    pub facts: Vec<Fact>,
}

/// A name and what stands beside it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fact {
    /// The name.
    pub name: String,
    /// What stands beside it.
    pub value: String,
    /// What it says beyond its words.
    pub tone: Tone,
}

impl Fact {
    /// A fact in no tone.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Fact {
            name: name.into(),
            value: value.into(),
            tone: Tone::Plain,
        }
    }
}

/// Blocks as sections.
pub fn table_sections(tables: impl IntoIterator<Item = Table>) -> Vec<Section> {
    tables.into_iter().map(Section::Table).collect()
}
