//! Something that a case needs of the kernel.

use std::fmt;

use anyhow::Result;

/// Something that a case needs of the kernel, and the way to ask for it.
pub struct Need {
    name: String,
    missing: Box<dyn Fn(bool) -> Result<Option<String>>>,
}

impl Need {
    /// `missing` answers with the reason why it is not there and what to do about it, or with `None`. It is told whether the
    /// experiment also runs where instructions are counted.
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

    /// Asks for it, for an experiment whose costs can be counted or not.
    pub fn missing(&self, counted: bool) -> Result<Option<String>> {
        (self.missing)(counted)
    }
}

impl fmt::Debug for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
