//! Code of a process that is not as in its files.

use std::{fs, os::unix::fs::FileExt as _};

/// The files whose code differs in the process, by their names.
pub(crate) fn patched(pid: u32) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let code = maps.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Others have no file.
        let &[range, "r-xp", offset, _, _, path] = words.as_slice() else {
            return None;
        };
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        let (start, end, offset) = (number(start), number(end), number(offset));
        let read = |path: &str, at| {
            let mut bytes = vec![0; (end - start) as usize];
            let file = fs::File::open(path).expect("a file");
            // The last page of the file is not whole.
            let _ = file.read_at(&mut bytes, at).expect("bytes");
            bytes
        };
        let is_file = path.starts_with('/');
        let differs = is_file && read(&format!("/proc/{pid}/mem"), start) != read(path, offset);
        differs.then(|| path.to_owned())
    });
    code.collect()
}
