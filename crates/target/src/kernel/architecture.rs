//! Architectures of kernels, by Debian's names.

use std::{env::consts, fmt};

use serde::{Deserialize, Serialize};

/// An architecture that Debian has kernels for guests of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

impl Architecture {
    /// This machine's; `None` on others.
    pub fn here() -> Option<Self> {
        match consts::ARCH {
            "x86_64" => Some(Architecture::Amd64),
            "aarch64" => Some(Architecture::Arm64),
            _ => None,
        }
    }

    /// Debian's name.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Amd64 => "amd64",
            Architecture::Arm64 => "arm64",
        }
    }

    /// The architecture with one of Debian's names.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = [Architecture::Amd64, Architecture::Arm64].into_iter();
        all.find(|one| one.name() == name)
    }

    /// Returns whether guests of this machine can have such a kernel.
    pub fn is_here(self) -> bool {
        Some(self) == Self::here()
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
