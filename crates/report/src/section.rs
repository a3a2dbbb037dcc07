//! The parts of a report: tables, figures and prose. The renderers know nothing else.

use serde::Serialize;

use crate::{style::Tone, table::Table};

/// Medium of a view, which decides how much of it is shown.
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
    /// Experiment and target.
    pub title: String,
    /// Start of the run; empty for several runs.
    pub started: String,
    /// The result in a sentence.
    pub summary: String,
    /// Tone of the summary.
    pub tone: Tone,
    /// Parts below the summary.
    pub sections: Vec<Section>,
    /// Origin of the numbers; empty where the sections have it.
    pub origin: String,
}

/// A part of a view.
#[derive(Clone, Debug)]
pub enum Section {
    /// A table.
    Table(Table),
    /// Figures; for pages alone.
    Figures(Figures),
    /// Paragraphs.
    Prose(Prose),
    /// Reason that a case has no result.
    Problem(ProblemText),
    /// Disturbances of the run.
    Warnings(Warnings),
    /// Names with values; for pages alone.
    Facts(Facts),
}

/// Warnings, the most important first where not all are shown.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    /// One line each.
    pub lines: Vec<String>,
    /// Number of warnings and captions that are left out.
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
    /// Title of them all.
    pub title: String,
    /// Legend of colours and marks, as HTML.
    pub key: String,
    /// Caption, which says how to read them.
    pub caption: String,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Arrangement.
    pub order: Order,
    /// Notes below them.
    pub below: Vec<String>,
}

impl Figures {
    /// Returns figures under a title, below each other; `None` without figures.
    pub(crate) fn titled(
        title: &str,
        key: String,
        caption: String,
        figures: Vec<Figure>,
    ) -> Option<Self> {
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

/// Arrangement of figures.
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
    /// Title; empty where that of all of them is enough.
    pub title: String,
    /// The figure, as HTML.
    pub markup: String,
}

/// Paragraphs under a title.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Prose {
    /// Title; may be empty.
    pub title: String,
    /// The paragraphs.
    pub paragraphs: Vec<String>,
    /// Tone; [`Tone::Open`] stands out.
    pub tone: Tone,
}

/// Failed check of a case, which has no result.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProblemText {
    /// Expected and seen.
    pub problem: String,
    /// The detail as it was recorded, by lines; columns stay columns.
    pub details: Vec<String>,
}

/// A list of names with values.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// Title; empty for the key figures of a run.
    pub title: String,
    /// The facts.
    pub facts: Vec<Fact>,
}

/// A name with a value.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fact {
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
    /// Tone of the value.
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

/// Tables as sections.
pub fn table_sections(tables: impl IntoIterator<Item = Table>) -> Vec<Section> {
    tables.into_iter().map(Section::Table).collect()
}
