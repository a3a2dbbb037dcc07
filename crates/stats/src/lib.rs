//! Estimates, intervals and verdicts for repeated measurements on noisy machines.
