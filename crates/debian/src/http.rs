//! One GET of http or https: directly, through a tunnel of a proxy, or by asking a proxy for the whole address, which
//! proxies expect for http.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use rustls::crypto::ring::default_provider;
use ureq::{
    Agent, Proxy,
    tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
    unversioned::transport::DefaultConnector,
};

use super::{
    Url,
    fetch::Failure,
    lookup::{self, Lookup},
    settings::Settings,
    url::Scheme,
};

const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: u32 = 5;
const MAX_HEAD_BYTES: u64 = 1 << 16;
const USER_AGENT: &str = concat!("bpfcost/", env!("CARGO_PKG_VERSION"));

/// A file as it arrives.
pub(crate) struct Answer {
    /// Size, where that is known.
    pub(crate) length: Option<u64>,
    pub(crate) body: Box<dyn Read>,
}

pub(crate) fn get(url: &Url, settings: &Settings) -> Result<Answer, Failure> {
    match settings.proxy(url) {
        Some(proxy) if url.scheme == Scheme::Http && proxy.scheme == Scheme::Http => {
            by_proxy(url, &proxy)
        }
        proxy => by_agent(url, proxy.as_ref()),
    }
}

fn by_agent(url: &Url, proxy: Option<&Url>) -> Result<Answer, Failure> {
    let proxy = proxy.map(|proxy| Proxy::new(&proxy.address_with_user()));
    let proxy = proxy
        .transpose()
        .map_err(|error| Failure::Final(format!("its proxy cannot be used: {error}")))?;
    let certificates = rustls_native_certs::load_native_certs().certs;
    if certificates.is_empty() && url.scheme == Scheme::Https {
        return Err(Failure::Final(
            "this system has no certificates of authorities (package ca-certificates)".to_owned(),
        ));
    }
    let certificates: Vec<_> = certificates
        .iter()
        .map(|one| Certificate::from_der(one).to_owned())
        .collect();
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .proxy(proxy)
        .user_agent(USER_AGENT)
        .http_status_as_error(false)
        .max_redirects(MAX_REDIRECTS)
        .timeout_connect(Some(TIMEOUT))
        .timeout_send_request(Some(TIMEOUT))
        .timeout_recv_response(Some(TIMEOUT))
        .timeout_per_read(Some(TIMEOUT))
        .build();
    let agent = Agent::with_parts(config, DefaultConnector::default(), Lookup);
    let mut request = agent.get(url.address());
    if let Some(value) = url.authorization() {
        request = request.header("Authorization", value);
    }
    let response = request.call().map_err(|error| failure(&error))?;
    accept(response.status().as_u16())?;
    let length = response.body().content_length();
    let body = response.into_body().into_with_config();
    Ok(Answer {
        length,
        body: Box::new(body.limit(u64::MAX).reader()),
    })
}

fn failure(error: &ureq::Error) -> Failure {
    let why = bpfcost_text::line(&error.to_string());
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::Io(_)
        | ureq::Error::Timeout(_)
        | ureq::Error::ConnectionFailed => Failure::Transient(why),
        _ => Failure::Final(why),
    }
}

/// Refuses all answers but a whole file.
fn accept(status: u16) -> Result<(), Failure> {
    let name = match status {
        200 => return Ok(()),
        401 => " (a password is needed)",
        403 => " (forbidden)",
        404 => " (not found)",
        407 => " (the proxy needs a password)",
        410 => " (gone)",
        429 => " (too many requests)",
        500 => " (error of the server)",
        502..=504 => " (the server is not available)",
        _ => "",
    };
    let why = format!("the server answers with HTTP status {status}{name}");
    Err(match status {
        404 | 410 => Failure::Missing(why),
        429 | 500 | 502..=504 => Failure::Transient(why),
        _ => Failure::Final(why),
    })
}

/// Asks a proxy, in the version of HTTP in which a file ends with its connection.
fn by_proxy(url: &Url, proxy: &Url) -> Result<Answer, Failure> {
    let mut url = url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let mut answer = ask(&url, proxy).map_err(|error| {
            Failure::Transient(format!("the proxy {proxy} cannot be used: {error}"))
        })?;
        let head = head(&mut answer)?;
        if !matches!(head.status, 301 | 302 | 303 | 307 | 308) {
            accept(head.status)?;
            let body: Box<dyn Read> = match head.length {
                Some(length) => Box::new(answer.take(length)),
                None => Box::new(answer),
            };
            return Ok(Answer {
                length: head.length,
                body,
            });
        }
        let target = head.location.and_then(|to| Url::parse(&to).ok());
        url = target
            .filter(|to| to.scheme == Scheme::Http)
            .ok_or_else(|| {
                Failure::Final("the server leads to an address of another kind".to_owned())
            })?;
    }
    Err(Failure::Final(
        "the server leads from one address to the next".to_owned(),
    ))
}

fn ask(url: &Url, proxy: &Url) -> io::Result<BufReader<TcpStream>> {
    let has_port = proxy
        .host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if has_port {
        proxy.host.clone()
    } else {
        format!("{}:80", proxy.host)
    };
    let mut last = io::Error::other("it has no address");
    for address in lookup::addresses(&host)? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Err(error) => last = error,
            Ok(mut stream) => {
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                let header = |name: &str, value: Option<String>| {
                    value.map_or(String::new(), |value| format!("{name}: {value}\r\n"))
                };
                let request = format!(
                    "GET http://{}{} HTTP/1.0\r\nHost: {}\r\nUser-Agent: {USER_AGENT}\r\n{}{}\r\n",
                    url.host,
                    url.path,
                    url.host,
                    header("Authorization", url.authorization()),
                    header("Proxy-Authorization", proxy.authorization()),
                );
                stream.write_all(request.as_bytes())?;
                return Ok(BufReader::new(stream));
            }
        }
    }
    Err(last)
}

struct Head {
    status: u16,
    length: Option<u64>,
    location: Option<String>,
}

fn head(answer: &mut impl BufRead) -> Result<Head, Failure> {
    let wrong = || Failure::Final("the proxy's answer is not in the form of HTTP".to_owned());
    let mut limited = answer.take(MAX_HEAD_BYTES);
    let mut line = || -> Result<String, Failure> {
        let mut bytes = Vec::new();
        let read = limited.read_until(b'\n', &mut bytes);
        read.map_err(|error| Failure::Transient(format!("the proxy does not answer: {error}")))?;
        if bytes.pop() != Some(b'\n') {
            return Err(Failure::Transient("the proxy's answer is cut".to_owned()));
        }
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let status = words.next().and_then(|word| word.parse().ok());
    let mut head = Head {
        status: status.filter(|_| is_http).ok_or_else(wrong)?,
        length: None,
        location: None,
    };
    loop {
        let line = line()?;
        if line.is_empty() {
            return Ok(head);
        }
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => head.length = Some(value.trim().parse().map_err(|_| wrong())?),
            "location" => head.location = Some(value.trim().to_owned()),
            "transfer-encoding" => return Err(wrong()),
            _ => {}
        }
    }
}
