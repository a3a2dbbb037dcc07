//! A need: a feature of the kernel that a case depends on.

use std::fmt;

use anyhow::Result;

/// A feature of the kernel that a case depends on, and the check for it.
pub struct Need {
    name: String,
    missing: Box<dyn Fn(bool) -> Result<Option<String>>>,
}

impl Need {
    /// A need with this check. `missing` returns why the kernel lacks the feature and what to do about it, or `None`;
    /// its argument is true if the experiment also runs where instructions are counted.
    pub fn new(name: &str, missing: impl Fn(bool) -> Result<Option<String>> + 'static) -> Self {
        Need {
            name: name.to_owned(),
            missing: Box::new(missing),
        }
    }

    /// The name, as people know it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the check. `counted` is true for an experiment whose costs can be counted.
    pub fn missing(&self, counted: bool) -> Result<Option<String>> {
        (self.missing)(counted)
    }
}

impl fmt::Debug for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
