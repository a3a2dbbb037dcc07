//! Metadata of files.

use std::{fs, mem::MaybeUninit, os::unix::fs::PermissionsExt};

use rustix::{
    fs::{
        Access, AtFlags, CWD, Mode, StatxFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags,
        access, accessat, chmodat, chownat, fchmod, fchown, fstat, fstatfs, futimens, getxattr,
        listxattr, removexattr, setxattr, statat, statfs, statx, utimensat,
    },
    process::{getegid, geteuid},
};
use tempfile::TempDir;

use crate::{
    error::{Result, Step},
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

const MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const NOW: Timestamps = Timestamps {
    last_access: TIME_NOW,
    last_modification: TIME_NOW,
};
const TIME_NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: UTIME_NOW,
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new("stat", "statx, newfstatat, fstat", stat),
    Stimulus::new("access", "access, faccessat2", check_access),
    Stimulus::new("statfs", "statfs, fstatfs", stat_file_system),
    Stimulus::new("chmod", "chmod, fchmodat, fchmod", change_mode),
    Stimulus::new("chown", "fchownat, fchown: to the same owner", change_owner),
    Stimulus::new("utimes", "utimensat ×2: by path and by file", change_times),
    Stimulus::new(
        "xattr",
        "setxattr, getxattr, listxattr, removexattr",
        extended_attributes,
    ),
];

/// An open file that has a name in a temporary folder.
struct NamedFile {
    path: std::path::PathBuf,
    file: fs::File,
    _folder: TempDir,
}

impl NamedFile {
    fn create(context: &Context) -> Result<Self> {
        let folder = context.temporary_folder()?;
        let path = folder.path().join("file");
        let file = fs::File::create(&path).step("make a file")?;
        Ok(Self {
            path,
            file,
            _folder: folder,
        })
    }
}

fn stat(context: &Context) -> Result<Prepared> {
    let one = NamedFile::create(context)?;
    Ok(Prepared::new(move || {
        let one = &one;
        statx(CWD, &one.path, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
        statat(CWD, &one.path, AtFlags::empty())?;
        fstat(&one.file)?;
        Ok(())
    }))
}

fn check_access(context: &Context) -> Result<Prepared> {
    let one = NamedFile::create(context)?;
    Ok(Prepared::new(move || {
        let one = &one;
        access(&one.path, Access::READ_OK)?;
        accessat(CWD, &one.path, Access::WRITE_OK, AtFlags::EACCESS)?;
        Ok(())
    }))
}

fn stat_file_system(context: &Context) -> Result<Prepared> {
    let one = NamedFile::create(context)?;
    Ok(Prepared::new(move || {
        let one = &one;
        statfs(&one.path)?;
        fstatfs(&one.file)?;
        Ok(())
    }))
}

fn change_mode(context: &Context) -> Result<Prepared> {
    let one = NamedFile::create(context)?;
    Ok(Prepared::new(move || {
        let one = &one;
        fs::set_permissions(&one.path, fs::Permissions::from_mode(0o640))?;
        chmodat(CWD, &one.path, Mode::RUSR, AtFlags::empty())?;
        fchmod(&one.file, MODE)?;
        Ok(())
    }))
}

fn change_owner(context: &Context) -> Result<Prepared> {
    let one = NamedFile::create(context)?;
    let (user, group) = (Some(geteuid()), Some(getegid()));
    Ok(Prepared::new(move || {
        let one = &one;
        chownat(CWD, &one.path, user, group, AtFlags::empty())?;
        fchown(&one.file, user, group)?;
        Ok(())
    }))
}

fn change_times(context: &Context) -> Result<Prepared> {
    let one = NamedFile::create(context)?;
    Ok(Prepared::new(move || {
        let one = &one;
        utimensat(CWD, &one.path, &NOW, AtFlags::empty())?;
        futimens(&one.file, &NOW)?;
        Ok(())
    }))
}

fn extended_attributes(context: &Context) -> Result<Prepared> {
    let one = NamedFile::create(context)?;
    let set = |name| setxattr(&one.path, name, b"value", XattrFlags::empty()).map(|()| name);
    // A tmpfs has attributes of users from Linux 6.6 on.
    let name = set("user.stimulus")
        .or_else(|_| set("trusted.stimulus"))
        .step("set an extended attribute")?;
    Ok(Prepared::new(move || {
        let one = &one;
        setxattr(&one.path, name, b"value", XattrFlags::empty())?;
        let mut value = [MaybeUninit::uninit(); 64];
        let (value, _) = getxattr(&one.path, name, &mut value)?;
        expect_bytes(value.len(), 5)?;
        let mut names = [MaybeUninit::uninit(); 256];
        listxattr(&one.path, &mut names)?;
        removexattr(&one.path, name)?;
        Ok(())
    }))
}
