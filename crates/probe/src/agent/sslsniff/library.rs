//! Finds OpenSSL in processes: in a library that they map, or in their own executable.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use bpfcost_bpf::sslsniff::Sniffer;

use bpfcost_process::process_name;

/// A file that may hold OpenSSL.
#[derive(Debug, PartialEq)]
struct Library {
    /// Name shown to people.
    name: String,
    /// Path to the very file that is mapped, also where it was replaced since, or lies in a container.
    path: PathBuf,
}

/// Attaches a sniffer to each of these processes that uses OpenSSL; one does at least.
pub(super) fn attach(sniffer: &mut Sniffer, processes: &[u32]) -> Result<()> {
    let mut attached = false;
    for &process in processes {
        let maps = fs::read_to_string(format!("/proc/{process}/maps"))
            .with_context(|| format!("process {process} of the server does not exist"))?;
        let libraries = mapped(process, &maps);
        for library in &libraries {
            if !sniffer.attach(process, &library.path)? {
                bail!(
                    "{} of {} has no symbol SSL_read or SSL_write: it is not OpenSSL, or was \
                     stripped",
                    library.name,
                    process_label(process)
                );
            }
            attached = true;
        }
        if libraries.is_empty() {
            let executable = PathBuf::from(format!("/proc/{process}/exe"));
            attached |= sniffer.attach(process, &executable)?;
        }
    }
    if !attached {
        let all: Vec<String> = processes
            .iter()
            .map(|process| process_label(*process))
            .collect();
        bail!(
            "no OpenSSL found in the server ({}): its processes map no libssl and define no \
             SSL_read; it does not use OpenSSL, or was linked with it and stripped",
            all.join(", ")
        );
    }
    Ok(())
}

/// Files of OpenSSL among what a process has mapped to be executed: `start-end rights offset device inode path`.
fn mapped(process: u32, maps: &str) -> Vec<Library> {
    let library = |line: &str| {
        let mut words = line.split_whitespace();
        let range = words.next()?;
        let executed = words.next()?.contains('x');
        let name = words.nth(3)?.rsplit('/').next()?;
        let tls = name.starts_with("libssl") && name.contains(".so");
        (executed && tls).then(|| Library {
            name: name.to_owned(),
            path: PathBuf::from(format!("/proc/{process}/map_files/{range}")),
        })
    };
    maps.lines().filter_map(library).collect()
}

/// A process, for people.
fn process_label(process: u32) -> String {
    let name = process_name(process).unwrap_or_default();
    format!("{name} {process}").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_where_it_is_mapped_to_be_executed() {
        let maps = "\
55d0-55e0 r-xp 0000a000 fe:00 123   /usr/sbin/nginx
7f00-7f10 r--p 00000000 fe:00 124   /usr/lib/x86_64-linux-gnu/libssl.so.3
7f10-7f20 r-xp 00010000 fe:00 124   /usr/lib/x86_64-linux-gnu/libssl.so.3
7f30-7f40 r-xp 00010000 fe:00 125   /opt/libssl3.so (deleted)
7f50-7f60 r-xp 00010000 fe:00 126   /usr/lib/libsslcommon.a
7f70-7f80 r-xp 00000000 00:00 0
";
        let paths: Vec<_> = mapped(7, maps)
            .into_iter()
            .map(|library| (library.name, library.path.display().to_string()))
            .collect();
        let expected = [
            ("libssl.so.3", "/proc/7/map_files/7f10-7f20"),
            ("libssl3.so", "/proc/7/map_files/7f30-7f40"),
        ];
        let expected = expected.map(|(name, path)| (name.to_owned(), path.to_owned()));
        assert_eq!(paths, expected);
    }
}
