//! Replaces one object of `bpf/` by a wrong one, to test that it is caught. Only builds with the feature `mutants` can.

use std::{env, fs, sync::OnceLock};

/// `NAME=FILE`: the object, and what is loaded in its place.
const VARIABLE: &str = "BPFCOST_MUTANT";

/// The object to load: the one that was built, or the one that [`VARIABLE`] names.
pub(crate) fn object(name: &str, built: &'static [u8]) -> &'static [u8] {
    static MUTANT: OnceLock<Option<(String, Vec<u8>)>> = OnceLock::new();
    let mutant = MUTANT.get_or_init(|| {
        let value = env::var(VARIABLE).ok()?;
        let (name, file) = value.split_once('=')?;
        let bytes = fs::read(file).unwrap_or_else(|error| panic!("{VARIABLE}: {file}: {error}"));
        Some((name.to_owned(), bytes))
    });
    match mutant {
        Some((mutated, bytes)) if mutated == name => bytes,
        _ => built,
    }
}
