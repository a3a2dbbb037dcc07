//! JSON, the contract: one record, or an array of them where a command makes several.

use anyhow::Result;

use bpfcost_record::Record;

/// The records as JSON on one line (100,000 samples are not for eyes), ending in a newline.
pub fn render(records: &[Record]) -> Result<String> {
    let mut text = match records {
        [record] => serde_json::to_string(record)?,
        records => serde_json::to_string(records)?,
    };
    text.push('\n');
    Ok(text)
}
