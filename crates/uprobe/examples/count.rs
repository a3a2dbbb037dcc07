//! Counts calls: a program of an object at the entry of a function, in a process that runs, or in each process that
//! starts a file from now on and in the children that it forks.
//!
//! ```sh
//! cargo build --release -p bpfcost-uprobe --example count
//! target/release/examples/count count.bpf.o on_call main.work --pid 4711
//! target/release/examples/count count.bpf.o on_call main --path /usr/bin/app
//! ```
//!
//! Stop it by Ctrl-C or by a kill: the processes go on as they were before.

use bpfcost_uprobe::{
    object::LoadedObject,
    probes::{At, Attached, Place, Probes},
    process::{Image, Starters, Starts},
};
use std::{
    env,
    error::Error,
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

const USAGE: &str = "usage: count OBJECT PROGRAM FUNCTION --pid PID | --path FILE";
/// Time between two lines.
const PRINT_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two looks at the counts: of a process that forks more than some thousand children a second, it is too long.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The counted function and its process.
struct Count {
    probes: Probes,
    program: String,
    function: String,
    attached: Vec<Attached>,
}

impl Count {
    fn attach(&mut self, pid: i32) -> Result<(), Box<dyn Error>> {
        let function = Image::of_program(pid)?.function(&self.function)?;
        let place = Place {
            program: &self.program,
            function: &function,
            at: At::Entry,
            cookie: 0,
        };
        let attached = self.probes.attach(pid, &[place])?;
        self.attached.push(attached);
        Ok(())
    }

    /// Looks at the counts now and then, which gives what ended children had to others.
    fn look_for(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            for attached in &self.attached {
                self.probes.hits(attached);
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    fn print(&self) {
        for attached in &self.attached {
            let (pid, counts) = (attached.pid(), self.probes.hits(attached).entry);
            println!(
                "process {pid}: {} hits, {} missed",
                counts.hits, counts.missed
            );
        }
    }

    /// Prints those that ended for the last time, and forgets them.
    fn forget_ended(&mut self) -> Result<(), Box<dyn Error>> {
        let is_over = |one: &mut Attached| self.probes.is_over(one);
        for over in self.attached.extract_if(.., is_over).collect::<Vec<_>>() {
            let (pid, counts) = (over.pid(), self.probes.detach(over)?.entry);
            println!(
                "process {pid} ended: {} hits, {} missed",
                counts.hits, counts.missed
            );
        }
        self.probes.forget_ended();
        Ok(())
    }
}

fn count(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [object, program, function, way, what] = arguments else {
        return Err(USAGE.into());
    };
    let mut probes = Probes::new(LoadedObject::open(Path::new(object))?)?;
    probes.follow_children();
    let mut count = Count {
        probes,
        program: program.clone(),
        function: function.clone(),
        attached: Vec::new(),
    };
    match way.as_str() {
        "--pid" => {
            let pid = what
                .parse()
                .map_err(|_| format!("{what} is no process number"))?;
            count.attach(pid)?;
            while !count.attached.is_empty() {
                count.look_for(PRINT_INTERVAL);
                count.print();
                count.forget_ended()?;
            }
            Ok(())
        }
        "--path" => {
            let mut starts = Starts::new(&[Path::new(what)], Starters::All)?;
            loop {
                for started in starts.wait(PRINT_INTERVAL)? {
                    // It is stopped until `started` is dropped. One that can't be probed is no reason to leave the others.
                    let pid = started.pid();
                    if let Err(error) = count.attach(pid) {
                        eprintln!("process {pid} is not counted: {error}");
                    }
                }
                count.print();
                count.forget_ended()?;
            }
        }
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match count(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
