//! Progress of a download, and its end on request.

/// Shows how far a download is, and can end it.
pub trait Observer {
    /// The share that is done, from 0 to 1.
    fn progress(&self, share: f64);

    /// Returns whether to end. Called several times a second.
    fn interrupted(&self) -> bool;
}
