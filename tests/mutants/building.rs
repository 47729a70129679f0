//! One build for all faults.
//!
//! The copy shares the build folder with the repository, so that all crates of the registry are
//! built already. The finished programs go to a folder of their own, so that no program with a
//! planted fault is ever where the service's own programs are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;
use tokio::process::Command;

use crate::{Failure, list::Test};

/// The test programs of tests.
const SIMULATION: &str = "simulation";
const SUITES: &str = "suites";
const SUITES_WITH_INGEST: &str = "suites-with-ingest";

/// Returns the test program that contains a suite.
fn program_of(suite: &str) -> &'static str {
    let module = format!("mod {suite};");
    let with_ingest = include_str!("../suites/with_ingest.rs");
    if with_ingest.lines().any(|line| line == module) { SUITES_WITH_INGEST } else { SUITES }
}

/// The built tests.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// By kind and name of their targets.
    files: BTreeMap<(Kind, String), Program>,
}

/// A program that runs tests.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    /// The folder in which cargo would run it.
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Library,
    Test,
}

impl Programs {
    pub(crate) fn of(&self, test: &Test) -> Result<&Program, Failure> {
        let key = match test {
            Test::Unit { package, .. } => (Kind::Library, package.replace('-', "_")),
            Test::Exhaustive | Test::Random => (Kind::Test, SIMULATION.to_owned()),
            Test::Suite { name, .. } => (Kind::Test, program_of(name).to_owned()),
        };
        let missing = || Failure::List(format!("there is no {test}"));
        self.files.get(&key).ok_or_else(missing)
    }
}

/// Builds the programs that these tests need.
pub(crate) async fn build<'a>(
    tree: &Path,
    target: &Path,
    tests: impl Iterator<Item = &'a Test>,
) -> Result<Programs, Failure> {
    let (mut packages, mut suites) = (BTreeSet::new(), BTreeSet::new());
    for test in tests {
        match test {
            Test::Unit { package, .. } => _ = packages.insert(package.as_str()),
            Test::Exhaustive | Test::Random => _ = packages.insert("push-simulation"),
            Test::Suite { name, .. } => _ = suites.insert(program_of(name)),
        }
    }
    let mut programs = Programs::default();
    if !packages.is_empty() {
        // Others of the workspace need not be built. With the last one, the crates of the registry have the
        // same features as in a build of all, so that none of them is built twice.
        packages.extend(["push-simulation", "push-libfuzzer"]);
        let packages = packages.into_iter().flat_map(|package| ["--package", package]);
        let arguments = ["test", "--no-run", "--lib", "--test", SIMULATION];
        programs.add(cargo(tree, target, &arguments, &packages.collect::<Vec<_>>()).await?)?;
    }
    if !suites.is_empty() {
        let suites: Vec<&str> = suites.into_iter().flat_map(|suite| ["--test", suite]).collect();
        let [ingest, worker, tool] = ["ingest", "fanout-worker", "pushctl"];
        let arguments = ["build", "--workspace", "--bin", ingest, "--bin", worker, "--bin", tool];
        programs.add(cargo(tree, target, &arguments, &suites).await?)?;
    }
    programs.put_beside_services(&finished(target))?;
    Ok(programs)
}

/// The folder of the finished programs.
fn finished(target: &Path) -> PathBuf {
    target.join("mutants/programs")
}

async fn cargo(
    tree: &Path,
    target: &Path,
    arguments: &[&str],
    more: &[&str],
) -> Result<String, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(cargo);
    cargo
        .args(arguments)
        .args(more)
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(tree)
        .env("CARGO_BUILD_BUILD_DIR", target)
        .env("CARGO_TARGET_DIR", finished(target))
        // Under .ci/run that is clippy, which refuses code that only a planted fault makes strange.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let built = cargo.output().await.map_err(|e| Failure::Program(format!("cargo: {e}")))?;
    if !built.status.success() {
        return Err(Failure::Build(String::from_utf8_lossy(&built.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&built.stdout).into_owned())
}

impl Programs {
    /// Adds the programs that cargo reports as built.
    fn add(&mut self, said: String) -> Result<(), Failure> {
        for line in said.lines() {
            let said: Value = serde_json::from_str(line)
                .map_err(|error| Failure::Program(format!("cargo says {line:?}: {error}")))?;
            let of = |name: &str| said["target"][name].clone();
            let (Some(file), Some(name), Some(manifest)) = (
                said["executable"].as_str(),
                of("name").as_str().map(str::to_owned),
                said["manifest_path"].as_str(),
            ) else {
                continue;
            };
            let kind = match of("kind")[0].as_str() {
                Some("lib") => Kind::Library,
                Some("test") => Kind::Test,
                _ => continue,
            };
            let folder = Path::new(manifest).parent().unwrap_or(Path::new(".")).to_owned();
            self.files.insert((kind, name), Program { file: file.into(), folder });
        }
        Ok(())
    }

    /// Puts test programs into the folder of the service's programs: the suites start those beside them.
    fn put_beside_services(&mut self, finished: &Path) -> Result<(), Failure> {
        for ((kind, name), program) in &mut self.files {
            if *kind != Kind::Test {
                continue;
            }
            let beside = finished.join("debug").join(format!("test-{name}"));
            let wrong = |error| Failure::file(&beside, error);
            if beside.exists() {
                fs::remove_file(&beside).map_err(wrong)?;
            }
            fs::hard_link(&program.file, &beside)
                .or_else(|_| fs::copy(&program.file, &beside).map(drop))
                .map_err(wrong)?;
            program.file.clone_from(&beside);
        }
        Ok(())
    }
}
