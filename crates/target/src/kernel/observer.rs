//! Reports progress while a kernel is fetched, built or copied, and can end it.

/// Shows the progress of such work, and says whether it is to end.
pub trait StepObserver {
    /// A step begins, e.g. `fetching linux-image-6.12.107+deb13-amd64`.
    fn doing(&self, step: &str);

    /// How far the step is: a share from 0 to 1.
    fn progress(&self, share: f64);

    /// Something that people should know, though nothing failed.
    fn notice(&self, text: &str);

    /// Whether Ctrl-C was pressed. Called several times a second.
    fn interrupted(&self) -> bool;
}

/// Watches nothing and never interrupts.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentObserver;

impl StepObserver for SilentObserver {
    fn doing(&self, _: &str) {}

    fn progress(&self, _: f64) {}

    fn notice(&self, _: &str) {}

    fn interrupted(&self) -> bool {
        false
    }
}
