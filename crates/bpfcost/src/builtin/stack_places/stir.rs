//! Keeps the kernel busy in many ways at once: the network on the loopback, files, pipes, processes, signals, memory
//! and timers. Threads wait until they are asked, and each does little at a time.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use bpfcost_bpf::CpuPin;
use bpfcost_process::wait_until;

/// Pause of a thread between two rounds of its work.
const PAUSE: Duration = Duration::from_micros(300);
/// Interval at which an idle thread checks for a request, and at which dropping [`Stirring`] checks that all threads
/// are done.
const IDLE: Duration = Duration::from_millis(2);
/// Maximum time to wait until the threads are done.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a file, and of memory that is touched.
const BYTES: usize = 1 << 18;

/// Threads that keep the kernel busy while they are asked to. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Stir {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    asked: AtomicBool,
    ended: AtomicBool,
    /// Threads in the middle of their work.
    working: AtomicUsize,
}

/// While it lives, the threads work.
pub(super) struct Stirring<'a>(&'a Shared);

/// Waits until all work is done: a process that is being started has a copy of each descriptor, and keeps attached what
/// is detached meanwhile.
impl Drop for Stirring<'_> {
    fn drop(&mut self) {
        self.0.asked.store(false, Ordering::SeqCst);
        wait_until(TIMEOUT, IDLE, || self.0.working.load(Ordering::SeqCst) == 0);
    }
}

impl Stir {
    /// Starts threads on these CPUs in turn.
    pub(super) fn start(cpus: &[u32]) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let works: [Box<dyn FnMut() -> Result<()> + Send>; 5] = [
            Box::new(network()?),
            Box::new(pipe()?),
            Box::new(file()?),
            Box::new(process),
            Box::new(memory),
        ];
        let threads = works.into_iter().zip(cpus.iter().cycle());
        let start = |(mut work, &cpu): (Box<dyn FnMut() -> Result<()> + Send>, &u32)| {
            let shared = Arc::clone(&shared);
            let run = move || {
                let _pinned = CpuPin::to(cpu);
                while !shared.ended.load(Ordering::Relaxed) {
                    shared.working.fetch_add(1, Ordering::SeqCst);
                    let asked = shared.asked.load(Ordering::SeqCst);
                    let done = !asked || work().is_ok();
                    shared.working.fetch_sub(1, Ordering::SeqCst);
                    if !done {
                        // Others go on; a place that nothing comes by makes its trial invalid.
                        break;
                    }
                    thread::sleep(if asked { PAUSE } else { IDLE });
                }
            };
            thread::Builder::new()
                .spawn(run)
                .context("cannot start a thread")
        };
        let threads = threads.map(start).collect::<Result<_>>()?;
        Ok(Stir { shared, threads })
    }

    pub(super) fn on(&self) -> Stirring<'_> {
        self.shared.asked.store(true, Ordering::Relaxed);
        Stirring(&self.shared)
    }
}

impl Drop for Stir {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// New connections with bytes both ways, and datagrams.
fn network() -> Result<impl FnMut() -> Result<()> + Send> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot bind to 127.0.0.1")?;
    let (tcp, datagrams) = (listener.local_addr()?, udp.local_addr()?);
    Ok(move || {
        let mut client = TcpStream::connect(tcp)?;
        let (mut server, _) = listener.accept()?;
        for _ in 0..4 {
            client.write_all(&[1; 512])?;
            server.read_exact(&mut [0; 512])?;
            server.write_all(&[2; 64])?;
            client.read_exact(&mut [0; 64])?;
            udp.send_to(&[3; 32], datagrams)?;
            udp.recv(&mut [0; 32])?;
        }
        Ok(())
    })
}

/// A byte to another thread and back, so that both sleep and wake.
fn pipe() -> Result<impl FnMut() -> Result<()> + Send> {
    let (mut far_in, mut near_out) = std::io::pipe()?;
    let (mut near_in, mut far_out) = std::io::pipe()?;
    thread::Builder::new().spawn(move || {
        let mut byte = [0];
        // Ends when the other side is dropped.
        while far_in.read_exact(&mut byte).is_ok() && far_out.write_all(&byte).is_ok() {}
    })?;
    Ok(move || {
        near_out.write_all(&[1])?;
        near_in.read_exact(&mut [0])?;
        Ok(())
    })
}

/// File systems that are in memory, or on another machine: tmpfs, ramfs, 9p, NFS (`linux/magic.h`).
const WITHOUT_DISK: [u64; 4] = [0x0102_1994, 0x8584_58f6, 0x0102_1997, 0x6969];

/// Returns whether files are written to a block device; true if that is unknown.
pub(super) fn writes_to_disk() -> bool {
    let system = temporary().and_then(|file| Ok(rustix::fs::fstatfs(&file)?));
    system.map_or(true, |system| {
        !WITHOUT_DISK.contains(&(system.f_type as u64))
    })
}

/// A file that has no name. The system's folder for temporary files may be in memory, so it is the second choice.
fn temporary() -> Result<File> {
    tempfile::tempfile_in("/var/tmp")
        .or_else(|_| tempfile::tempfile_in(std::env::temp_dir()))
        .context("cannot make a temporary file")
}

/// A file written to the disk.
fn file() -> Result<impl FnMut() -> Result<()> + Send> {
    let mut file = temporary()?;
    let mut round = 0u64;
    Ok(move || {
        use std::io::Seek as _;
        round += 1;
        file.seek(std::io::SeekFrom::Start(0))?;
        file.write_all(&vec![round as u8; BYTES / 8])?;
        file.sync_data()?;
        Ok(())
    })
}

/// A process that ends, and one that is killed.
fn process() -> Result<()> {
    let quiet = |program: &str| {
        let mut command = Command::new(program);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    quiet("true").status()?;
    let mut sleeping = quiet("sleep").arg("1").spawn()?;
    sleeping.kill()?;
    sleeping.wait()?;
    Ok(())
}

/// Memory that is new, touched, and given back.
fn memory() -> Result<()> {
    let mut pages = vec![0u8; BYTES];
    for page in pages.chunks_mut(4096) {
        page[0] = 1;
    }
    drop(std::hint::black_box(pages));
    Ok(())
}
