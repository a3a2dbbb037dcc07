//! The store, with small images and a made-up system.

use std::{cell::RefCell, fs, path::PathBuf};

use tempfile::TempDir;

use super::{image::tests::bz_image, *};

/// A store and a system in a folder of their own.
struct Lab {
    root: TempDir,
    store: Store,
}

impl Lab {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let store = Store::at(root.path().join("store")).with_system(root.path().join("system"));
        Lab { root, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// An image as distributions unpack it, with modules.
    fn tree(&self, at: &str, release: &str) -> PathBuf {
        let modules = format!("{at}/lib/modules/{release}");
        for name in [
            "modules.order",
            "modules.builtin",
            "modules.dep",
            "kernel/note",
        ] {
            self.write(&format!("{modules}/{name}"), b"");
        }
        self.write(&format!("{at}/boot/vmlinuz-{release}"), &bz_image(release))
    }

    fn add(&self, release: &str) {
        let image = self.tree("elsewhere", release);
        let added = self
            .store
            .add(
                image.to_str().unwrap(),
                &AddOptions::default(),
                &SilentObserver,
            )
            .unwrap();
        assert!(matches!(added, Addition::New(kernel) if kernel.release == release));
    }

    /// Says that a kept kernel came from elsewhere.
    fn came_from(&self, release: &str, origin: Origin) {
        let folder = self.path("store").join(release);
        let manifest = Manifest::read(&folder).unwrap();
        Manifest { origin, ..manifest }.write(&folder).unwrap();
    }

    fn found(&self, name: &str) -> String {
        self.store.find(name).unwrap().release
    }

    fn refusal(&self, name: &str) -> String {
        self.store.find(name).unwrap_err().to_string()
    }
}

fn package(name: &str, version: &str) -> Package {
    Package {
        name: name.to_owned(),
        version: version.to_owned(),
    }
}

fn debian(suite: &str, version: &str) -> Origin {
    Origin::Debian {
        suite: suite.to_owned(),
        packages: vec![package("linux-image", version)],
    }
}

#[test]
fn a_version_is_the_newest_that_has_it() {
    let lab = Lab::new();
    for release in [
        "6.12.9+deb13-amd64",
        "6.12.107+deb13-amd64",
        "6.1.0-50-amd64",
    ] {
        lab.add(release);
    }
    assert_eq!(lab.found("6.12"), "6.12.107+deb13-amd64");
    assert_eq!(lab.found("6.12.9"), "6.12.9+deb13-amd64");
    assert_eq!(lab.found("6.1"), "6.1.0-50-amd64");
    assert_eq!(lab.found("6.1.0-50-amd64"), "6.1.0-50-amd64");
    let kernel = lab.store.find("6.1").unwrap();
    assert_eq!(
        kernel,
        Kernel {
            release: "6.1.0-50-amd64".to_owned(),
            image: lab.path("store/6.1.0-50-amd64/boot/vmlinuz-6.1.0-50-amd64"),
            modules: Some(lab.path("store/6.1.0-50-amd64/lib/modules/6.1.0-50-amd64")),
        }
    );
    assert!(kernel.modules.unwrap().join("modules.dep").is_file());
    // Debian's version, and the suite that it came from, name it too.
    lab.came_from("6.1.0-50-amd64", debian("bookworm", "6.1.176-1"));
    assert_eq!(lab.found("6.1.176"), "6.1.0-50-amd64");
    assert_eq!(lab.found("bookworm"), "6.1.0-50-amd64");
}

#[test]
fn one_built_for_a_study_has_a_name_of_its_own() {
    let lab = Lab::new();
    lab.add("6.12.107-bpfcost-fp");
    lab.came_from(
        "6.12.107-bpfcost-fp",
        Origin::Built {
            source: package("linux-source-6.12", "6.12.107-1"),
            config_sha256: String::new(),
        },
    );
    assert!(
        lab.refusal("6.12")
            .contains("there are: 6.12.107-bpfcost-fp")
    );
    lab.add("6.12.9+deb13-amd64");
    assert_eq!(lab.found("6.12"), "6.12.9+deb13-amd64");
    for name in ["6.12-fp", "6.12.107-fp", "6.12.107-bpfcost-fp"] {
        assert_eq!(lab.found(name), "6.12.107-bpfcost-fp");
    }
    assert!(lab.store.find("6.1-fp").is_err());
}

#[test]
fn what_is_not_there_says_how_to_get_it() {
    let lab = Lab::new();
    for (name, advice) in [
        ("6.1", "bpfcost kernel add bookworm"),
        ("6.12.48", "bpfcost kernel add trixie"),
        ("trixie", "bpfcost kernel add trixie"),
        ("7.2", "bpfcost kernel add sid"),
        ("6.12-fp", "bpfcost kernel build --frame-pointer"),
        ("6.6", "sid (the newest)"),
        ("", "sid (the newest)"),
    ] {
        let text = lab.refusal(name);
        assert!(text.contains(advice), "{text}");
        assert!(text.contains("there is none yet"), "{text}");
        assert!(matches!(lab.store.find(name), Err(Error::Lacking(_))));
    }
    assert!(!lab.path("store").exists(), "looking makes nothing");
}

#[test]
fn kernels_of_the_system_are_there_too() {
    let lab = Lab::new();
    lab.tree("system", "6.1.0-9-amd64");
    let image = lab.tree("system", "6.1.0-50-amd64");
    lab.write("system/boot/vmlinuz-6.1.0-60-amd64", b"not one");
    lab.write("system/boot/initrd.img-6.1.0-50-amd64", b"");
    let releases = |kernels: Vec<KernelEntry>| -> Vec<String> {
        kernels.into_iter().map(|kernel| kernel.release).collect()
    };
    assert_eq!(
        releases(lab.store.list().unwrap()),
        ["6.1.0-9-amd64", "6.1.0-50-amd64", "6.1.0-60-amd64"]
    );
    assert_eq!(
        lab.store.find("6.1.0-50").unwrap().image,
        fs::canonicalize(image).unwrap()
    );
    assert!(
        lab.refusal("6.1").contains("not a kernel image"),
        "its name alone proves nothing"
    );
    let refused = lab.store.remove("6.1.0-50", &SilentObserver).unwrap_err();
    assert!(
        matches!(refused, Error::Input(_)) && refused.to_string().contains("belongs to the system")
    );
    // One that was added comes first.
    lab.add("6.1.0-5-amd64");
    assert_eq!(lab.found("6.1"), "6.1.0-5-amd64");
    assert_eq!(lab.store.list().unwrap().len(), 4);
}

#[test]
fn an_image_is_used_where_it_lies() {
    let lab = Lab::new();
    let image = lab.tree("elsewhere", "6.8.0-x");
    let modules = lab.path("elsewhere/lib/modules/6.8.0-x");
    let find = |path: &PathBuf| lab.store.find(path.to_str().unwrap());
    assert_eq!(find(&image).unwrap().modules, Some(modules.clone()));
    // In a tree where it was built, and in the layout of later Debian packages.
    let built = lab.write("linux/arch/x86/boot/bzImage", &bz_image("6.9.0-y"));
    assert_eq!(find(&built).unwrap().modules, None);
    let inside = modules.join("vmlinuz");
    fs::copy(&image, &inside).unwrap();
    assert_eq!(find(&inside).unwrap().modules, Some(modules.clone()));
    // The system's modules for one that has none beside it.
    lab.tree("system", "6.9.0-y");
    assert_eq!(
        find(&built).unwrap().modules,
        Some(lab.path("system/lib/modules/6.9.0-y"))
    );
    // Guests need no index of them.
    fs::remove_file(modules.join("modules.dep")).unwrap();
    assert_eq!(find(&image).unwrap().modules, Some(modules));
}

#[test]
fn damage_is_seen_and_told() {
    let release = "6.12.107+deb13-amd64";
    let image = format!("boot/vmlinuz-{release}");
    let modules = format!("lib/modules/{release}");
    type Damage = fn(PathBuf);
    let truncate: Damage = |path| fs::write(path, "").unwrap();
    let remove: Damage = |path| fs::remove_file(path).unwrap();
    let remove_all: Damage = |path| fs::remove_dir_all(path).unwrap();
    let grow: Damage = |path| fs::write(path, "longer").unwrap();
    for (what, harm, words) in [
        (
            image.clone(),
            truncate,
            "its image differs from the one that was added",
        ),
        (image, remove, "its image: No such file"),
        (modules.clone(), remove_all, "its modules: No such file"),
        (
            format!("{modules}/kernel/note"),
            remove,
            "module files, and",
        ),
        (
            format!("{modules}/modules.order"),
            grow,
            "its modules differ",
        ),
        (
            "kernel.json".to_owned(),
            remove,
            "kernel.json: No such file",
        ),
        ("kernel.json".to_owned(), truncate, "kernel.json: EOF"),
    ] {
        let lab = Lab::new();
        lab.add(release);
        assert_eq!(lab.store.list().unwrap()[0].state, KernelStatus::Ok);
        harm(lab.path("store").join(release).join(&what));
        let error = lab.store.find("6.12").unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(words), "{what}: {error}");
        assert!(error.to_string().contains("bpfcost kernel"), "{error}");
        let listed = lab.store.list().unwrap();
        assert!(matches!(&listed[0].state, KernelStatus::Damaged(what) if what.contains(words)));
        lab.add(release);
        assert_eq!(lab.found("6.12"), release);
    }
}

#[test]
fn a_manifest_of_the_future_is_left_alone() {
    let lab = Lab::new();
    lab.add("6.1.5");
    let path = lab.path("store/6.1.5/kernel.json");
    let text = fs::read_to_string(&path)
        .unwrap()
        .replace("\"schema\": 1", "\"schema\": 2");
    fs::write(&path, text).unwrap();
    assert!(lab.refusal("6.1").contains("newer bpfcost"));
}

/// Notes the steps, and interrupts at one.
#[derive(Default)]
struct Notes {
    told: RefCell<Vec<String>>,
    interrupt_at: Option<&'static str>,
}

impl StepObserver for Notes {
    fn doing(&self, step: &str) {
        self.told.borrow_mut().push(step.to_owned());
    }

    fn progress(&self, _: f64) {}

    fn notice(&self, text: &str) {
        self.told.borrow_mut().push(text.to_owned());
    }

    fn interrupted(&self) -> bool {
        let told = self.told.borrow();
        self.interrupt_at
            .is_some_and(|step| told.iter().any(|one| one.contains(step)))
    }
}

#[test]
fn nothing_is_left_of_one_that_was_interrupted_or_killed() {
    let lab = Lab::new();
    let image = lab.tree("elsewhere", "6.1.5");
    let word = image.to_str().unwrap();
    let names = || -> Vec<String> {
        let entries = fs::read_dir(lab.path("store")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != ".lock").collect()
    };
    let stopped = Notes {
        interrupt_at: Some("copying"),
        ..Notes::default()
    };
    assert!(matches!(
        lab.store.add(word, &AddOptions::default(), &stopped),
        Err(Error::Interrupted)
    ));
    assert_eq!(names(), [""; 0]);
    // What a kill left lies there, is no kernel, and goes away with the next addition.
    lab.write("store/.draft-x7f/kernel/boot/vmlinuz-6.1.4", b"half");
    assert_eq!(lab.store.list().unwrap(), []);
    lab.store
        .add(word, &AddOptions::default(), &SilentObserver)
        .unwrap();
    assert_eq!(names(), ["6.1.5"]);
}

#[test]
fn an_addition_waits_for_another() {
    let lab = Lab::new();
    fs::create_dir(lab.path("store")).unwrap();
    let lock = fs::File::create(lab.path("store/.lock")).unwrap();
    lock.lock().unwrap();
    let image = lab.tree("elsewhere", "6.1.5");
    // It reports that it waits, and can be interrupted while it does.
    let notes = Notes {
        interrupt_at: Some("another bpfcost is adding"),
        ..Notes::default()
    };
    let refused = lab
        .store
        .add(image.to_str().unwrap(), &AddOptions::default(), &notes);
    assert!(matches!(refused, Err(Error::Interrupted)));
    assert_eq!(notes.told.borrow().len(), 1);
    drop(lock);
    lab.add("6.1.5");
}

#[test]
fn additions_by_path() {
    let lab = Lab::new();
    let image = lab.tree("elsewhere", "6.1.5");
    let word = image.to_str().unwrap();
    assert!(matches!(
        lab.store.add(word, &AddOptions::default(), &SilentObserver),
        Ok(Addition::New(_))
    ));
    assert!(matches!(
        lab.store.add(word, &AddOptions::default(), &SilentObserver),
        Ok(Addition::Already(_))
    ));
    // Another build of the same release takes its place.
    fs::write(&image, [bz_image("6.1.5"), vec![1]].concat()).unwrap();
    let before = lab.store.find("6.1").unwrap();
    assert!(matches!(
        lab.store.add(word, &AddOptions::default(), &SilentObserver),
        Ok(Addition::New(_))
    ));
    assert_eq!(lab.store.find("6.1").unwrap(), before);
    // One without modules says so.
    let built = lab.write("linux/bzImage", &bz_image("6.9.0-y"));
    let notes = Notes::default();
    lab.store
        .add(built.to_str().unwrap(), &AddOptions::default(), &notes)
        .unwrap();
    assert!(
        notes
            .told
            .borrow()
            .iter()
            .any(|one| one.contains("6.9.0-y has no modules at"))
    );
    assert_eq!(lab.store.find("6.9").unwrap().modules, None);
    assert_eq!(lab.store.remove("6.9", &SilentObserver).unwrap(), "6.9.0-y");
    assert!(lab.store.find("6.9").is_err());
    lab.add("6.1.7");
    let refused = lab.store.remove("6.1", &SilentObserver).unwrap_err();
    assert!(
        matches!(refused, Error::Input(_)) && refused.to_string().contains("6.1.5, 6.1.7"),
        "{refused}"
    );
}
