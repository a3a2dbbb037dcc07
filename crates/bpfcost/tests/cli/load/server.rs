//! Servers of the tests' own: one thread a connection, gone with the test's process.

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

/// A server that counts what it does.
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) requests: Arc<AtomicU64>,
    pub(super) bytes: Arc<AtomicU64>,
    pub(super) connections: Arc<AtomicU64>,
}

/// Both ways of a connection.
pub(super) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Server {
    /// Serves requests that end with `end`. `answer` gets the number of requests before, and makes the answer;
    /// `None` hangs up. A connection ends after `most` of them.
    pub(super) fn start(
        end: &'static [u8],
        most: u64,
        wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + 'static,
        answer: impl Fn(u64) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let server = Server {
            port: listener.local_addr().expect("an address").port(),
            requests: Arc::default(),
            bytes: Arc::default(),
            connections: Arc::default(),
        };
        let answer = Arc::new(answer);
        let counts = (
            Arc::clone(&server.requests),
            Arc::clone(&server.bytes),
            Arc::clone(&server.connections),
        );
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (requests, bytes, connections) = counts.clone();
                connections.fetch_add(1, Relaxed);
                let (stream, answer) = (wrap(socket), Arc::clone(&answer));
                thread::spawn(move || {
                    let mut stream = BufReader::new(stream);
                    for _ in 0..most {
                        if !passed(&mut stream, end) {
                            return;
                        }
                        let Some(answer) = answer(requests.fetch_add(1, Relaxed)) else {
                            return;
                        };
                        bytes.fetch_add(answer.len() as u64, Relaxed);
                        if stream.get_mut().write_all(&answer).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        server
    }
}

/// Reads to the end of a request; not so where the connection ends.
fn passed(stream: &mut BufReader<Box<dyn Stream>>, end: &[u8]) -> bool {
    let mut seen = Vec::new();
    let last = end.last().copied().unwrap_or_default();
    while !seen.ends_with(end) {
        match stream.read_until(last, &mut seen) {
            Ok(1..) => {}
            _ => return false,
        }
    }
    true
}

/// Without TLS.
pub(super) fn plain(socket: TcpStream) -> Box<dyn Stream> {
    Box::new(socket)
}

/// The end of the request that `load` makes of `/set/3`.
pub(super) const SET: &[u8] = b"$3\r\nxxx\r\n";
/// The end of a request without a body.
pub(super) const GET: &[u8] = b"\r\n\r\n";
