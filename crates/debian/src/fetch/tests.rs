//! Downloads from a server in this process.

use std::{
    cell::Cell,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    sync::{Arc, Mutex},
};

use super::*;

/// Ends after some looks.
struct Ends(Cell<u32>);

impl Observer for Ends {
    fn progress(&self, share: f64) {
        assert!((0.0..=1.0).contains(&share), "{share}");
    }

    fn interrupted(&self) -> bool {
        self.0.set(self.0.get().saturating_sub(1));
        self.0.get() == 0
    }
}

fn patient() -> Ends {
    Ends(Cell::new(u32::MAX))
}

/// A server that gives each call the next of some answers; an empty answer is none at all.
struct Server {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&asked);
        thread::spawn(move || {
            let mut answers = answers.iter();
            let mut held = Vec::new();
            for call in listener.incoming().flatten() {
                let mut lines = BufReader::new(call.try_clone().expect("a socket")).lines();
                let mut head = String::new();
                while let Some(Ok(line)) = lines
                    .next()
                    .filter(|line| !matches!(line, Ok(one) if one.is_empty()))
                {
                    head += &(line + "\n");
                }
                all.lock().expect("a list").push(head);
                match answers.next() {
                    Some(&"") | None => held.push(call),
                    Some(answer) => {
                        let _ = (&call).write_all(answer.as_bytes());
                    }
                }
            }
        });
        Server { address, asked }
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://me:secret@{}/{path}", self.address)).expect("a URL")
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("a list").clone()
    }
}

fn direct() -> Client {
    Client {
        settings: Settings::default(),
    }
}

fn fetched(
    client: &Client,
    url: &Url,
    bytes: Option<u64>,
    observer: &Ends,
) -> Result<String, Error> {
    let wanted = Wanted {
        url,
        bytes,
        max_bytes: 100,
        sha256: None,
    };
    let bytes = client.to_memory(&wanted, observer)?;
    Ok(String::from_utf8(bytes).expect("UTF-8"))
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwhole";

#[test]
fn a_file_arrives_with_its_hash() {
    let server = Server::new(&[WHOLE, WHOLE, WHOLE]);
    let url = server.url("a/b");
    assert_eq!(
        fetched(&direct(), &url, None, &patient()).expect("a file"),
        "whole"
    );
    let asked = server.asked().remove(0).to_ascii_lowercase();
    assert!(asked.starts_with("get /a/b http/1.1\n"), "{asked}");
    assert!(
        asked.contains("authorization: basic bwu6c2vjcmv0\n"),
        "{asked}"
    );
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("x");
    let sha256 = hex(digest::digest(&digest::SHA256, b"whole").as_ref());
    let mut wanted = Wanted {
        url: &url,
        bytes: Some(5),
        max_bytes: 5,
        sha256: Some(&sha256),
    };
    direct()
        .to_file(&wanted, &path, &patient())
        .expect("a file");
    assert_eq!(std::fs::read(&path).expect("a file"), b"whole");
    let other = sha256.replace(&sha256[..4], "0000");
    wanted.sha256 = Some(&other);
    let error = direct()
        .to_file(&wanted, &path, &patient())
        .expect_err("another hash");
    let text = error.to_string();
    assert!(
        matches!(error, Error::Untrusted { .. }) && text.contains(&other),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn sizes_are_checked() {
    let server = Server::new(&[WHOLE, WHOLE, WHOLE]);
    let url = server.url("x");
    let longer = fetched(&direct(), &url, Some(4), &patient()).expect_err("longer");
    assert!(
        longer.to_string().contains("longer than its 4 bytes"),
        "{longer}"
    );
    let shorter = fetched(&direct(), &url, Some(6), &patient()).expect_err("shorter");
    assert!(
        shorter.to_string().contains("5 bytes instead of 6"),
        "{shorter}"
    );
    let endless = Server::new(&["HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"]);
    let long = fetched(&direct(), &endless.url("x"), None, &patient()).expect_err("long");
    assert!(long.to_string().contains("longer than 100 bytes"), "{long}");
}

#[test]
fn refusals_are_final_and_lapses_are_not() {
    for (status, tries, words) in [
        ("403 Forbidden", 1, "403 (forbidden)"),
        ("404 Not Found", 1, "404 (not found)"),
        ("401 Unauthorized", 1, "401 (a password is needed)"),
        ("503 Busy", 3, "503 (the server is not available)"),
    ] {
        let answer: &'static str = Box::leak(
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into(),
        );
        let server = Server::new(Vec::leak(vec![answer; 3]));
        let error = fetched(&direct(), &server.url("x"), None, &patient()).expect_err(status);
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(server.asked().len(), tries, "{error}");
        assert_eq!(
            matches!(error, Error::Missing { .. }),
            status.starts_with("404")
        );
    }
    const CUT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nwh";
    let server = Server::new(&[CUT, CUT, WHOLE]);
    assert_eq!(
        fetched(&direct(), &server.url("x"), None, &patient()).expect("whole"),
        "whole"
    );
}

#[test]
fn a_redirection_is_followed_without_the_password() {
    let target = Server::new(&[WHOLE]);
    let answer = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{}/y\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        target.address.replace("127.0.0.1", "localhost")
    );
    let server = Server::new(Vec::leak(vec![&*answer.leak()]));
    assert_eq!(
        fetched(&direct(), &server.url("x"), None, &patient()).expect("a file"),
        "whole"
    );
    let asked = target.asked().remove(0).to_ascii_lowercase();
    assert!(
        asked.starts_with("get /y") && !asked.contains("authorization"),
        "{asked}"
    );
}

#[test]
fn a_proxy_is_asked_for_the_whole_address() {
    let moved = "HTTP/1.1 301 Moved\r\nLocation: http://b.invalid/z\r\n\r\n";
    let proxy = Server::new(Vec::leak(vec![moved, WHOLE]));
    let client = Client {
        settings: Settings::with_http(&format!("http://you:word@{}", proxy.address)),
    };
    let url = Url::parse("http://a.invalid/y").expect("a URL");
    assert_eq!(
        fetched(&client, &url, None, &patient()).expect("a file"),
        "whole"
    );
    let asked = proxy.asked();
    assert!(
        asked[0].starts_with("GET http://a.invalid/y HTTP/1.0\n"),
        "{asked:?}"
    );
    assert!(
        asked[0].contains("Proxy-Authorization: Basic eW91OndvcmQ=\n"),
        "{asked:?}"
    );
    assert!(asked[1].starts_with("GET http://b.invalid/z "), "{asked:?}");
    let none = Client {
        settings: Settings::with_http("http://127.0.0.1:1"),
    };
    let error = fetched(&none, &url, None, &patient())
        .expect_err("no proxy")
        .to_string();
    assert!(
        error.contains("the proxy http://127.0.0.1:1 cannot be used"),
        "{error}"
    );
}

#[test]
fn a_download_ends_when_asked_to() {
    let server = Server::new(&[""]);
    let ended = fetched(&direct(), &server.url("x"), None, &Ends(Cell::new(3)));
    assert!(matches!(ended, Err(Error::Interrupted)));
}
