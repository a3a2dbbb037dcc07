//! The probed process: stopped for a moment, given memory, patched, and restored.
