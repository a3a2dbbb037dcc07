//! One direction of a connection: where in it messages of HTTP/1 begin. Of each call its length and its first
//! bytes are known: enough for heads that begin near the start of a call, and to know where the next one
//! begins.

/// Bytes of a head beyond which it is taken for something else.
const MAX_BYTES: usize = 64 * 1024;
/// Header fields of a head beyond which it is the same.
const MAX_FIELDS: usize = 100;

/// Parser state of one direction.
#[derive(Debug, Default)]
pub(super) enum Flow {
    /// Somewhere: a message begins where a call does, if at all.
    #[default]
    Lost,
    /// In a head, of which this is known.
    Head(Vec<u8>),
    /// In a body, of which so many bytes are to come.
    Body(u64),
}

/// The result of parsing bytes as the head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadParse {
    /// A head: its length in bytes, and that of the body after it; `None` where the head does not say.
    Head { bytes: usize, body: Option<u64> },
    /// The beginning of one.
    Beginning,
    /// Something else.
    Other,
}

/// Reasons not to parse a call to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SkipReason {
    /// No message can be recognised: encrypted ones, for example.
    Opaque,
    /// A head goes on behind what is known of the call.
    Truncated,
}

impl Flow {
    /// Adds a call that moved `length` bytes, which begin with `payload`; `parse` gets what may be the head of
    /// a message, with its beginning from earlier calls.
    pub(super) fn take(
        &mut self,
        payload: &[u8],
        length: u64,
        mut parse: impl FnMut(&[u8]) -> HeadParse,
    ) -> Result<(), SkipReason> {
        let mut at = 0;
        while at < length {
            match self {
                Flow::Body(rest) => {
                    let here = (*rest).min(length - at);
                    at += here;
                    *rest -= here;
                    if *rest == 0 {
                        *self = Flow::Head(Vec::new());
                    }
                }
                Flow::Lost if at > 0 => return Ok(()),
                Flow::Lost => *self = Flow::Head(Vec::new()),
                Flow::Head(head) => {
                    let before = head.len();
                    let fresh = payload.get(at as usize..).unwrap_or_default();
                    head.extend(fresh);
                    let parsed = if fresh.is_empty() {
                        HeadParse::Beginning
                    } else {
                        parse(head)
                    };
                    match parsed {
                        HeadParse::Head { bytes, body } => {
                            at += (bytes - before) as u64;
                            *self = match body {
                                Some(0) => Flow::Head(Vec::new()),
                                Some(body) => Flow::Body(body),
                                None => Flow::Lost,
                            };
                        }
                        HeadParse::Beginning if length > payload.len() as u64 => {
                            *self = Flow::Lost;
                            return Err(SkipReason::Truncated);
                        }
                        HeadParse::Beginning if head.len() <= MAX_BYTES => return Ok(()),
                        HeadParse::Beginning | HeadParse::Other => {
                            *self = Flow::Lost;
                            return Err(SkipReason::Opaque);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Takes bytes as the head of a request.
pub(super) fn request(bytes: &[u8], callback: impl FnOnce(&str, &str)) -> HeadParse {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(bytes)) => {
            callback(
                request.method.unwrap_or_default(),
                request.path.unwrap_or_default(),
            );
            let body = match body(request.headers) {
                // A request without a word on it has none.
                BodyLength::Untold => Some(0),
                BodyLength::Bytes(body) => Some(body),
                BodyLength::Chunks => None,
            };
            HeadParse::Head { bytes, body }
        }
        Ok(httparse::Status::Partial) => HeadParse::Beginning,
        Err(_) => HeadParse::Other,
    }
}

/// Takes bytes as the head of an answer, to a request of that method.
pub(super) fn response(bytes: &[u8], method: &str, callback: impl FnOnce(u16)) -> HeadParse {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(bytes)) => {
            let status = response.code.unwrap_or_default();
            callback(status);
            let body = match body(response.headers) {
                _ if method == "HEAD" || matches!(status, 100..200 | 204 | 304) => Some(0),
                BodyLength::Bytes(body) => Some(body),
                BodyLength::Untold | BodyLength::Chunks => None,
            };
            HeadParse::Head { bytes, body }
        }
        Ok(httparse::Status::Partial) => HeadParse::Beginning,
        Err(_) => HeadParse::Other,
    }
}

/// Length of the body, as the head declares it.
enum BodyLength {
    Untold,
    Bytes(u64),
    Chunks,
}

fn body(fields: &[httparse::Header<'_>]) -> BodyLength {
    let field = |name: &str| {
        let mut named = fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name));
        named.next().map(|field| field.value)
    };
    if field("transfer-encoding").is_some() {
        return BodyLength::Chunks;
    }
    let length = field("content-length").and_then(|value| std::str::from_utf8(value).ok());
    match length.and_then(|value| value.trim().parse().ok()) {
        Some(bytes) => BodyLength::Bytes(bytes),
        None => BodyLength::Untold,
    }
}
