//! Addresses of archives and files: http, https and file.

use std::{fmt, os::unix::ffi::OsStringExt as _, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::Error;

/// An address that can be fetched. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    pub(crate) scheme: Scheme,
    /// `user:password`, as it is in the address.
    user: Option<String>,
    /// Host and port; empty for files.
    pub(crate) host: String,
    /// Begins with a slash, ends without one.
    pub(crate) path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
    File,
}

impl Scheme {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::File => "file",
        }
    }
}

impl Url {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refused = |why: &str| {
            let shown = bpfcost_text::line(&without_password(text));
            Error::Url(format!("{shown} {why}"))
        };
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| refused("is not an address"))?;
        let scheme = match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "file" => Scheme::File,
            _ => return Err(refused("is not an address of http:, https: or file:")),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() || byte >= 0x80;
        if !rest.bytes().all(is_plain) || rest.contains('#') {
            return Err(refused("has a character that addresses cannot have"));
        }
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user.to_owned()), host),
            None => (None, authority),
        };
        if (scheme == Scheme::File) != host.is_empty() || user.is_some() && host.is_empty() {
            return Err(refused("names no host that it can be fetched from"));
        }
        if scheme == Scheme::File && !path.starts_with('/') {
            return Err(refused("has no absolute path"));
        }
        Ok(Url {
            scheme,
            user,
            host: host.to_owned(),
            path: path.trim_end_matches('/').to_owned(),
        })
    }

    /// The address of a file below this one.
    pub fn join(&self, path: &str) -> Self {
        Url {
            path: format!("{}/{path}", self.path),
            ..self.clone()
        }
    }

    /// The last part of its path.
    pub fn file_name(&self) -> &str {
        let path = self.path.split('?').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }

    /// The whole address, as programs need it, without the user.
    pub(crate) fn address(&self) -> String {
        format!("{}://{}{}", self.scheme.name(), self.host, self.path)
    }

    /// The same with the user.
    pub(crate) fn address_with_user(&self) -> String {
        match &self.user {
            Some(user) => format!("{}://{user}@{}{}", self.scheme.name(), self.host, self.path),
            None => self.address(),
        }
    }

    /// The file that an address of `file:` names.
    pub(crate) fn file(&self) -> PathBuf {
        PathBuf::from(std::ffi::OsString::from_vec(decoded(&self.path)))
    }

    /// The value of the header `Authorization`, for a user with a password.
    pub(crate) fn authorization(&self) -> Option<String> {
        let user = decoded(self.user.as_ref()?);
        Some(format!("Basic {}", STANDARD.encode(user)))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slashes = if self.host.is_empty() { "" } else { "//" };
        let text = format!("{}:{slashes}{}{}", self.scheme.name(), self.host, self.path);
        f.write_str(&bpfcost_text::line(&text))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that may be an address, without what stands before its `@`.
pub(crate) fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("//") else {
        return text.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}//{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}

/// Bytes for `%20` and the like.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_passwords() {
        let url = Url::parse("http://me:s%40cret@mirror.invalid:8080/debian/").expect("a URL");
        assert_eq!(url.to_string(), "http://mirror.invalid:8080/debian");
        assert_eq!(format!("{url:?}"), url.to_string());
        let authorization = url.authorization().expect("a user");
        assert_eq!(
            authorization,
            format!("Basic {}", STANDARD.encode("me:s@cret"))
        );
        let file = url.join("dists/x.deb");
        assert_eq!(
            file.to_string(),
            "http://mirror.invalid:8080/debian/dists/x.deb"
        );
        assert_eq!(file.file_name(), "x.deb");
        for text in ["ftp://me:secret@mirror.invalid/", "http://me:secret@/x"] {
            let error = Url::parse(text).expect_err(text).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn files_have_paths() {
        for (text, path) in [
            ("file:/a/b%20c", "/a/b c"),
            ("file:///a/b/", "/a/b"),
            ("file:/a%zz%", "/a%zz%"),
        ] {
            assert_eq!(Url::parse(text).expect(text).file(), PathBuf::from(path));
        }
        for text in [
            "",
            "x",
            "file:a",
            "file://host/a",
            "http:/a",
            "http:///a",
            "cdrom:[x]/",
            "http://a b/",
            "http://a/\n",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
