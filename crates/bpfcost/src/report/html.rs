//! One HTML file that needs nothing else: no network, no fonts, light and dark, for a phone, a desk
//! and paper. Without its script it only loses sorting.
//!
//! Names in records come from outside, so the template escapes everything that is not markup made
//! here, and a content security policy lets nothing run or load but the style and the script that
//! are part of this program.

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use minijinja::{AutoEscape, Environment, Value, context, value::Serde};
use sha2::{Digest, Sha256};

use crate::{
    record::Record,
    report::{
        matrix::{self, Matrix, Part},
        page::{MatrixSection, Section},
        rate::Load,
        target, text,
    },
};

const TEMPLATE: &str = include_str!("templates/report.html");
const STYLE: &str = include_str!("templates/report.css");
const SCRIPT: &str = include_str!("templates/report.js");

/// The records as one page; several become sections with a list of contents.
pub fn render(records: &[Record]) -> Result<String> {
    render_at(records, Load::default())
}

/// The same, with what attach types cost at a rate, or how many events a share of a core pays for.
pub fn render_at(records: &[Record], load: Load) -> Result<String> {
    let sections: Vec<Section> = records
        .iter()
        .enumerate()
        .map(|one| Section::new(one, load))
        .collect();
    let parts = matrix::parts(records);
    let matrices: Vec<&Matrix<'_>> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Matrix(matrix, _) => Some(&**matrix),
            Part::Alone(_) => None,
        })
        .collect();
    let title = match (records, matrices.as_slice()) {
        ([record], _) if record.layout.workload().is_some() => format!(
            "What probes cost {} on {}",
            text::line(&record.experiment),
            target::label(record)
        ),
        ([record], _) => format!(
            "What {} costs on {}",
            text::line(&record.experiment),
            target::label(record)
        ),
        (_, [matrix]) if parts.len() == 1 => {
            format!(
                "What {} costs on {} targets",
                matrix.experiment,
                matrix.heads.len()
            )
        }
        _ => format!("What eBPF costs: {} runs", records.len()),
    };
    let matrices: Vec<MatrixSection> = matrices
        .into_iter()
        .enumerate()
        .map(MatrixSection::new)
        .collect();
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    templates
        .add_template("report.html", TEMPLATE)
        .context("the template of reports does not parse")?;
    templates
        .get_template("report.html")
        .and_then(|template| {
            template.render(context! {
                title,
                matrices => Value::from(Serde(&matrices)),
                sections => Value::from(Serde(&sections)),
                style => STYLE,
                script => SCRIPT,
                style_hash => hash(STYLE),
                script_hash => hash(SCRIPT),
                version => env!("CARGO_PKG_VERSION"),
            })
        })
        .context("the report could not be rendered")
}

/// What a content security policy knows an inline text by.
fn hash(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text))
}
