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
    exit::{Exit, usage as usage_error},
    interrupt,
    output::{Bar, note, say},
};
use bpfcost_console::list::{ListFormat, table};
use bpfcost_target::kernel::{
    AddOptions, Addition, Architecture, Error, KernelEntry, KernelStatus, Manifest, Origin,
    StepObserver, Store,
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
    /// Add the newest kernel of a Debian suite, or a kernel in a file
    ///
    /// A suite's kernel comes from the Debian mirror in this system's package sources, or from --mirror. Signatures and
    /// hashes are checked. Neither root nor apt is needed, and the system is not changed. It downloads about 100 MB, needs
    /// 300 MB of free disk while it runs, and keeps the image and the modules that guests can use, 20 to 45 MB.
    ///
    /// A file is an image, which is copied with its modules if they are in ../lib/modules/RELEASE or /lib/modules/RELEASE,
    /// or a Debian package. One that is fetched from a URL must have the SHA-256 that you give.
    #[command(
        after_help = "Examples:\n  bpfcost kernel add bookworm trixie sid   Linux 6.1, 6.12, the newest\n  \
                            bpfcost kernel add trixie --mirror http://deb.debian.org/debian\n  \
                            bpfcost kernel add ./arch/x86/boot/bzImage\n  \
                            bpfcost kernel add https://example.org/linux-image.deb --sha256 HEX"
    )]
    Add {
        /// A suite (bookworm, trixie, sid or another of the mirror), the path of an image or a package, with a /, or a URL
        #[arg(required = true, value_name = "SUITE|PATH|URL")]
        what: Vec<String>,
        #[command(flatten)]
        mirror: MirrorArgs,
        /// Add a kernel for this architecture [default: this machine's]; guests here use none for another
        #[arg(long, value_name = "ARCH", value_parser = architecture)]
        arch: Option<Architecture>,
        /// Require a file with this SHA-256, in hexadecimal digits
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
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
        #[command(flatten)]
        mirror: MirrorArgs,
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

#[derive(Debug, clap::Args)]
struct MirrorArgs {
    /// Fetch from this Debian archive [default: that of this system's package sources]
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
}

fn architecture(name: &str) -> Result<Architecture, &'static str> {
    Architecture::from_name(name).ok_or("must be amd64 or arm64")
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    let store = Store::of_user()?;
    match &args.command {
        Command::Add {
            what,
            mirror,
            arch,
            sha256,
        } => {
            if sha256.is_some() && what.len() > 1 {
                return Err(usage_error(
                    "--sha256 is of one file, and several are named\n  Add them one by one",
                ));
            }
            let options = AddOptions {
                mirror: mirror.mirror.clone(),
                architecture: *arch,
                sha256: sha256.clone(),
            };
            let view = ProgressView::new()?;
            for what in what {
                show_addition(store.add(what, &options, &view), &view)?;
            }
        }
        Command::Build { mirror, .. } => {
            let view = ProgressView::new()?;
            let built = store.build_frame_pointer(mirror.mirror.as_deref(), &view);
            show_addition(built, &view)?;
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
    if let Some(own) = other_architecture(kernel) {
        return format!("only on a machine of its architecture, {own}");
    }
    let mut numbers = kernel.release.splitn(3, ['.', '-', '+']);
    let short: Vec<&str> = numbers.by_ref().take(2).collect();
    let name = match kernel.origin {
        Origin::Built { .. } => format!("{}-fp", short.join(".")),
        Origin::Debian { .. } => short.join("."),
        // A newer one of Debian's may go by the short name.
        Origin::Path(_) | Origin::Url { .. } => kernel.release.clone(),
    };
    format!("bpfcost run xdp-lb --on vm:{name} --on exact:{name}")
}

/// The architecture of a kernel that guests here cannot have.
fn other_architecture(kernel: &Manifest) -> Option<Architecture> {
    kernel.architecture.filter(|_| !kernel.is_for_here())
}

/// A kernel, for programs.
#[derive(Serialize)]
struct KernelListing<'a> {
    release: &'a str,
    state: &'static str,
    /// How a damaged one differs.
    problem: Option<&'a str>,
    bytes: u64,
    /// Debian's name of its architecture, where that is known.
    architecture: Option<Architecture>,
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
                architecture: kernel.manifest.as_ref().and_then(|one| one.architecture),
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
            state(kernel),
        ]);
    }
    say!("{}", table.trim_fmt())?;
    say!("\nUse one: --on vm:NAME, --on exact:NAME; a part of a name is enough, e.g. 6.12")
}

fn state(kernel: &KernelEntry) -> String {
    let other = kernel.manifest.as_ref().and_then(other_architecture);
    match (problem(kernel), other) {
        (Some(what), _) => format!("damaged: {what}"),
        (None, Some(own)) => format!("ok, for {own} machines"),
        (None, None) => "ok".to_owned(),
    }
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
