//! The server serves what was asked, to the request and the byte.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::{
    load, number,
    server::{GET, Server, Stream, plain},
};
use crate::{require, tool::Tool};

/// An answer with a body of that size, in chunks or with its length.
fn body(size: usize, chunked: bool) -> Vec<u8> {
    let text = "y".repeat(size);
    if chunked {
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n{text}\r\n0\r\n\r\n"
        )
    } else {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{text}")
    }
    .into_bytes()
}

#[track_caller]
fn assert_served(server: &Server, report: &serde_json::Value, requests: u64) {
    assert_eq!(number(report, "/ops"), requests as f64, "{report}");
    assert_eq!(server.requests.load(Relaxed), requests);
    assert_eq!(
        number(report, "/bytes"),
        server.bytes.load(Relaxed) as f64,
        "{report}"
    );
    assert_eq!(
        number(report, "/connections"),
        server.connections.load(Relaxed) as f64,
        "{report}"
    );
    assert_eq!(number(report, "/errors"), 0.0, "{report}");
}

#[test]
fn by_http_of_all_sizes() {
    // Every fourth one is larger than what is read at once.
    let server = Server::start(GET, u64::MAX, plain, |before| {
        let size = [0, 1, 2000, 256 << 10][before as usize % 4];
        Some(body(size, before % 8 > 3 && size > 0))
    });
    let report = load(&format!(
        "http://127.0.0.1:{}/x --rate 100 --seconds 4 --connections 7",
        server.port
    ));
    assert_served(&server, &report, 400);
    assert_eq!(number(&report, "/connections"), 7.0);
    assert_eq!(number(&report, "/rate"), 100.0);
}

#[test]
fn by_a_server_that_closes_connections() {
    let server = Server::start(GET, 10, plain, |_| {
        Some(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx".to_vec())
    });
    let report = load(&format!(
        "http://127.0.0.1:{}/ --requests 100 --connections 3",
        server.port
    ));
    // It asks for an end after each answer, and gets it.
    assert_eq!(number(&report, "/ops"), 100.0, "{report}");
    assert_eq!(number(&report, "/connections"), 103.0, "{report}");
    assert_eq!(server.requests.load(Relaxed), 100);
}

/// TLS with a self-signed certificate.
fn tls(tool: &Tool) -> Option<Arc<ServerConfig>> {
    let made = tool
        .wrapped(
            "openssl",
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=test \
             -days 1 -keyout key.pem -out cert.pem",
        )
        .output()
        .ok()?;
    made.status.success().then_some(())?;
    let pem = |name| fs::read(tool.path(name)).expect("a file of openssl");
    let certificate = CertificateDer::from_pem_slice(&pem("cert.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&pem("key.pem")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a server");
    Some(Arc::new(config))
}

#[test]
fn by_https_whoever_signed_it() {
    let tool = Tool::new();
    let Some(config) = tls(&tool) else {
        require::skip("openssl, which makes the certificate, is not here");
        return;
    };
    let wrap = move |socket: TcpStream| -> Box<dyn Stream> {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        Box::new(StreamOwned::new(connection, socket))
    };
    let server = Server::start(GET, u64::MAX, wrap, |before| {
        Some(body([3, 100_000][before as usize % 2], false))
    });
    let report = load(&format!(
        "https://127.0.0.1:{}/ --rate 100 --seconds 2 --connections 3",
        server.port
    ));
    assert_served(&server, &report, 200);
}

/// A redis for this test, killed with it.
struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn by_redis() {
    // A port that is free now: redis cannot choose one itself.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port();
    let redis = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn();
    let Ok(_redis) = redis.map(Redis) else {
        require::skip("redis-server is not here");
        return;
    };
    let mut asked = (0..500)
        .find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            TcpStream::connect(("127.0.0.1", port)).ok()
        })
        .expect("redis accepts");
    let report = load(&format!(
        "redis://127.0.0.1:{port}/set/3 --rate 250 --seconds 4 --connections 20"
    ));
    assert_eq!(number(&report, "/ops"), 1000.0, "{report}");
    assert_eq!(number(&report, "/bytes"), 5000.0, "{report}");
    asked
        .write_all(b"INFO commandstats\r\nQUIT\r\n")
        .expect("a question");
    let mut said = String::new();
    asked.read_to_string(&mut said).expect("an answer");
    assert!(said.contains("cmdstat_set:calls=1000,"), "{said}");
}
