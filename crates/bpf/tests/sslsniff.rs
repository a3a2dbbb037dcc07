//! The sniffer of TLS gets what goes through OpenSSL, byte for byte: of a real nginx, in small calls and large.

mod require;

use std::{
    cell::{Cell, RefCell},
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
    thread::sleep,
    time::{Duration, Instant},
};

use bpfcost_bpf::{
    Space,
    sslsniff::{Capture, Direction, Sniffer, SslCounts},
};

/// Longer than a record of the ring buffer, and no multiple of anything.
const FILE_BYTES: usize = 300_001;

/// A server of TLS that is gone when it is dropped.
struct Nginx {
    dir: tempfile::TempDir,
    child: Child,
    port: u16,
}

impl Nginx {
    /// Starts one that hands OpenSSL so many bytes at once.
    fn start(at_once: &str) -> Self {
        let dir = tempfile::tempdir().expect("folder");
        let place = |name: &str| dir.path().join(name);
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = free.local_addr().expect("a port").port();
        drop(free);
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args([
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-subj",
                "/CN=localhost",
            ])
            .arg("-keyout")
            .arg(place("key.pem"))
            .arg("-out")
            .arg(place("certificate.pem"))
            .output()
            .expect("openssl");
        assert!(made.status.success(), "{made:?}");
        // Bytes that don't repeat, so that a chunk in a wrong place shows.
        let bytes: Vec<u8> = (0..FILE_BYTES as u32)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        fs::write(place("file"), bytes).expect("file");
        let configuration = format!(
            "daemon off; user root; worker_processes 1; pid nginx.pid; error_log stderr;\n\
             events {{}}\n\
             http {{\n\
             access_log off; client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t;\n\
             uwsgi_temp_path t; scgi_temp_path t; output_buffers 1 {at_once};\n\
             server {{ listen 127.0.0.1:{port} ssl; ssl_buffer_size {at_once}; root .;\n\
             ssl_certificate certificate.pem; ssl_certificate_key key.pem; }}\n\
             }}\n"
        );
        fs::write(place("nginx.conf"), configuration).expect("configuration");
        let child = Command::new("nginx")
            .arg("-p")
            .arg(dir.path())
            .arg("-c")
            .arg(place("nginx.conf"))
            .args(["-e", "stderr"])
            .spawn()
            .expect("nginx");
        let nginx = Nginx { dir, child, port };
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10), "nginx starts");
            sleep(Duration::from_millis(10));
        }
        nginx
    }

    fn file(&self) -> Vec<u8> {
        fs::read(self.dir.path().join("file")).expect("file")
    }

    /// The process that serves.
    fn worker(&self) -> u32 {
        let id = self.child.id();
        let begun = Instant::now();
        loop {
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
            // It listens before it starts it.
            if let Ok(worker) = children.expect("children").trim().parse() {
                return worker;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "one worker");
            sleep(Duration::from_millis(10));
        }
    }

    /// Asks for the file, and returns the answer.
    fn get(&self, request: &[u8]) -> Vec<u8> {
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect"])
            .arg(format!("127.0.0.1:{}", self.port))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        let mut asks = client.stdin.take().expect("input");
        asks.write_all(request).expect("asked");
        let mut answer = Vec::new();
        let mut answers = client.stdout.take().expect("output");
        answers.read_to_end(&mut answer).expect("answer");
        client.wait().expect("end");
        answer
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Asked kindly, the master takes its worker with it.
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
    }
}

/// The library that a process has mapped.
fn libssl(process: u32) -> PathBuf {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("maps");
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    paths
        .find(|path| path.contains("libssl"))
        .expect("libssl")
        .into()
}

/// Returns true if nginx and openssl are here.
fn servers() -> bool {
    let there = |program| {
        Command::new(program)
            .arg(if program == "nginx" { "-v" } else { "version" })
            .output()
            .is_ok()
    };
    let both = there("nginx") && there("openssl");
    if !both {
        require::skip("nginx or openssl is missing; install them with scripts/setup.sh");
    }
    both
}

#[test]
fn what_was_asked_and_answered_is_captured_to_the_last_byte() {
    capture(Space::Kernel);
}

#[test]
fn in_user_space_it_is_captured_to_the_last_byte_as_well() {
    capture(Space::User);
}

fn capture(space: Space) {
    if !require::host() || !servers() {
        return;
    }
    for (at_once, least) in [("4k", 70), ("16k", 19), ("256k", 2)] {
        let nginx = Nginx::start(at_once);
        let captured = Rc::new(RefCell::new((Vec::new(), Vec::new())));
        let into = Rc::clone(&captured);
        let worker = nginx.worker();
        // Bytes that the call has moved before the next record, if it is of that call.
        let mut moved = 0;
        let begun = Rc::new(Cell::new(0));
        let begins = Rc::clone(&begun);
        let mut sniffer = Sniffer::load(Capture::Payload, space, move |record| {
            let (read, written) = &mut *into.borrow_mut();
            match record.direction {
                Direction::Read => read.extend_from_slice(record.payload),
                Direction::Written => written.extend_from_slice(record.payload),
            }
            assert_eq!((record.process, record.thread), (worker, worker));
            assert!(record.offset == 0 || record.offset == moved, "{record:?}");
            begins.set(begins.get() + u64::from(record.offset == 0));
            moved = record.offset + record.payload.len() as u64;
        })
        .expect("load");
        assert!(sniffer.attach(worker, &libssl(worker)).expect("attach"));
        let request = b"GET /file HTTP/1.0\r\n\r\n";
        let answer = nginx.get(request);
        sniffer.take().expect("records");
        let counts = sniffer.counts().expect("counts");
        let calls = counts.read.calls + counts.written.calls;
        assert_eq!(begun.get(), calls, "{at_once}: {counts:?}");
        // The connection is closed: no call of the server is left, once it has closed it, too.
        let begun = Instant::now();
        while sniffer.under_way().expect("calls") > 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "{at_once}: a call is left"
            );
            sleep(Duration::from_millis(1));
        }
        sniffer.detach().expect("detached");
        {
            let (read, written) = &*captured.borrow();
            assert_eq!(read, request);
            assert!(
                *written == answer,
                "{at_once}: what came is what was captured"
            );
            assert!(
                written.ends_with(&nginx.file()),
                "{at_once}: and is the file"
            );
            assert_eq!(counts.read.bytes, read.len() as u64);
            assert_eq!(counts.written.bytes, written.len() as u64);
        }
        assert_eq!(
            (counts.read.lost, counts.written.lost, counts.missed),
            (0, 0, 0)
        );
        assert!(counts.hits >= 2 * calls);
        // At least this many: nginx may have to wait in between.
        assert!(counts.written.calls >= least, "{at_once}: {counts:?}");
        // A fork that another test makes just now has the kernel's links, too, for a moment.
        let begun = Instant::now();
        loop {
            let detached = sniffer.counts().expect("counts");
            nginx.get(request);
            sniffer.take().expect("records");
            if sniffer.counts().expect("counts") == detached {
                break;
            }
            let is_patient = space == Space::Kernel && begun.elapsed() < Duration::from_secs(10);
            assert!(is_patient, "detached");
        }
    }
}

#[test]
fn every_request_is_answered_while_probes_in_the_server_come_and_go() {
    if !require::host() || !servers() {
        return;
    }
    if Command::new("wrk").arg("-v").output().is_err() {
        return require::skip("wrk is missing; install it with scripts/setup.sh");
    }
    let nginx = Nginx::start("16k");
    let (worker, url) = (
        nginx.worker(),
        format!("https://127.0.0.1:{}/file", nginx.port),
    );
    let mut load = Command::new("wrk")
        .args(["-t1", "-c8", "-d300s", &url])
        .stdout(Stdio::piped())
        .spawn()
        .expect("wrk");
    let mut sniffer = Sniffer::load(Capture::Payload, Space::User, |_| ()).expect("load");
    let library = libssl(worker);
    for cycle in 0..100 {
        let before = sniffer.counts().expect("counts").hits;
        assert!(sniffer.attach(worker, &library).expect("attach"));
        let begun = Instant::now();
        while sniffer.counts().expect("counts").hits < before + 10 {
            assert!(begun.elapsed() < Duration::from_secs(30), "cycle {cycle}");
            sleep(Duration::from_millis(1));
        }
        sniffer.detach().expect("detached");
        sniffer.take().expect("records");
    }
    let interrupted = Command::new("kill")
        .args(["-INT", &load.id().to_string()])
        .status();
    assert!(interrupted.expect("kill").success());
    let mut output = String::new();
    let mut pipe = load.stdout.take().expect("a pipe");
    pipe.read_to_string(&mut output).expect("its output");
    load.wait().expect("wrk ends");
    // It names errors only where there are some.
    assert!(output.contains("requests in"), "{output}");
    assert!(!output.contains("Non-2xx"), "{output}");
    assert!(!output.contains("Socket errors"), "{output}");
    let request = b"GET /file HTTP/1.0\r\n\r\n";
    assert!(
        nginx.get(request).ends_with(&nginx.file()),
        "it still serves"
    );
}

#[test]
fn what_has_no_openssl_in_it_is_told() {
    if !require::host() {
        return;
    }
    for space in [Space::Kernel, Space::User] {
        let mut sniffer = Sniffer::load(Capture::Payload, space, |_| ()).expect("load");
        let own = Path::new("/proc/self/exe");
        assert!(!sniffer.attach(std::process::id(), own).expect("asked"));
        assert_eq!(sniffer.counts().expect("counts"), SslCounts::default());
        let missing = Path::new("/no/libssl.so");
        assert!(sniffer.attach(std::process::id(), missing).is_err());
    }
}
