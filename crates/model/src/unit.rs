//! Units of a trial's value.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The unit of a trial's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Unit {
    /// Nanoseconds per operation.
    #[default]
    #[serde(rename = "ns/op")]
    NanosPerOp,
    /// Instructions per operation, counted on an exact target.
    #[serde(rename = "insn/op")]
    InstructionsPerOp,
}

impl Unit {
    /// Returns whether values are counted, so that they repeat and have no interval.
    pub fn is_counted(self) -> bool {
        self == Unit::InstructionsPerOp
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::NanosPerOp => "ns/op",
            Unit::InstructionsPerOp => "insn/op",
        })
    }
}
