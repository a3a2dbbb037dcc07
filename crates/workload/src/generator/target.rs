//! The destination of a load: a URL on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, bail};

/// Bytes that a value set in redis may have.
const MAX_BYTES: usize = 16 << 20;

/// A server and a request to it.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadTarget {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// The protocol of its requests.
    pub(super) protocol: Protocol,
    /// Whether it uses TLS.
    pub(super) tls: bool,
    /// The request, as sent.
    pub(super) request: Vec<u8>,
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// RESP, of redis.
    Redis,
    /// HTTP/1.1.
    Http,
}

impl LoadTarget {
    /// Of `redis://127.0.0.1:PORT/set/BYTES`, `http://127.0.0.1:PORT/PATH` or the same with `https`.
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").with_context(|| {
            format!(
                "{url} is not a URL: write http://127.0.0.1:PORT/PATH, https://… or \
                 redis://127.0.0.1:PORT/set/BYTES"
            )
        })?;
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let address = address(place)?;
        let (protocol, tls, request) = match scheme {
            "http" | "https" => (Protocol::Http, scheme == "https", get(place, path)?),
            "redis" => (Protocol::Redis, false, set(path)?),
            _ => bail!("{scheme} is not supported: use http, https or redis"),
        };
        Ok(LoadTarget {
            address,
            protocol,
            tls,
            request,
        })
    }
}

/// A loopback address with its port: load sent to another machine by mistake would be an attack.
fn address(place: &str) -> Result<SocketAddr> {
    let (host, port) = place
        .rsplit_once(':')
        .with_context(|| format!("{place} has no port: write 127.0.0.1:PORT"))?;
    let port = port
        .parse()
        .with_context(|| format!("{port} is not a port: use 1 to 65535"))?;
    let host = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host
            .trim_matches(['[', ']'])
            .parse()
            .with_context(|| format!("{host} is not an address: write 127.0.0.1"))?,
    };
    if !host.is_loopback() {
        bail!("{host} is not a loopback address: use 127.0.0.0/8 or ::1");
    }
    Ok(SocketAddr::new(host, port))
}

/// A GET.
fn get(place: &str, path: &str) -> Result<Vec<u8>> {
    if path.bytes().any(|byte| !byte.is_ascii_graphic()) {
        bail!("/{path} is not a path: write spaces and the like with %");
    }
    Ok(format!(
        "GET /{path} HTTP/1.1\r\nHost: {place}\r\nUser-Agent: bpfcost\r\nAccept: */*\r\n\r\n"
    )
    .into_bytes())
}

/// A SET of so many bytes, always of the same key.
fn set(path: &str) -> Result<Vec<u8>> {
    let bytes = path
        .strip_prefix("set/")
        .and_then(|bytes| bytes.parse().ok())
        .filter(|bytes| *bytes <= MAX_BYTES)
        .with_context(|| {
            format!(
                "/{path} is not a request to redis: write /set/BYTES, with at most {MAX_BYTES} \
                 bytes"
            )
        })?;
    let value = "x".repeat(bytes);
    Ok(format!("*3\r\n$3\r\nSET\r\n$7\r\nbpfcost\r\n${bytes}\r\n{value}\r\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let redis = LoadTarget::parse("redis://127.0.0.1:6379/set/3").expect("a target");
        assert_eq!((redis.protocol, redis.tls), (Protocol::Redis, false));
        assert_eq!(
            redis.request,
            b"*3\r\n$3\r\nSET\r\n$7\r\nbpfcost\r\n$3\r\nxxx\r\n"
        );
        let https = LoadTarget::parse("https://[::1]:443/a/b?c=d").expect("a target");
        assert_eq!((https.protocol, https.tls), (Protocol::Http, true));
        assert!(
            https
                .request
                .starts_with(b"GET /a/b?c=d HTTP/1.1\r\nHost: [::1]:443\r\n")
        );
        let bare = LoadTarget::parse("http://localhost:80").expect("a target");
        assert!(bare.request.starts_with(b"GET / HTTP/1.1\r\n"));
    }

    #[test]
    fn what_is_not_here_is_refused() {
        for (url, word) in [
            ("http://192.0.2.1:80/", "loopback"),
            ("http://0.0.0.0:80/", "loopback"),
            ("http://example.com:80/", "not an address"),
            ("http://127.0.0.1/", "no port"),
            ("http://127.0.0.1:99999/", "not a port"),
            ("127.0.0.1:80", "not a URL"),
            ("ftp://127.0.0.1:80/", "not supported"),
            ("redis://127.0.0.1:80/get", "not a request"),
            ("redis://127.0.0.1:80/set/99999999", "not a request"),
            ("http://127.0.0.1:80/a b", "not a path"),
        ] {
            let error = LoadTarget::parse(url).expect_err(url);
            assert!(format!("{error:#}").contains(word), "{url}: {error:#}");
        }
    }
}
