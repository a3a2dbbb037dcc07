//! The name of a target: `host`, `vm:KERNEL`, `exact:KERNEL`.

use std::{fmt, str::FromStr};

use super::TargetError;

/// Where a run takes place, as the command line and records name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// `host`: this machine.
    Host,
    /// `vm:KERNEL`: a guest with another kernel, timed by its clock.
    Vm(String),
    /// `exact:KERNEL`: a guest with one emulated CPU, whose clock counts retired instructions.
    Exact(String),
}

impl Target {
    /// The kernel that a guest is to have, as it was named: a version, a part of one, or a path.
    pub fn kernel(&self) -> Option<&str> {
        match self {
            Target::Host => None,
            Target::Vm(kernel) | Target::Exact(kernel) => Some(kernel),
        }
    }

    /// Whether costs are counted in instructions, not timed.
    pub fn is_exact(&self) -> bool {
        matches!(self, Target::Exact(_))
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(name: &str) -> Result<Self, TargetError> {
        match name.split_once(':') {
            None if name == "host" => Ok(Target::Host),
            Some(("vm", kernel)) if !kernel.is_empty() => Ok(Target::Vm(kernel.to_owned())),
            Some(("exact", kernel)) if !kernel.is_empty() => Ok(Target::Exact(kernel.to_owned())),
            _ => Err(TargetError(name.to_owned())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Host => f.write_str("host"),
            Target::Vm(kernel) => write!(f, "vm:{kernel}"),
            Target::Exact(kernel) => write!(f, "exact:{kernel}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [
            "host",
            "vm:6.1",
            "exact:6.12.107+deb13-amd64",
            "vm:/boot/vmlinuz",
        ] {
            let target: Target = name.parse().unwrap();
            assert_eq!(target.to_string(), name);
        }
        assert_eq!("exact:7.2".parse::<Target>().unwrap().kernel(), Some("7.2"));
        for name in ["", "vm", "vm:", "exact", "guest:6.1", "host:6.1"] {
            let error = name.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("host, vm:KERNEL"), "{error}");
        }
    }
}
