//! Views as one HTML file that needs nothing else: no network, no fonts, light and dark, for a phone, a desk
//! and paper. Without its script it only loses sorting.
//!
//! Names in records come from outside, so the template escapes everything that is not markup made
//! by a figure, and a content security policy lets nothing run or load but the style and the script that
//! are part of this program.

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use minijinja::{AutoEscape, Environment, Value, context, value::Serde};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{
    section::{Section, View},
    style::Tone,
    table::{Cell, Note, Table},
};

const TEMPLATE: &str = include_str!("templates/report.html");
const STYLE: &str = include_str!("templates/report.css");
const SCRIPT: &str = include_str!("templates/report.js");

/// Words of more characters than this may wrap in their cell.
const WRAP: usize = 24;

#[derive(Serialize)]
struct HtmlTable<'a> {
    title: &'a str,
    columns: Vec<PageColumn>,
    rows: Vec<Vec<PageCell<'a>>>,
    notes: &'a [Note],
    captions: &'a [String],
}

#[derive(Serialize)]
struct PageColumn {
    name: String,
    number: bool,
}

/// A cell; `key` is what it sorts by where that is not its text, empty where it has no value.
#[derive(Serialize)]
struct PageCell<'a> {
    text: &'a str,
    key: Option<String>,
    class: String,
}

/// The records as one page; several become parts with a list of contents, those side by side in `across` first.
pub fn render(across: &[View], records: &[View]) -> Result<String> {
    let what = match (across, records) {
        ([], [one]) => one.title.clone(),
        ([one], _) => one.title.clone(),
        _ => format!("{} runs", records.len()),
    };
    let views: Vec<Value> = template_views("matrix", across)
        .chain(template_views("run", records))
        .collect();
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    templates
        .add_template("report.html", TEMPLATE)
        .context("the template of reports does not parse")?;
    let template = templates.get_template("report.html");
    let page = template.and_then(|template| {
        template.render(context! {
            title => format!("What eBPF costs: {what}"),
            views,
            style => STYLE,
            script => SCRIPT,
            style_hash => hash(STYLE),
            script_hash => hash(SCRIPT),
            version => env!("CARGO_PKG_VERSION"),
        })
    });
    page.context("the report could not be rendered")
}

/// Hash of an inline text for the content security policy.
fn hash(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text))
}

/// Views as the template takes them, numbered.
fn template_views<'a>(kind: &'a str, views: &'a [View]) -> impl Iterator<Item = Value> {
    let section = |section: &Section| match section {
        Section::Table(table) => {
            context! { table => Value::from(Serde(html_table(table))) }
        }
        Section::Figures(figures) => context! { figures => Value::from(Serde(figures)) },
        Section::Prose(prose) => context! { prose => Value::from(Serde(prose)) },
        Section::Problem(problem) => context! { problem => Value::from(Serde(problem)) },
        Section::Warnings(warnings) => context! { warnings => &warnings.lines },
        Section::Facts(facts) => context! { facts => Value::from(Serde(facts)) },
    };
    views.iter().enumerate().map(move |(place, view)| {
        let sections: Vec<Value> = view.sections.iter().map(section).collect();
        context! {
            id => format!("{kind}-{}", place + 1),
            title => &view.title,
            started => &view.started,
            summary => &view.summary,
            origin => &view.origin,
            sections,
        }
    })
}

/// A table; headings between rows become a column, so that rows can be sorted.
fn html_table(table: &Table) -> HtmlTable<'_> {
    let places = table.columns();
    let column = |at: &usize| PageColumn {
        name: table.head[*at].line(),
        number: table.head[*at].number,
    };
    let mut columns: Vec<PageColumn> = places.iter().map(column).collect();
    let grouped = !table.groups.is_empty();
    if grouped {
        let (name, number) = ("group".to_owned(), false);
        columns.insert(1, PageColumn { name, number });
    }
    let mut rows = Vec::with_capacity(table.rows.len());
    for (name, group) in table.row_groups() {
        for row in group {
            let cells = places.iter().filter_map(|at| {
                let number = table.head[*at].number;
                row.get(*at).map(|cell| page_cell(cell, number))
            });
            let mut cells: Vec<PageCell<'_>> = cells.collect();
            if grouped {
                let (key, class) = (None, String::new());
                let text = name;
                cells.insert(1, PageCell { text, key, class });
            }
            rows.push(cells);
        }
    }
    // A table without rows says what it has to say below.
    if rows.is_empty() {
        columns.clear();
    }
    HtmlTable {
        title: &table.title,
        columns,
        rows,
        notes: &table.notes,
        captions: &table.captions,
    }
}

fn page_cell(cell: &Cell, number: bool) -> PageCell<'_> {
    let key = cell.key.filter(|key| key.is_finite());
    let tone = match cell.tone {
        Tone::More => "more",
        Tone::Less => "less",
        Tone::Open => "open",
        Tone::Alarm => "alarm",
        Tone::Plain | Tone::Quiet => "",
    };
    let long = !number && cell.key.is_none() && cell.text.chars().count() > WRAP;
    let kind = match (number, long) {
        (true, _) => "n ",
        (_, true) => "wrap ",
        _ => "",
    };
    PageCell {
        text: &cell.text,
        // What has no number stays at the end of a column of numbers.
        key: match (key, number || cell.key.is_some()) {
            (Some(key), _) => Some(key.to_string()),
            (None, true) => Some(String::new()),
            (None, false) => None,
        },
        class: format!("{kind}{tone}").trim_end().to_owned(),
    }
}
