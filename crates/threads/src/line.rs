//! The cost of changing a cache line: one that this CPU owns, and one that must come from another CPU each time.
//! Contention consists of such changes, and its models are calibrated with them.

use std::{
    fs, hint,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use crossbeam_utils::CachePadded;

use crate::group::{Member, ThreadGroup, WAIT_TIMEOUT};
use bpfcost_model::{Batch, Fault, Trial, differs, prove};

/// Looks at a line between two looks at how long this lasts, and offers of the CPU to others.
const SPINS: u32 = 1 << 14;

/// Who else changes a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLine {
    /// No other CPU.
    Own,
    /// Another core of the socket.
    Near,
    /// A core of another socket.
    Far,
}

/// Location of a CPU in the machine's topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLocation {
    /// The CPU's number.
    pub cpu: u32,
    /// The socket's number.
    pub socket: u32,
    /// The core's number in the socket.
    pub core: u32,
}

impl CpuLocation {
    /// As the kernel reports it; otherwise one socket, and each CPU a core.
    pub fn read(cpu: u32) -> Self {
        let topology = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        CpuLocation {
            cpu,
            socket: topology("physical_package_id").unwrap_or(0),
            core: topology("core_id").unwrap_or(cpu),
        }
    }
}

/// The CPUs that change a line in turn, or why there are none.
pub fn players(line: CacheLine, seats: &[CpuLocation]) -> Result<Vec<u32>, String> {
    let Some(first) = seats.first() else {
        return Err("needs a CPU to run on".to_owned());
    };
    let with = |other: &dyn Fn(&&CpuLocation) -> bool, what: &str| {
        let other = seats.iter().find(other);
        other
            .map(|other| vec![first.cpu, other.cpu])
            .ok_or_else(|| {
                format!("needs two CPUs of {what} that bpfcost may use; see lscpu and --cpus")
            })
    };
    match line {
        CacheLine::Own => Ok(vec![first.cpu]),
        CacheLine::Near => with(
            &|one| one.socket == first.socket && one.core != first.core,
            "one socket and different cores",
        ),
        CacheLine::Far => with(&|one| one.socket != first.socket, "different sockets"),
    }
}

/// Times so many changes by each of the players; the value is ns per change.
pub fn trial(players: &[u32], batch: Batch) -> Result<Trial, Fault> {
    let line = CachePadded::new(AtomicU64::new(0));
    let group = ThreadGroup {
        cpus: players,
        threads: players.len(),
        timeout: WAIT_TIMEOUT,
    };
    let timed = group.work(|member| {
        let begun = member.meet(0)?;
        let whole = match players.len() {
            1 => alone(&line, batch.0),
            _ => in_turn(&line, member, batch.0),
        };
        whole.then(|| (begun, Instant::now()))
    })?;
    let changes = batch.0 * players.len() as u64;
    let seen = line.load(Ordering::Relaxed);
    let wrong = differs(
        "changes",
        changes,
        seen,
        "the other CPU did not take its turn in time: something else runs there",
    );
    prove(wrong)?;
    let begun = timed.iter().flatten().map(|(begun, _)| *begun).min();
    let ended = timed.iter().flatten().map(|(_, ended)| *ended).max();
    let elapsed_ns = begun
        .zip(ended)
        .map_or(0.0, |(begun, ended)| (ended - begun).as_nanos() as f64);
    Ok(Trial {
        value: elapsed_ns / changes as f64,
        ops: batch.0,
        elapsed_ns,
        ..Trial::default()
    })
}

fn alone(line: &AtomicU64, changes: u64) -> bool {
    for _ in 0..changes {
        line.fetch_add(1, Ordering::Relaxed);
    }
    true
}

/// Changes the line whenever the other has; `false` where it does not for too long.
fn in_turn(line: &AtomicU64, member: &Member, changes: u64) -> bool {
    let turn = member.index as u64;
    for _ in 0..changes {
        let mut spins = 0;
        let mut wait = None;
        while line.load(Ordering::Acquire) % 2 != turn {
            spins += 1;
            if spins % SPINS == 0 {
                if wait.get_or_insert_with(|| member.wait()).is_over() {
                    return false;
                }
                thread::yield_now();
            }
            // Without it a change takes no less: 60 to 76 ns where it took 57 to 60, for looks get in the way.
            hint::spin_loop();
        }
        line.fetch_add(1, Ordering::AcqRel);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(cpu: u32, socket: u32, core: u32) -> CpuLocation {
        CpuLocation { cpu, socket, core }
    }

    #[test]
    fn players_sit_where_the_case_says() {
        // Two sockets of one core with two threads, and one more core.
        let seats = [seat(0, 0, 0), seat(1, 0, 0), seat(2, 1, 0), seat(3, 0, 1)];
        assert_eq!(players(CacheLine::Own, &seats), Ok(vec![0]));
        assert_eq!(players(CacheLine::Near, &seats), Ok(vec![0, 3]));
        assert_eq!(players(CacheLine::Far, &seats), Ok(vec![0, 2]));
        let near = players(CacheLine::Near, &seats[..2]).unwrap_err();
        assert!(near.contains("different cores"), "{near}");
        let far = players(CacheLine::Far, &seats[..2]).unwrap_err();
        assert!(far.contains("different sockets"), "{far}");
    }

    #[test]
    fn all_changes_are_made() {
        let cpus = bpfcost_bpf::allowed_cpus();
        for players in [&cpus[..1], &cpus[..2.min(cpus.len())]] {
            let trial = trial(players, Batch(1000)).expect("it is measured");
            assert_eq!(trial.ops, 1000);
            assert!(trial.value > 0.0);
        }
    }
}
