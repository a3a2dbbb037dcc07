//! Faults that tests inject into guests, all by one environment variable. Only tests set it.

use std::{env, io, time::Duration};

use serde::{Deserialize, Serialize};

/// The variable: JSON of [`Hooks`].
pub const HOOKS: &str = "BPFCOST_TEST_GUEST";

/// What a test changes about a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hooks {
    /// Seconds of CPU time that a boot may take.
    pub boot_s: Option<f64>,
    /// Seconds of CPU time for which the guest may be silent.
    pub silence_s: Option<f64>,
    /// Seconds of wall time for which QEMU may sleep meanwhile, where one of these two is set.
    pub asleep_s: Option<f64>,
    /// Memory of the guest in MiB.
    pub memory_mib: Option<u32>,
    /// Added to the kernel's command line.
    pub kernel: Option<String>,
    /// Shell lines that run in the guest before anything is measured. It has the files of the host then.
    pub before: Option<String>,
    /// Seconds that the guest sleeps after each message: set in the guest, by `before`. An exact guest's
    /// clock leaps so far at once, as it does where the host is slow.
    pub doze_s: Option<f64>,
}

impl Hooks {
    /// Those of the environment: none, but in tests.
    pub fn of_environment() -> io::Result<Self> {
        let Ok(text) = env::var(HOOKS) else {
            return Ok(Hooks::default());
        };
        serde_json::from_str(&text).map_err(|error| {
            io::Error::other(format!(
                "{HOOKS} is for tests, and wrong: {error}\n  Unset it"
            ))
        })
    }

    pub(super) fn or(seconds: Option<f64>, default: Duration) -> Duration {
        seconds.map_or(default, Duration::from_secs_f64)
    }
}
