//! Packages fit the programs: the systemd units and their settings, and the
//! Debian package that holds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use push_tests::{help::commands, process::installed, service::built};
use tempfile::TempDir;

use crate::docs::pages::root;

/// The earliest systemd that knows what the units use.
const SYSTEMD: u32 = 250;
/// Highest exposure of a unit, by the measure of systemd, which ends at 100.
const MOST_EXPOSED: &str = "--threshold=20";

/// A unit of `deploy/systemd`.
struct Unit {
    name: String,
    text: String,
}

impl Unit {
    fn all() -> Vec<Self> {
        let files = fs::read_dir(root().join("deploy/systemd")).unwrap().map(|e| e.unwrap().path());
        let units = files.filter(|file| file.extension().is_some_and(|end| end == "service"));
        let name = |file: &Path| file.file_name().unwrap().to_str().unwrap().to_owned();
        let unit =
            |file: PathBuf| Self { name: name(&file), text: fs::read_to_string(file).unwrap() };
        let units: Vec<_> = units.map(unit).collect();
        assert!(units.len() >= 4);
        units
    }

    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
    }

    fn value<'a>(&'a self, key: &'a str) -> &'a str {
        self.values(key).next().unwrap_or_else(|| panic!("{} has no {key}", self.name))
    }

    /// The command that it runs: `pushctl broker`.
    fn command(&self) -> &str {
        self.value("ExecStart").strip_prefix("/usr/bin/").unwrap()
    }

    /// The file of its settings, as the package installs it.
    fn settings(&self) -> String {
        let file = self.value("EnvironmentFile").strip_prefix("-/etc/push/").unwrap();
        fs::read_to_string(root().join("deploy/debian/etc").join(file)).unwrap()
    }
}

/// Names of settings in a text, each before `=`.
fn variables(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| c.is_whitespace() || c == '=');
    words.filter(|word| word.starts_with("PUSH_")).collect()
}

fn printed(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// The version of systemd, or none.
fn systemd() -> Option<u32> {
    let output = Command::new("systemd-analyze").arg("--version").output().ok()?;
    printed(&output).split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn every_unit_sets_what_its_program_reads_and_lets_it_finish() {
    let commands: BTreeMap<_, _> = commands().into_iter().map(|c| (c.name(), c)).collect();
    for unit in Unit::all() {
        let command = &commands[unit.command()];
        let known = command.variables();
        for text in [&unit.text, &unit.settings()] {
            for variable in variables(text) {
                assert!(known.contains(variable), "{}: {variable}", unit.name);
            }
        }
        let page = format!("man:{}(1)", command.name().replace(' ', "-"));
        assert_eq!(unit.value("Documentation"), page);
        // A credential for each file that it names, and no other.
        let loaded = unit.values("LoadCredential").map(|one| one.split_once(':').unwrap().0);
        let named = unit.values("Environment").filter_map(|one| Some(one.split_once("=%d/")?.1));
        assert_eq!(loaded.collect::<Vec<_>>(), named.collect::<Vec<_>>(), "{}", unit.name);

        let help = command.help.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((_, drain)) = help.split_once("[env: PUSH_DRAIN_DEADLINE] [default: ") else {
            assert_eq!(unit.name, "push-broker.service");
            continue;
        };
        let seconds = |text: &str| text.trim_end_matches('s').parse::<u32>().unwrap();
        let drain = seconds(drain.split_once(']').unwrap().0);
        assert!(seconds(unit.value("TimeoutStopSec")) >= drain + 10, "{}", unit.name);
    }
}

#[test]
fn a_program_that_takes_too_much_memory_is_restarted_and_none_leaves_a_core_dump() {
    for unit in Unit::all() {
        assert_eq!(unit.value("LimitCORE"), "0", "{}", unit.name);
        assert!(unit.value("MemoryMax").ends_with('G'), "{}", unit.name);
        assert_eq!(unit.value("Restart"), "always", "{}", unit.name);
    }
}

#[test]
fn systemd_takes_every_unit_and_finds_it_well_confined() {
    if systemd().is_none_or(|version| version < SYSTEMD) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let programs = built("pushctl").parent().unwrap().display().to_string();
    for unit in Unit::all() {
        let file = folder.path().join(&unit.name);
        fs::write(&file, unit.text.replace("/usr/bin", &programs)).unwrap();
        let analyze = |arguments: &[&str]| {
            let output = Command::new("systemd-analyze").args(arguments).arg(&file).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{}: {}", unit.name, printed(&output));
            output
        };
        assert_eq!(printed(&analyze(&["verify", "--man=no"])), "", "{}", unit.name);
        analyze(&["security", "--offline=yes", MOST_EXPOSED]);
    }
}

/// A folder as `deploy/release` makes it, with stand-ins for what is built.
fn released() -> TempDir {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    for program in ["pushctl", "ingest", "fanout-worker"] {
        write(&format!("bin/{program}"), "#!/bin/sh\n");
        write(&format!("share/man/man1/{program}.1"), ".TH a 1\n");
        for name in [format!("{program}.bash"), format!("_{program}"), format!("{program}.fish")] {
            write(&format!("share/completions/{name}"), "# completions\n");
        }
        write(&format!("sbom/{program}.cdx.json"), "{}\n");
    }
    write("THIRD-PARTY-NOTICES", "notices\n");
    for (from, to) in [("deploy/systemd", "systemd"), ("deploy/debian/etc", "etc")] {
        for entry in fs::read_dir(root().join(from)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            write(&format!("{to}/{name}"), &fs::read_to_string(path).unwrap());
        }
    }
    for name in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        write(name, &fs::read_to_string(root().join(name)).unwrap());
    }
    folder
}

#[test]
fn the_debian_package_holds_programs_units_and_manual_and_is_the_same_each_time() {
    if installed("dpkg-deb").is_none() {
        return;
    }
    let out = TempDir::new().unwrap();
    let file = out.path().join("push-message-service_1.2.3-1_arm64.deb");
    let mut packages = Vec::new();
    for _ in 0..2 {
        let folder = released();
        let made = Command::new(root().join("deploy/debian/package"))
            .args([folder.path().to_str().unwrap(), "1.2.3", "arm64", out.path().to_str().unwrap()])
            .env("SOURCE_DATE_EPOCH", "1709251199")
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", printed(&made));
        packages.push(fs::read(&file).unwrap());
    }
    assert!(packages[0] == packages[1], "a second package differs");

    let show = |flag: &str| {
        let output = Command::new("dpkg-deb").arg(flag).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", printed(&output));
        printed(&output)
    };
    let info = show("--info");
    for line in ["Version: 1.2.3-1", "Architecture: arm64", "conffiles", "postinst"] {
        assert!(info.contains(line), "{info}");
    }
    let fields = info.lines().filter(|line| !line.contains("Maintainer: "));
    assert_eq!(fields.filter(|line| line.contains('@')).collect::<Vec<_>>(), [""; 0]);
    let contents = show("--contents");
    let mut expected: Vec<String> = Unit::all().iter().map(|u| u.name.clone()).collect();
    expected.extend(
        [
            "/usr/bin/ingest",
            "/usr/bin/fanout-worker",
            "/usr/bin/pushctl",
            "/usr/share/man/man1/ingest.1.gz",
            "/usr/share/bash-completion/completions/pushctl",
            "/usr/share/zsh/vendor-completions/_pushctl",
            "/usr/share/fish/vendor_completions.d/pushctl.fish",
            "/usr/lib/sysusers.d/push-message-service.conf",
            "/etc/push/ingest.env",
            "/usr/share/doc/push-message-service/copyright",
            "/usr/share/doc/push-message-service/ingest.cdx.json",
        ]
        .map(str::to_owned),
    );
    for name in expected {
        assert!(contents.lines().any(|line| line.ends_with(&name)), "{name}: {contents}");
    }
    assert!(contents.lines().all(|line| line.contains(" root/root ")), "{contents}");

    // Its checksums are those of its files.
    let tree = out.path().join("tree");
    let unpacked = Command::new("dpkg-deb").arg("--raw-extract").arg(&file).arg(&tree).output();
    assert!(unpacked.as_ref().unwrap().status.success(), "{unpacked:?}");
    let sums = ["--check", "--quiet", "--strict", "DEBIAN/md5sums"];
    let checked = Command::new("md5sum").args(sums).current_dir(&tree).output().unwrap();
    assert!(checked.status.success(), "{}", printed(&checked));
    for script in ["postinst", "prerm", "postrm"] {
        let checked = Command::new("sh").arg("-n").arg(tree.join("DEBIAN").join(script)).output();
        assert!(checked.as_ref().unwrap().status.success(), "{checked:?}");
    }
}
