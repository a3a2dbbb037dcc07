//! `bpfcost kernel`: kernels for guests.

use std::{
    io::{IsTerminal, stderr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use clap::Subcommand;
use comfy_table::CellAlignment;
use serde::Serialize;

use super::{
    exit::Exit,
    interrupt,
    output::{Bar, note, say},
};
use bpfcost_console::list::{ListFormat, table};
use bpfcost_target::kernel::{
    Addition, Error, KernelEntry, KernelStatus, Manifest, Origin, StepObserver, Store,
};
use bpfcost_text::number::{bytes, plain_spaces};

/// Add, build, list and remove kernels for guests
///
/// A guest boots one with --on vm:NAME or --on exact:NAME. NAME is a release, a part of one (6.12 is the newest 6.12
/// that you added), a suite, or the path of an image. Kernels are kept in $XDG_CACHE_HOME/bpfcost/kernels, or
/// ~/.cache/bpfcost/kernels, and checked before each use.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  bpfcost kernel add trixie\n  bpfcost kernel add bookworm sid ./arch/x86/boot/bzImage\n  \
                  bpfcost kernel list\n  bpfcost kernel remove 6.1"
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add the newest kernel of a Debian suite, or a kernel image
    ///
    /// A suite's kernel is fetched through apt from the Debian mirror in this system's package sources; signatures are
    /// checked, the system is not changed, and no root is needed. It downloads about 100 MB, and needs 600 MB of free
    /// disk while it runs. An image is copied, with its modules if they are in ../lib/modules/RELEASE or /lib/modules/RELEASE.
    #[command(
        after_help = "Examples:\n  bpfcost kernel add bookworm trixie sid   Linux 6.1, 6.12, the newest\n  \
                            bpfcost kernel add ./arch/x86/boot/bzImage"
    )]
    Add {
        /// A suite (bookworm, trixie, sid or another of the mirror), or the path of an image, with a /
        #[arg(required = true, value_name = "SUITE|PATH")]
        what: Vec<String>,
    },
    /// Build a kernel that Debian does not package
    ///
    /// 6.12-fp is a small Linux 6.12 with frame pointers, built from Debian's package linux-source-6.12 (trixie). The
    /// build takes about 10 minutes on 2 idle CPUs, downloads 150 MB, and needs 3 GB of disk meanwhile. It needs gcc,
    /// make, flex, bison, bc, pahole and the headers of libelf; it reports those that are missing.
    Build {
        /// Unwind stacks by frame pointers
        #[arg(long, required = true)]
        frame_pointer: bool,
    },
    /// List the added kernels, and check each of them
    List {
        /// Print the result in this format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// Remove kernels that you added
    Remove {
        /// A release, or a part of one that only one kernel has
        #[arg(required = true)]
        name: Vec<String>,
    },
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    let store = Store::of_user()?;
    match &args.command {
        Command::Add { what } => {
            let view = ProgressView::new()?;
            for what in what {
                show_addition(store.add(what, &view), &view)?;
            }
        }
        Command::Build { .. } => {
            let view = ProgressView::new()?;
            show_addition(store.build_frame_pointer(&view), &view)?;
        }
        Command::List { format } => list(&store, *format)?,
        Command::Remove { name } => {
            let view = ProgressView::new()?;
            for name in name {
                say!("removed {}", store.remove(name, &view)?)?;
            }
        }
    }
    Ok(Exit::Done)
}

fn show_addition(added: Result<Addition, Error>, view: &ProgressView) -> Result<()> {
    view.bar.clear();
    match added? {
        Addition::New(kernel) => say!("added {}\n  use it: {}", words(&kernel), usage(&kernel)),
        Addition::Already(kernel) => say!("{} is already there and up to date", words(&kernel)),
    }
}

/// `6.12.107+deb13-amd64 from trixie (6.12.107-1)`.
fn words(kernel: &Manifest) -> String {
    match &kernel.origin {
        Origin::Built { .. } => format!("{}, {}", kernel.release, kernel.origin),
        _ => format!("{} from {}", kernel.release, kernel.origin),
    }
}

/// How to name it in a run: by its first two numbers, which is what people remember.
fn usage(kernel: &Manifest) -> String {
    let mut numbers = kernel.release.splitn(3, ['.', '-', '+']);
    let short: Vec<&str> = numbers.by_ref().take(2).collect();
    let name = match kernel.origin {
        Origin::Built { .. } => format!("{}-fp", short.join(".")),
        Origin::Debian { .. } => short.join("."),
        // A newer one of Debian's may go by the short name.
        Origin::Path(_) => kernel.release.clone(),
    };
    format!("bpfcost run xdp-lb --on vm:{name} --on exact:{name}")
}

/// A kernel, for programs.
#[derive(Serialize)]
struct KernelListing<'a> {
    release: &'a str,
    state: &'static str,
    /// How a damaged one differs.
    problem: Option<&'a str>,
    bytes: u64,
    origin: Option<&'a Origin>,
    added: Option<&'a str>,
}

fn list(store: &Store, format: ListFormat) -> Result<()> {
    let kernels = store.list()?;
    if let ListFormat::Json = format {
        let listed: Vec<KernelListing> = kernels
            .iter()
            .map(|kernel| KernelListing {
                release: &kernel.release,
                state: match kernel.state {
                    KernelStatus::Ok => "ok",
                    KernelStatus::Damaged(_) => "damaged",
                    KernelStatus::OfTheSystem => "system",
                },
                problem: problem(kernel),
                bytes: kernel.bytes,
                origin: kernel.manifest.as_ref().map(|one| &one.origin),
                added: kernel.manifest.as_ref().map(|one| &*one.added),
            })
            .collect();
        return say!("{}", serde_json::to_string_pretty(&listed)?);
    }
    if kernels.is_empty() {
        return say!(
            "No kernels yet. Add one: bpfcost kernel add trixie (6.12), bookworm (6.1), sid (the newest)"
        );
    }
    let mut table = table(["name", "from", "size", "added", "state"]);
    if let Some(size) = table.column_mut(2) {
        size.set_cell_alignment(CellAlignment::Right);
    }
    for kernel in &kernels {
        let (from, added) = match (&kernel.manifest, &kernel.state) {
            (Some(manifest), _) => (manifest.origin.to_string(), &*manifest.added),
            (None, KernelStatus::OfTheSystem) => ("/boot".to_owned(), ""),
            (None, _) => ("unknown".to_owned(), ""),
        };
        table.add_row([
            kernel.release.clone(),
            from,
            plain_spaces(&bytes(kernel.bytes)),
            // The day is enough for people.
            added.split('T').next().unwrap_or_default().to_owned(),
            problem(kernel).map_or("ok".to_owned(), |what| format!("damaged: {what}")),
        ]);
    }
    say!("{}", table.trim_fmt())?;
    say!("\nUse one: --on vm:NAME, --on exact:NAME; a part of a name is enough, e.g. 6.12")
}

fn problem(kernel: &KernelEntry) -> Option<&str> {
    match &kernel.state {
        KernelStatus::Damaged(what) => Some(what),
        KernelStatus::Ok | KernelStatus::OfTheSystem => None,
    }
}

/// Work on a kernel, view on stderr: a spinner and a bar on a terminal, a line a step elsewhere.
pub(super) struct ProgressView {
    bar: Bar,
    terminal: bool,
    interrupted: Arc<AtomicBool>,
}

impl ProgressView {
    pub(super) fn new() -> Result<Self> {
        Ok(ProgressView {
            bar: Bar::new(WHOLE, DRAWN_HZ, "{spinner} {bar:20} {msg}"),
            terminal: stderr().is_terminal(),
            interrupted: interrupt::on_signal()?,
        })
    }
}

/// The bar counts thousandths.
const WHOLE: u64 = 1000;
/// How often it shows that it is alive.
const TICK: Duration = Duration::from_millis(200);

/// How often it is drawn, in Hz.
const DRAWN_HZ: u8 = 20;

impl StepObserver for ProgressView {
    fn doing(&self, step: &str) {
        if self.terminal {
            self.bar.set_words(step);
            self.bar.restart(TICK);
        } else {
            note!("{step}");
        }
    }

    fn progress(&self, share: f64) {
        self.bar.set_steps((share * WHOLE as f64) as u64);
    }

    fn notice(&self, text: &str) {
        self.bar.suspend(|| note!("notice: {text}"));
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
