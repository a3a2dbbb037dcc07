//! Files of `workloads/`: sources of servers, and scripts of clients. They are compiled into this program, so an
//! installed bpfcost needs no file of its repository.

/// Path below `workloads/`, and text.
const SOURCES: [(&str, &str); 3] = [
    (
        "l7-go/go.mod",
        include_str!("../../../workloads/l7-go/go.mod"),
    ),
    (
        "l7-go/main.go",
        include_str!("../../../workloads/l7-go/main.go"),
    ),
    ("wrk.lua", include_str!("../../../workloads/wrk.lua")),
];

/// The file of that path: its last name, and its text.
pub(super) fn find(path: &str) -> Option<(&'static str, &'static str)> {
    let (path, text) = SOURCES.iter().find(|(name, _)| *name == path)?;
    let name = path.rsplit('/').next().unwrap_or(path);
    Some((name, text))
}

pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|(path, _)| *path)
}
