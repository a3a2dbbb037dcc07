//! Maps of a command line: `NAME=FILE.json` or `NAME=FILE.csv` fills one, `NAME:max_entries=N` changes its size.

use std::path::Path;

use bpfcost_bpf::program::{MapContents, MapEntry, ObjectFile};

use super::{InputError, map_file::Syntax, packet};

/// What stands between a map's name and its size.
const SIZE: &str = ":max_entries";

/// Names the maps of an object, for errors.
pub(super) fn names(maps: &[MapEntry]) -> String {
    let names: Vec<&str> = maps.iter().map(|map| &*map.name).collect();
    match names.as_slice() {
        [] => "It has no maps".to_owned(),
        names => format!("Its maps: {}", names.join(", ")),
    }
}

/// What these words say of the maps of an object.
pub fn maps(words: &[String], object: &ObjectFile) -> anyhow::Result<Vec<MapContents>> {
    let mut settings: Vec<MapContents> = Vec::new();
    for word in words {
        let wrong = |why: String| InputError::Wrong(format!("--map {word}: {why}"));
        let (name, value) = word.split_once('=').ok_or_else(|| {
            wrong("nothing is set\n  Write NAME=FILE.json, or NAME:max_entries=N".to_owned())
        })?;
        let (name, is_size) = match name.strip_suffix(SIZE) {
            Some(name) => (name, true),
            None => (name, false),
        };
        let all = object.maps()?;
        let map = all.iter().find(|map| map.name == name);
        let map = map.ok_or_else(|| {
            wrong(format!(
                "there is no map {name} in {}\n  {}",
                object.path().display(),
                names(&all)
            ))
        })?;
        let place = settings.iter().position(|one| one.name == name);
        let place = place.unwrap_or_else(|| {
            settings.push(MapContents {
                name: name.to_owned(),
                ..MapContents::default()
            });
            settings.len() - 1
        });
        if is_size {
            let entries = value.parse();
            let entries = entries.map_err(|_| wrong(format!("max_entries can't be {value}")))?;
            settings[place].max_entries = Some(entries);
        } else {
            let unreadable = |source| InputError::Unreadable {
                path: value.to_owned(),
                source,
            };
            let path = Path::new(value);
            let text = packet::read(path).map_err(unreadable)?;
            let text = text.ok_or_else(|| wrong("it is too large".to_owned()))?;
            let text = String::from_utf8_lossy(&text);
            let entries = Syntax::from_path(path).entries(&text, map);
            let entries = entries.map_err(|why| InputError::Wrong(format!("{value}: {why}")))?;
            settings[place].entries.extend(entries);
        }
    }
    Ok(settings)
}
