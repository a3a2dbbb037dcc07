//! Settings that downloads follow: those of apt, if it is installed, and the proxies of the environment.

use std::{env, path::Path, process::Command};

use super::{Url, url::Scheme};

/// Settings as they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// apt's settings below `Acquire::`: `http::Proxy`, `http::Proxy::HOST`, `Check-Valid-Until`.
    of_apt: Vec<(String, String)>,
    /// Variables, in lower case.
    of_environment: Vec<(String, String)>,
}

/// Variables of the environment, which may be in capitals.
const VARIABLES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];

impl Settings {
    pub(crate) fn of_system(system: &Path) -> Self {
        let variables = VARIABLES.iter().filter_map(|name| {
            let value = env::var(name).or_else(|_| env::var(name.to_ascii_uppercase()));
            Some(((*name).to_owned(), value.ok()?))
        });
        Settings {
            of_apt: if system == Path::new("/") {
                of_apt()
            } else {
                Vec::new()
            },
            of_environment: variables.collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn with_http(proxy: &str) -> Self {
        Settings {
            of_apt: vec![("http::Proxy".to_owned(), proxy.to_owned())],
            of_environment: Vec::new(),
        }
    }

    /// Returns whether suites may be used after their end, as snapshots of archives have to be.
    pub(crate) fn accept_expired(&self) -> bool {
        let set = self.of_apt("Check-Valid-Until");
        set.is_some_and(|value| matches!(value, "false" | "no" | "0" | "off"))
    }

    fn of_apt(&self, key: &str) -> Option<&str> {
        let mut all = self.of_apt.iter();
        let found = all.rfind(|(name, _)| name.eq_ignore_ascii_case(key));
        found.map(|(_, value)| value.as_str())
    }

    /// The proxy for an address; `None` where it is to be asked directly.
    pub(crate) fn proxy(&self, url: &Url) -> Option<Url> {
        let host = without_port(&url.host);
        let scheme = url.scheme.name();
        let of_apt = |key: &str| self.of_apt(key);
        let set = of_apt(&format!("{scheme}::Proxy::{host}"))
            .or_else(|| of_apt(&format!("{scheme}::Proxy")))
            // As apt does it.
            .or_else(|| of_apt("http::Proxy").filter(|_| url.scheme == Scheme::Https))
            .filter(|value| !value.is_empty());
        if let Some(set) = set {
            return if set.eq_ignore_ascii_case("DIRECT") {
                None
            } else {
                parse(set)
            };
        }
        let variable = |key: &str| {
            let found = self.of_environment.iter().find(|(name, _)| name == key);
            found
                .map(|(_, value)| value.as_str())
                .filter(|value| !value.is_empty())
        };
        if variable("no_proxy").is_some_and(|list| excludes(list, host)) {
            return None;
        }
        let set = variable(&format!("{scheme}_proxy")).or_else(|| variable("all_proxy"))?;
        parse(set)
    }
}

fn parse(text: &str) -> Option<Url> {
    let text = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    Url::parse(&text)
        .ok()
        .filter(|url| url.scheme != Scheme::File)
}

/// Returns whether a list like `localhost,.example.com` has a host.
fn excludes(list: &str, host: &str) -> bool {
    list.split(',')
        .map(str::trim)
        .filter(|one| !one.is_empty())
        .any(|one| {
            let domain = without_port(one.trim_start_matches('*').trim_start_matches('.'));
            one == "*"
                || host.eq_ignore_ascii_case(domain)
                || host.len() > domain.len()
                    && host.is_char_boundary(host.len() - domain.len())
                    && host[host.len() - domain.len()..].eq_ignore_ascii_case(domain)
                    && host[..host.len() - domain.len()].ends_with('.')
        })
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Settings of apt; none on a system without it.
fn of_apt() -> Vec<(String, String)> {
    let output = Command::new("apt-config")
        .args([
            "dump",
            "--format",
            "%f\t%v%n",
            "Acquire::http::Proxy",
            "Acquire::https::Proxy",
            "Acquire::Check-Valid-Until",
        ])
        .env("LC_ALL", "C")
        .output();
    let Ok(output) = output else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    settings(&text)
}

fn settings(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.split_once('\t')?;
        let name = name.strip_prefix("Acquire::")?;
        Some((name.to_owned(), value.to_owned()))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_of(apt: &str, environment: &[(&str, &str)]) -> Settings {
        Settings {
            of_apt: settings(apt),
            of_environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn shown(settings: &Settings, url: &str) -> String {
        let url = Url::parse(url).expect("a URL");
        let proxy = settings.proxy(&url);
        proxy.map_or("direct".to_owned(), |proxy| proxy.to_string())
    }

    #[test]
    fn the_environment_names_proxies() {
        let all = settings_of(
            "",
            &[
                ("http_proxy", "http://me:secret@one.invalid:3128/"),
                ("all_proxy", "two.invalid"),
                (
                    "no_proxy",
                    "localhost, .inside.invalid,*.other.invalid,10.0.0.1:80",
                ),
            ],
        );
        for (url, proxy) in [
            ("http://a.invalid/x", "http://one.invalid:3128"),
            ("https://a.invalid/x", "http://two.invalid"),
            ("http://localhost:80/x", "direct"),
            ("http://a.inside.invalid/x", "direct"),
            ("http://inside.invalid/x", "direct"),
            ("http://outinside.invalid/x", "http://one.invalid:3128"),
            ("http://a.other.invalid/x", "direct"),
            ("http://10.0.0.1/x", "direct"),
        ] {
            assert_eq!(shown(&all, url), proxy, "{url}");
        }
        assert_eq!(
            shown(
                &settings_of("", &[("no_proxy", "*"), ("all_proxy", "x")]),
                "http://a/x"
            ),
            "direct"
        );
    }

    #[test]
    fn apt_may_accept_what_is_expired() {
        let accepts = |text: &str| settings_of(text, &[]).accept_expired();
        assert!(accepts("Acquire::Check-Valid-Until\tfalse\n"));
        for text in [
            "",
            "Acquire::Check-Valid-Until\ttrue\n",
            "Acquire::Check-Valid-Until\t\n",
        ] {
            assert!(!accepts(text), "{text}");
        }
    }

    #[test]
    fn apt_comes_first() {
        let text = "Acquire::http::Proxy\thttp://apt.invalid:3142\nAcquire::http::Proxy::near.invalid\tDIRECT\n";
        let all = settings_of(
            text,
            &[
                ("http_proxy", "http://one.invalid"),
                ("https_proxy", "http://one.invalid"),
            ],
        );
        assert_eq!(shown(&all, "http://a.invalid/x"), "http://apt.invalid:3142");
        assert_eq!(shown(&all, "http://near.invalid:80/x"), "direct");
        assert_eq!(
            shown(&all, "https://a.invalid/x"),
            "http://apt.invalid:3142"
        );
        let empty = settings_of(
            "Acquire::http::Proxy\t\n",
            &[("http_proxy", "http://one.invalid")],
        );
        assert_eq!(shown(&empty, "http://a.invalid/x"), "http://one.invalid");
    }
}
