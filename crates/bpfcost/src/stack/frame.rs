//! A frame of a stack.

use std::fmt;

use serde::Serialize;

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// Address at which the function goes on.
    pub address: u64,
    /// The function, or the address where none is known.
    pub name: String,
    /// The module that it is in, or `bpf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Bytes behind the function's start.
    pub offset: u64,
}

impl Frame {
    /// The function and its module, without the offset.
    pub fn function(&self) -> String {
        match &self.module {
            Some(module) => format!("{} [{module}]", self.name),
            None => self.name.clone(),
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if self.offset > 0 {
            write!(f, "+{:#x}", self.offset)?;
        }
        match &self.module {
            Some(module) => write!(f, " [{module}]"),
            None => Ok(()),
        }
    }
}
