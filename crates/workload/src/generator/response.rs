//! Where an answer ends, and whether it is a good one. Bodies are discarded.

use std::mem;

use anyhow::{Result, bail};

use super::target::Protocol;

/// Headers that an answer may have.
const MAX_HEADERS: usize = 64;
/// Bytes that may come before a body or a chunk.
const MAX_HELD: usize = 64 << 10;

/// An answer that is on its way.
#[derive(Debug)]
pub(super) struct ResponseParser {
    protocol: Protocol,
    /// What came and could not be understood yet, for more is to come.
    held: Vec<u8>,
    state: ParserState,
    error: Option<String>,
    closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// A status line and headers.
    Head,
    /// So many bytes, then nothing.
    Body(u64),
    /// So many bytes, then a chunk.
    Chunk(u64),
    /// Whatever comes before the server hangs up.
    Rest,
    /// Nothing.
    Over,
}

/// An answer that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// What the server refused it with.
    pub(super) error: Option<String>,
    /// Whether the connection is of no further use.
    pub(super) closes: bool,
}

impl ResponseParser {
    pub(super) fn new(protocol: Protocol) -> Self {
        ResponseParser {
            protocol,
            held: Vec::new(),
            state: ParserState::Head,
            error: None,
            closes: false,
        }
    }

    /// Adds bytes that were received.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Option<Response>> {
        if self.held.is_empty() {
            return self.advance(bytes);
        }
        let mut all = mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        self.advance(&all)
    }

    fn advance(&mut self, mut bytes: &[u8]) -> Result<Option<Response>> {
        loop {
            match &mut self.state {
                ParserState::Body(left) | ParserState::Chunk(left) if *left > 0 => {
                    let passed = (*left).min(bytes.len() as u64);
                    *left -= passed;
                    bytes = &bytes[passed as usize..];
                    if *left > 0 {
                        return Ok(None);
                    }
                }
                ParserState::Body(_) => self.state = ParserState::Over,
                ParserState::Rest => return Ok(None),
                ParserState::Over if bytes.is_empty() => return Ok(Some(self.finish())),
                ParserState::Over => bail!("the server sent more than was requested"),
                ParserState::Head | ParserState::Chunk(_) => {
                    let understood = match (self.protocol, self.state) {
                        (Protocol::Redis, _) => self.line(bytes),
                        (Protocol::Http, ParserState::Head) => self.head(bytes)?,
                        (Protocol::Http, _) => self.chunk(bytes)?,
                    };
                    match understood {
                        Some(understood) => bytes = &bytes[understood..],
                        None if bytes.len() > MAX_HELD => {
                            bail!("the server's answer has no end")
                        }
                        None => {
                            self.held = bytes.to_vec();
                            return Ok(None);
                        }
                    }
                }
            }
        }
    }

    /// The server has hung up. That is an end for an answer without a length.
    pub(super) fn hung_up(&mut self) -> Result<Response> {
        match self.state {
            ParserState::Rest => {
                self.closes = true;
                Ok(self.finish())
            }
            _ => bail!("the server closed the connection before it had answered"),
        }
    }

    fn finish(&mut self) -> Response {
        let answered = Response {
            error: self.error.take(),
            closes: self.closes,
        };
        *self = ResponseParser::new(self.protocol);
        answered
    }

    /// A line of redis: `+OK`, or `-ERR …`.
    fn line(&mut self, bytes: &[u8]) -> Option<usize> {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let line = String::from_utf8_lossy(&bytes[..end]);
        if !line.starts_with('+') {
            self.error = Some(line.into_owned());
        }
        self.state = ParserState::Over;
        Some(end + 2)
    }

    /// The head of an HTTP answer; how long it is.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let end = match head.parse(bytes) {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => bail!("the server's answer is not HTTP: {error}"),
        };
        let code = head.code.unwrap_or(0);
        if !(200..300).contains(&code) {
            self.error = Some(format!("HTTP {code} {}", head.reason.unwrap_or("")));
        }
        // HTTP/1.0 closes unless it says otherwise.
        let mut closes = head.version == Some(0);
        let mut length = None;
        let mut chunked = false;
        for header in head.headers.iter() {
            let value = String::from_utf8_lossy(header.value).to_ascii_lowercase();
            match header.name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok(),
                "transfer-encoding" => chunked = value.contains("chunked"),
                "connection" => closes = value.contains("close"),
                _ => {}
            }
        }
        self.closes = closes;
        self.state = match (code, length) {
            (100..200, _) => ParserState::Head,
            (204 | 304, _) => ParserState::Over,
            _ if chunked => ParserState::Chunk(0),
            (_, Some(length)) => ParserState::Body(length),
            (_, None) => ParserState::Rest,
        };
        if (100..200).contains(&code) {
            self.error = None;
        }
        Ok(Some(end))
    }

    /// The line before a chunk; how long it is. The last one is empty, and trailers are not asked for.
    fn chunk(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        let (end, size) = match httparse::parse_chunk_size(bytes) {
            Ok(httparse::Status::Complete(parsed)) => parsed,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => bail!("the server's answer is not HTTP: a chunk has no size"),
        };
        if size > 0 {
            self.state = ParserState::Chunk(size.saturating_add(2));
            return Ok(Some(end));
        }
        if bytes.len() < end + 2 {
            return Ok(None);
        }
        self.state = ParserState::Over;
        Ok(Some(end + 2))
    }
}

/// What a server's bytes are to a client, in pieces of `piece` bytes, for fuzzing.
pub fn read_in_pieces(is_http: bool, bytes: &[u8], piece: usize) {
    let protocol = if is_http {
        Protocol::Http
    } else {
        Protocol::Redis
    };
    let mut parser = ResponseParser::new(protocol);
    let failed = bytes
        .chunks(piece.max(1))
        .any(|piece| parser.take(piece).is_err());
    if !failed {
        let _ = parser.hung_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n1\r\ne\r\n0\r\n\r\n";

    fn whole(protocol: Protocol, bytes: &[u8]) -> Option<Response> {
        ResponseParser::new(protocol)
            .take(bytes)
            .expect("an answer")
    }

    fn good() -> Option<Response> {
        Some(Response {
            error: None,
            closes: false,
        })
    }

    #[test]
    fn answers_end_where_they_end_however_they_are_cut() {
        for (protocol, bytes) in [
            (Protocol::Redis, b"+OK\r\n".as_slice()),
            (
                Protocol::Http,
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            ),
            (Protocol::Http, b"HTTP/1.1 204 No Content\r\n\r\n"),
            (
                Protocol::Http,
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            ),
            (Protocol::Http, CHUNKED),
        ] {
            assert_eq!(whole(protocol, bytes), good());
            let mut answer = ResponseParser::new(protocol);
            for (at, byte) in bytes.iter().enumerate() {
                let answered = answer.take(&[*byte]).expect("an answer");
                assert_eq!(answered.is_some(), at + 1 == bytes.len(), "{at}");
            }
            assert_eq!(answer.take(bytes).expect("the next"), good());
        }
    }

    #[test]
    fn refusals_are_answers_too() {
        let refused = |protocol, bytes: &[u8]| whole(protocol, bytes)?.error;
        assert_eq!(
            refused(Protocol::Redis, b"-ERR no\r\n").as_deref(),
            Some("-ERR no")
        );
        assert_eq!(
            refused(
                Protocol::Http,
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx"
            )
            .as_deref(),
            Some("HTTP 404 Not Found")
        );
    }

    #[test]
    fn a_server_may_close_after_an_answer_and_not_before() {
        let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
        assert!(whole(Protocol::Http, closing).expect("an answer").closes);
        let mut endless = ResponseParser::new(Protocol::Http);
        assert_eq!(
            endless.take(b"HTTP/1.0 200 ok\r\n\r\nabc").expect("a head"),
            None
        );
        assert!(endless.hung_up().expect("its end").closes);
        let mut cut = ResponseParser::new(Protocol::Http);
        cut.take(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
            .expect("a head");
        assert!(cut.hung_up().is_err());
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(
            ResponseParser::new(Protocol::Http)
                .take(b"\0\x01\x02\r\n")
                .is_err()
        );
        assert!(
            ResponseParser::new(Protocol::Redis)
                .take(b"+OK\r\n+OK\r\n")
                .is_err()
        );
        let long = vec![b'a'; MAX_HELD + 1];
        assert!(ResponseParser::new(Protocol::Redis).take(&long).is_err());
    }
}
