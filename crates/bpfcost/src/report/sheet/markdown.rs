//! The table as Markdown.

use std::fmt::Write;

use super::Sheet;
use crate::report::{
    markdown::{code, escape},
    matrix::mark,
};

/// The table alone, in Markdown.
pub fn render(sheet: &Sheet<'_>) -> String {
    let mut out = String::new();
    let columns: Vec<String> = sheet.columns.iter().map(|name| escape(name)).collect();
    let floors = sheet.floors_differ();
    let floor = if floors { " floor |" } else { "" };
    let _ = writeln!(
        out,
        "| {} | {} |{floor}",
        escape(&sheet.corner),
        columns.join(" | ")
    );
    let rule = if floors { ":--|" } else { "" };
    let _ = writeln!(out, "|:--|{}{rule}", "--:|".repeat(columns.len()));
    for row in &sheet.rows {
        let mut line = code(&row.name);
        for cell in &row.cells {
            let text = &cell.text;
            let open = match sheet.record.unit.is_counted() {
                true => &text.range,
                false => &text.width,
            };
            // A count that goes by the load is the range that it takes.
            let value = match (sheet.record.unit.is_counted(), open.as_str()) {
                (true, range) if !range.is_empty() => range.to_owned(),
                _ => format!("{}{} {open}", text.value, mark(cell.footnote)),
            };
            let _ = write!(line, " | {}", escape(value.trim_end()));
        }
        if floors {
            let _ = write!(line, " | {}", code(&row.floor));
        }
        let _ = writeln!(out, "| {line} |");
    }
    out
}
