//! A connection: a socket that never waits, with TLS or without.

use std::{
    io::{BufRead as _, ErrorKind, Read as _, Write as _},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{
    response::{Response, ResponseParser},
    target::LoadTarget,
};

/// How long a server may take to accept.
const ACCEPT: Duration = Duration::from_secs(5);
const BROKEN: &str = "the server closed the connection";
const NO_TLS: &str = "the server's answer is not TLS that bpfcost supports";

/// A connection to the target.
pub(super) struct Connection {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// What is written once the socket takes it; without TLS.
    out: Vec<u8>,
    answer: ResponseParser,
    waits: bool,
}

/// The result of a connection's turn.
pub(super) enum ConnectionEvent {
    /// Nothing new.
    Waits,
    /// The answer is here.
    Answered(Response),
    /// The server has closed it while nothing was asked.
    Closed,
}

impl Connection {
    /// Connects. The handshake of TLS goes with the first request.
    pub(super) fn open(target: &LoadTarget, tls: Option<&Arc<ClientConfig>>) -> Result<Self> {
        let address = target.address;
        let socket = TcpStream::connect_timeout(&address, ACCEPT)
            .with_context(|| format!("nothing accepts connections at {address}"))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let tls = match tls {
            Some(config) => {
                let name = ServerName::IpAddress(address.ip().into());
                Some(Box::new(ClientConnection::new(Arc::clone(config), name)?))
            }
            None => None,
        };
        Ok(Connection {
            socket,
            tls,
            out: Vec::new(),
            answer: ResponseParser::new(target.protocol),
            waits: false,
        })
    }

    /// Whether an answer is due.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    pub(super) fn send(&mut self, request: &[u8]) -> Result<()> {
        self.waits = true;
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(request)?,
            None => self.out.extend_from_slice(request),
        }
        self.flush()
    }

    /// Writes and reads what can be; `bytes` grows by what came. An edge is reported once, so the socket is read
    /// empty, which a short read has done, and to its end where the server `hung_up`.
    pub(super) fn turn(
        &mut self,
        hung_up: bool,
        buffer: &mut [u8],
        bytes: &mut u64,
    ) -> Result<ConnectionEvent> {
        self.flush()?;
        let mut turn = ConnectionEvent::Waits;
        loop {
            let read = match self.socket.read(buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(turn),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // A server may go as it likes where it owes nothing.
                Err(_) if !self.waits => 0,
                Err(error) => return Err(error).context(BROKEN),
            };
            if read == 0 {
                return self.closed(turn);
            }
            if let Some(answered) = self.take(&buffer[..read], bytes)? {
                self.waits = false;
                turn = ConnectionEvent::Answered(answered);
            }
            // TLS may have to say something in its own name.
            self.flush()?;
            if read < buffer.len() && !hung_up {
                return Ok(turn);
            }
        }
    }

    /// The server has closed the connection, after what came in this turn.
    fn closed(&mut self, turn: ConnectionEvent) -> Result<ConnectionEvent> {
        match turn {
            ConnectionEvent::Answered(answered) => Ok(ConnectionEvent::Answered(Response {
                closes: true,
                ..answered
            })),
            _ if self.waits => {
                self.waits = false;
                Ok(ConnectionEvent::Answered(self.answer.hung_up()?))
            }
            _ => Ok(ConnectionEvent::Closed),
        }
    }

    /// Gives what was read to the answer, through TLS where there is any.
    fn take(&mut self, mut read: &[u8], bytes: &mut u64) -> Result<Option<Response>> {
        let Some(tls) = &mut self.tls else {
            *bytes += read.len() as u64;
            return self.answer.take(read);
        };
        let mut answered = None;
        while !read.is_empty() {
            tls.read_tls(&mut read).context(NO_TLS)?;
            tls.process_new_packets().context(NO_TLS)?;
            let mut reader = tls.reader();
            loop {
                let plain = match reader.fill_buf() {
                    Ok(plain) => plain,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).context(NO_TLS),
                };
                if plain.is_empty() {
                    break;
                }
                *bytes += plain.len() as u64;
                answered = self.answer.take(plain)?.or(answered);
                let taken = plain.len();
                reader.consume(taken);
            }
        }
        Ok(answered)
    }

    /// Writes what the socket takes.
    fn flush(&mut self) -> Result<()> {
        let outcome = loop {
            let written = match &mut self.tls {
                Some(tls) if tls.wants_write() => tls.write_tls(&mut self.socket),
                None if !self.out.is_empty() => self.socket.write(&self.out).inspect(|written| {
                    self.out.drain(..written);
                }),
                _ => return Ok(()),
            };
            match written {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => break error,
            }
        };
        Err(outcome).context(BROKEN)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// TLS without verification: on loopback the peer is the server which this run has started, with a
/// certificate that it has made itself.
pub(super) fn tls() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Accepts any certificate; the signature is still checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
