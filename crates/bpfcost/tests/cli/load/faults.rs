//! Faults are said, and end the load.

use super::{
    load, number,
    server::{GET, Server, plain},
};
use crate::tool::Tool;

#[test]
fn refusals_are_counted_and_the_first_is_told() {
    let server = Server::start(GET, u64::MAX, plain, |before| {
        let status = match before % 2 {
            0 => "200 OK",
            _ => "404 Not Found",
        };
        Some(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes())
    });
    let report = load(&format!(
        "http://127.0.0.1:{}/ --requests 10 --connections 1",
        server.port
    ));
    assert_eq!(number(&report, "/errors"), 5.0, "{report}");
    assert_eq!(report["error"], "HTTP 404 Not Found");
}

#[test]
fn a_server_that_fails_is_an_error() {
    let tool = Tool::new();
    let cut = Server::start(GET, u64::MAX, plain, |before| {
        (before < 5).then(|| b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())
    });
    let line = |port| format!("load http://127.0.0.1:{port}/ --requests 10 --connections 1");
    let said = tool.says(&line(cut.port));
    assert_eq!((said.code, said.out.as_str()), (Some(4), ""), "{said:?}");
    // Whether its end or its reset comes first is the kernel's affair.
    assert!(
        said.err.contains("the server closed the connection"),
        "{said:?}"
    );
    let nonsense = Server::start(GET, u64::MAX, plain, |_| Some(b"what?\r\n\r\n".to_vec()));
    tool.refuses(&line(nonsense.port), 4, &["is not HTTP"]);
}

#[test]
fn mistakes_are_told_before_anything_is_sent() {
    let tool = Tool::new();
    for (line, word) in [
        ("http://192.0.2.1:80/ --requests 1", "loopback"),
        ("http://127.0.0.1:80/", "--rate N --seconds S"),
        ("http://127.0.0.1:80/ --requests 0", "1 to 100000000"),
        ("http://127.0.0.1:80/ --rate 0 --seconds 1", "above 0"),
        (
            "http://127.0.0.1:80/ --rate 1e9 --seconds 1e9",
            "1 to 100000000",
        ),
    ] {
        tool.refuses(&format!("load {line}"), 2, &[word]);
    }
}
