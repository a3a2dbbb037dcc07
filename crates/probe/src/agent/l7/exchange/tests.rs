//! Calls as servers make them, and what is put together from them.

use super::*;

const CONNECTION: ConnectionId = ConnectionId {
    process: 1,
    tls: false,
    number: 7,
};
const GET: &[u8] = b"GET /size/1 HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";

/// Calls on a connection, one a microsecond.
#[derive(Default)]
struct CallSequence {
    exchanges: Exchanges,
    time_ns: u64,
}

impl CallSequence {
    fn call(&mut self, act: CallKind, payload: &[u8], length: usize) {
        self.time_ns += 1000;
        self.exchanges.take(&L7Call {
            connection: CONNECTION,
            act,
            time_ns: self.time_ns,
            goroutine: Some(3),
            length: length as u64,
            payload,
        });
    }

    fn read(&mut self, payload: &[u8]) {
        self.call(CallKind::Read, payload, payload.len());
    }

    fn write(&mut self, payload: &[u8]) {
        self.call(CallKind::Write, payload, payload.len());
    }

    fn told(mut self) -> (ExchangeCounts, Vec<(String, Latency)>) {
        let (counted, endpoints) = self.exchanges.tell();
        let endpoint = |(endpoint, latency): (Endpoint, Latency)| {
            let Endpoint {
                method,
                path,
                status,
            } = endpoint;
            (format!("{method} {path} {status}"), latency)
        };
        (counted, endpoints.into_iter().map(endpoint).collect())
    }
}

#[test]
fn a_request_and_its_answer() {
    let mut fixture = CallSequence::default();
    fixture.read(GET);
    fixture.write(&[OK, b"hello"].concat());
    let (counted, endpoints) = fixture.told();
    let expected = ExchangeCounts {
        calls: 2,
        requests: 1,
        answered: 1,
        by_one_goroutine: 1,
        statuses: [0, 0, 1, 0, 0, 0],
        ..ExchangeCounts::default()
    };
    assert_eq!(counted, expected);
    let latency = Latency {
        answers: 1,
        sum_ns: 1000,
        most_ns: 1000,
    };
    assert_eq!(endpoints, [("GET /size/1 200".to_owned(), latency)]);
}

#[test]
fn a_head_that_comes_in_pieces_is_put_together() {
    // Go's server reads one byte ahead while it answers, and the rest later.
    let mut fixture = CallSequence::default();
    for _ in 0..3 {
        fixture.read(&GET[..1]);
        fixture.read(&GET[1..20]);
        fixture.read(&GET[20..]);
        fixture.write(&OK[..10]);
        fixture.write(&OK[10..]);
        fixture.write(b"hel");
        fixture.write(b"lo");
    }
    let (counted, _) = fixture.told();
    assert_eq!((counted.requests, counted.answered), (3, 3));
    assert_eq!((counted.opaque, counted.truncated), (0, 0));
}

#[test]
fn bodies_are_passed_over_by_their_length() {
    let mut fixture = CallSequence::default();
    let body = b"GET /none HTTP/1.1\r\n\r\nHTTP/1.1 500 No\r\n\r\n";
    let post = format!("POST /x HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
    fixture.read(&[post.as_bytes(), &body[..9]].concat());
    fixture.read(&body[9..]);
    let answer = format!("HTTP/1.1 201 Made\r\nContent-Length: {}\r\n\r\n", 100_000);
    // What is kept of a call ends in the body.
    fixture.call(CallKind::Write, answer.as_bytes(), answer.len() + 60_000);
    fixture.call(CallKind::Write, b"HTTP/1.1 500 No\r\n\r\n", 40_000);
    fixture.read(GET);
    fixture.write(&[OK, b"hello"].concat());
    let (counted, endpoints) = fixture.told();
    assert_eq!((counted.requests, counted.answered), (2, 2));
    let names: Vec<&str> = endpoints.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["GET /size/1 200", "POST /x 201"]);
}

#[test]
fn requests_sent_at_once_are_answered_in_their_order() {
    let mut fixture = CallSequence::default();
    fixture.read(&[GET, b"HEAD /a HTTP/1.1\r\n\r\n", GET].concat());
    fixture.write(&[OK, b"hello"].concat());
    // To HEAD there is a length, but no body.
    fixture.write(&[OK, OK, b"hello"].concat());
    let (counted, endpoints) = fixture.told();
    assert_eq!((counted.requests, counted.answered), (3, 3));
    assert_eq!(endpoints[1].0, "HEAD /a 200");
}

#[test]
fn an_answer_may_be_announced() {
    let mut fixture = CallSequence::default();
    fixture.read(b"PUT /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    fixture.write(b"HTTP/1.1 100 Continue\r\n\r\n");
    fixture.read(b"ab");
    fixture.write(b"HTTP/1.1 204 No Content\r\n\r\n");
    let (counted, endpoints) = fixture.told();
    assert_eq!((counted.requests, counted.answered), (1, 1));
    assert_eq!(endpoints[0].0, "PUT /a 204");
}

#[test]
fn chunks_are_waited_out() {
    let mut fixture = CallSequence::default();
    for _ in 0..2 {
        fixture.read(GET);
        fixture.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        fixture.write(b"0\r\n\r\n");
    }
    let (counted, _) = fixture.told();
    assert_eq!((counted.requests, counted.answered), (2, 2));
}

#[test]
fn what_is_encrypted_is_no_request() {
    let mut fixture = CallSequence::default();
    fixture.read(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    fixture.write(b"\x16\x03\x03\x00\x7a\x02");
    fixture.read(b"\x17\x03\x03\x00\x45");
    let (counted, _) = fixture.told();
    assert_eq!((counted.calls, counted.opaque, counted.requests), (3, 3, 0));
}

#[test]
fn a_head_longer_than_what_is_kept_is_told() {
    let mut fixture = CallSequence::default();
    fixture.call(CallKind::Read, &GET[..20], 2000);
    fixture.read(GET);
    let (counted, _) = fixture.told();
    assert_eq!((counted.truncated, counted.requests), (1, 1));
}

#[test]
fn a_connection_that_is_closed_is_forgotten() {
    let mut fixture = CallSequence::default();
    fixture.read(&GET[..10]);
    fixture.call(CallKind::Close, b"", 0);
    fixture.read(GET);
    let (counted, _) = fixture.told();
    assert_eq!((counted.calls, counted.requests), (2, 1));
}
