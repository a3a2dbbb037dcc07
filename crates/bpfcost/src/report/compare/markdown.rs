//! The comparison as Markdown, for a comment on a pull request.

use std::fmt::Write;

use super::{all_rows, captions, one_sided, sentence};
use crate::{
    record::Changes,
    report::{
        markdown::{code, escape},
        number, text,
    },
};

/// The comparison as Markdown.
pub fn render(changes: &Changes) -> String {
    let mut out = format!("**{}**\n\n", escape(&sentence(changes)));
    let rows = all_rows(changes);
    let counted = changes.cases.iter().all(|change| change.unit.is_counted());
    let change = if counted { "change" } else { "change, 95 %" };
    let mut heading = None;
    for row in &rows {
        if heading != Some(&row.heading) {
            let gap = if heading.is_some() { "\n" } else { "" };
            let _ = writeln!(
                out,
                "{gap}| {} | old | new | {change} | verdict |\n|:--|--:|--:|:--|:--|",
                escape(&row.heading)
            );
            heading = Some(&row.heading);
        }
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            code(&row.case),
            escape(&row.old),
            escape(&row.new),
            escape(format!("{} {}", row.relative, row.interval).trim_end()),
            escape(&row.verdict)
        );
    }
    if !rows.is_empty() {
        let _ = writeln!(out, "\n{}", captions(changes).join("  \n"));
    }
    let warnings = changes
        .warnings
        .iter()
        .map(|warning| text::line(&warning.text));
    let lines: Vec<String> = one_sided(changes).into_iter().chain(warnings).collect();
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in lines {
        let _ = writeln!(out, "- {}", escape(&line));
    }
    number::plain_spaces(&out)
}
