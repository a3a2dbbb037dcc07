//! Suggests a name for a mistyped one.

/// The least similarity of two names for one to be suggested for the other (Jaro–Winkler, 0 to 1).
const ALIKE: f64 = 0.7;

/// ` (did you mean NAME?)`, or nothing where no name is near.
pub fn suggest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let plain = name.replace(['*', '?'], "");
    names
        .map(|one| (strsim::jaro_winkler(&plain, one), one))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, one)| format!(" (did you mean {one}?)"))
        .unwrap_or_default()
}
