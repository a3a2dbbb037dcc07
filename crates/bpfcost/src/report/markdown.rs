//! Markdown for a pull request or an issue: the same tables, as GitHub shows them.

use std::fmt::Write;

use crate::{
    record::{Record, Status},
    report::{
        cpus,
        number::{self, MISSING},
        parts, rows,
        sheet::{self, Sheet},
        summary, target, text, words,
    },
};

/// The record as Markdown.
pub fn render(record: &Record) -> String {
    let mut out = String::new();
    let title = format!(
        "{} on {}",
        text::line(&record.experiment),
        target::label(record)
    );
    let _ = writeln!(out, "### {}\n", escape(&title));
    let _ = writeln!(out, "{}\n", escape(&summary::sentence(record)));
    match Sheet::new(record) {
        Some(sheet) => sheet_and_notes(&mut out, &sheet),
        None => cases(&mut out, record),
    }
    for block in parts::blocks(record) {
        block.markdown(&mut out);
    }
    invalid(&mut out, record);
    if !record.warnings.is_empty() {
        out.push_str("**Warnings**\n\n");
        for warning in &record.warnings {
            let _ = writeln!(out, "- {}", escape(&text::line(&warning.text)));
        }
        out.push('\n');
    }
    let _ = writeln!(out, "{}", escape(&origin(record)));
    number::plain_spaces(&out)
}

/// One table of all cells, and what is to know of it.
fn sheet_and_notes(out: &mut String, sheet: &Sheet<'_>) {
    out.push_str(&sheet::markdown(sheet));
    let notes = sheet.notes().into_iter().chain(sheet.captions());
    let lines: Vec<String> = notes.map(|line| escape(&line)).collect();
    let _ = writeln!(out, "\n{}\n", lines.join("  \n"));
}

/// Every case, and what differs from what.
fn cases(out: &mut String, record: &Record) {
    for group in rows::groups(record) {
        let _ = writeln!(
            out,
            "| {} | {} | {} | net | note |",
            escape(&group.name),
            record.unit,
            words::spread_heading(record.unit)
        );
        out.push_str("|:--|--:|:--|:--|:--|\n");
        for row in &group.rows {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                code(&row.name),
                escape(&row.cost),
                escape(&row.interval),
                escape(&row.net),
                escape(&row.note())
            );
        }
        out.push('\n');
    }
    if !record.cases.is_empty() {
        let captions: Vec<String> = words::captions(record).iter().map(|c| escape(c)).collect();
        let _ = writeln!(out, "{}\n", captions.join("  \n"));
    }
    several_cpus(out, record);
    comparisons(out, record);
}

/// Where a record comes from, in a line.
pub fn origin(record: &Record) -> String {
    let machine = &record.machine;
    let kernel = match machine.kernel.is_empty() {
        true => MISSING.to_owned(),
        false => text::line(&machine.kernel),
    };
    let emulator = machine
        .emulator
        .as_deref()
        .map_or_else(String::new, |emulator| {
            format!(" in {}", text::line(emulator))
        });
    format!(
        "bpfcost {}, {}, Linux {kernel} on {}{emulator}, seed {}.",
        text::line(&record.bpfcost),
        text::line(&record.started),
        text::line(&machine.cpu),
        record.seed
    )
}

/// What each CPU did, where there were several.
fn several_cpus(out: &mut String, record: &Record) {
    let rows = cpus::rows(record);
    if rows.is_empty() {
        return;
    }
    let columns = cpus::columns(record);
    let _ = writeln!(
        out,
        "| {} on each CPU | {} |",
        record.unit,
        columns.join(" | ")
    );
    let _ = writeln!(out, "|:--|{}", "--:|".repeat(columns.len()));
    for row in rows {
        let cells: Vec<String> = row.cells().iter().map(|(text, _)| escape(text)).collect();
        let _ = writeln!(out, "| {} | {} |", code(&row.name), cells.join(" | "));
    }
    let _ = writeln!(out, "\n{}\n", cpus::CAPTION);
}

fn comparisons(out: &mut String, record: &Record) {
    let pairs = rows::pairs(record);
    if pairs.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "| case | against | difference ({}) | {} | verdict |",
        record.unit,
        words::relative_heading(record.unit)
    );
    out.push_str("|:--|:--|:--|:--|:--|\n");
    for pair in &pairs {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            code(&pair.case),
            code(&pair.baseline),
            escape(format!("{} {}", pair.difference, pair.difference_interval).trim_end()),
            escape(format!("{} {}", pair.relative, pair.interval).trim_end()),
            escape(&pair.verdict)
        );
    }
    let _ = writeln!(out, "\n{}\n", escape(&words::pair_caption(record)));
}

fn invalid(out: &mut String, record: &Record) {
    let cases = record
        .cases
        .iter()
        .filter(|case| case.status == Status::Invalid);
    for case in cases {
        for (problem, details) in words::invalid_lines(case, record) {
            // Four spaces make a block that no text inside can end.
            let _ = writeln!(out, "    {problem}");
            for detail in details {
                let _ = writeln!(out, "      {detail}");
            }
        }
        out.push('\n');
    }
}

/// A name in backticks.
pub(super) fn code(name: &str) -> String {
    let name = name.replace('`', "'").replace('|', "\\|");
    match name.trim().is_empty() {
        true => MISSING.to_owned(),
        false => format!("`{name}`"),
    }
}

/// Text in which nothing is Markdown or HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '#' | '~' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}
