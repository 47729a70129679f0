//! The systemd units, their settings and the Debian package fit the programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use push_tests::{help::commands, service::built};
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
            let without = ["push-broker.service", "push-console.service"];
            assert!(without.contains(&&*unit.name), "{}", unit.name);
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

/// What `cargo-deb` packs, by the metadata of `pushctl`.
#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
struct DebianPackage {
    /// Source, folder or file in the package, mode.
    assets: Vec<[String; 3]>,
    systemd_units: Vec<PackagedUnit>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PackagedUnit {
    unit_name: String,
    enable: bool,
    start: bool,
}

#[test]
fn the_debian_package_holds_every_program_and_unit_and_starts_none() {
    let folder = root().join("pushctl");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let package: DebianPackage = manifest["package"]["metadata"]["deb"].clone().try_into().unwrap();
    let units: BTreeSet<_> =
        package.systemd_units.iter().map(|unit| format!("{}.service", unit.unit_name)).collect();
    assert_eq!(units, Unit::all().into_iter().map(|unit| unit.name).collect());
    assert!(package.systemd_units.iter().all(|unit| !unit.enable && !unit.start));
    let of_build = ["target/release/", "../target/package/"];
    for [source, ..] in &package.assets {
        if !of_build.iter().any(|built| source.starts_with(built)) {
            let there = folder.join(source.trim_end_matches('*'));
            assert!(there.exists(), "{source}");
        }
    }
    let programs = package.assets.iter().filter(|[_, to, _]| to == "usr/bin/");
    let programs: BTreeSet<_> = programs.map(|[source, ..]| source.rsplit('/').next()).collect();
    let expected = commands().into_iter().map(|c| c.name().split(' ').next().unwrap().to_owned());
    let expected: BTreeSet<_> = expected.collect();
    assert_eq!(programs, expected.iter().map(|name| Some(&**name)).collect());
    for script in ["postinst", "postrm"] {
        let file = root().join("deploy/debian").join(script);
        assert!(fs::read_to_string(&file).unwrap().contains("\n#DEBHELPER#\n"), "{script}");
        let checked = Command::new("sh").arg("-n").arg(&file).output();
        assert!(checked.as_ref().unwrap().status.success(), "{checked:?}");
    }
}
