//! Addresses of hosts, by getent(1) where a name is one: it asks whatever this system asks, files, DNS and others. The C
//! library would do so itself by loading libraries of the system, which a static program can't rely on.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ureq::{
    Error,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::NextTimeout,
    },
};

const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Addresses of one host that are tried.
const MAX_ADDRESSES: usize = 16;

/// ureq's resolver by [`addresses`].
#[derive(Debug)]
pub(crate) struct Lookup;

impl Resolver for Lookup {
    fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let parts = uri.scheme().zip(uri.authority());
        let host = parts.and_then(|(scheme, host)| DefaultResolver::host_and_port(scheme, host));
        let mut all = self.empty();
        for address in addresses(&host.ok_or(Error::HostNotFound)?)? {
            all.push(address);
        }
        Ok(all)
    }
}

/// Looks up `host:port`; at least one address.
pub(crate) fn addresses(host: &str) -> io::Result<Vec<SocketAddr>> {
    let (name, port) = host
        .rsplit_once(':')
        .and_then(|(name, port)| Some((name, port.parse().ok()?)))
        .ok_or_else(|| io::Error::other(format!("{host} names no port")))?;
    let plain = name.trim_start_matches('[').trim_end_matches(']');
    let found = match plain.parse::<IpAddr>() {
        Ok(address) => vec![address],
        // RFC 6761.
        Err(_) if plain.eq_ignore_ascii_case("localhost") => {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        }
        // It would be an option.
        Err(_) if plain.starts_with('-') => Vec::new(),
        Err(_) => listed(&ask(plain)?),
    };
    if found.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("there is no host {plain}, or no name server answers"),
        ));
    }
    let found = found.into_iter().take(MAX_ADDRESSES);
    Ok(found
        .map(|address| SocketAddr::new(address, port))
        .collect())
}

/// Output of `getent ahosts`.
fn ask(name: &str) -> io::Result<String> {
    let child = Command::new("getent")
        .args(["ahosts", name])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| {
        io::Error::other(format!(
            "getent, which looks up names, cannot be started ({error}); give the server by its IP address"
        ))
    })?;
    let begun = Instant::now();
    // Its output fits into a pipe.
    while child.try_wait()?.is_none() {
        if begun.elapsed() > TIMEOUT {
            child.kill()?;
            child.wait()?;
            let why = format!("no name server answers for {name}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        thread::sleep(POLL_INTERVAL);
    }
    let output = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The addresses at the beginning of lines, each once: there is a line for each kind of socket.
fn listed(text: &str) -> Vec<IpAddr> {
    let words = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let mut all: Vec<IpAddr> = Vec::new();
    for address in words.filter_map(|word| word.parse().ok()) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_tried_once() {
        let text = "2a04:4e42::644  STREAM deb.example\n2a04:4e42::644  DGRAM  \n151.101.2.132   STREAM \n\
                    151.101.2.132   RAW    \nnonsense\n\n";
        let expected: [IpAddr; 2] =
            ["2a04:4e42::644", "151.101.2.132"].map(|one| one.parse().unwrap());
        assert_eq!(listed(text), expected);
    }

    #[test]
    fn addresses_need_no_lookup() {
        let found = |host: &str| addresses(host).map(|all| format!("{all:?}"));
        assert_eq!(found("127.0.0.1:80").unwrap(), "[127.0.0.1:80]");
        assert_eq!(found("[::1]:8080").unwrap(), "[[::1]:8080]");
        assert_eq!(found("LocalHost:1").unwrap(), "[127.0.0.1:1, [::1]:1]");
    }

    #[test]
    fn names_are_looked_up_and_options_are_none() {
        let error = addresses("no-such-host.invalid:80").expect_err("RFC 6761");
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        assert!(addresses("--version:80").is_err());
        assert!(addresses("host").is_err());
        assert!(addresses("host:x").is_err());
    }
}
