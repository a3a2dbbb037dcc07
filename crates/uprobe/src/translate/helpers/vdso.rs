//! The clock that the kernel maps into every process.

use object::{Object as _, ObjectSymbol as _};

const CLOCK_GETTIME: &str = "__vdso_clock_gettime";

/// Returns where the clock's function is in a vdso, in bytes from the vdso's beginning; `None` where it has none. The vdso is
/// mapped as it is in its file, so that its memory in a process is such an image.
pub fn clock_gettime_offset(image: &[u8]) -> Option<u64> {
    let file = object::File::parse(image).ok()?;
    let symbol = file
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok(CLOCK_GETTIME))?;
    Some(symbol.address())
}
