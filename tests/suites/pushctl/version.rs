//! The build that `--version` shows: the commit, whether it is all that was built, the
//! compiler and the target.
//!
//! The programs of the tests are development builds, which do not name their commit. How an optimised
//! build finds it out is shown with the build script itself, in a package that has nothing else.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use push_tests::service::built;
use tempfile::TempDir;

const PROGRAMS: [&str; 3] = ["pushctl", "ingest", "fanout-worker"];

/// The top of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The lines after the first, by their names.
fn fields(version: &str) -> BTreeMap<&str, &str> {
    version.lines().skip(1).map(|line| line.split_once(": ").expect(version)).collect()
}

#[test]
fn every_program_says_which_build_it_is_in_one_line_and_in_full() {
    let rustc = printed(&Command::new("rustc").arg("-vV").output().unwrap());
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    for program in PROGRAMS {
        let short = printed(&Command::new(built(program)).arg("-V").output().unwrap());
        let long = printed(&Command::new(built(program)).arg("--version").output().unwrap());
        let begin = format!("{program} {} (", env!("CARGO_PKG_VERSION"));
        assert!(short.starts_with(&begin) && short.trim_end().ends_with(')'), "{short}");
        assert_eq!((short.lines().count(), long.lines().next()), (1, Some(short.trim_end())));
        let fields = fields(&long);
        let names = ["commit", "modified", "opt-level", "rustc", "target"];
        assert_eq!(fields.keys().copied().collect::<Vec<_>>(), names, "{long}");
        assert_eq!(fields["target"], host, "{long}");
        assert!(rustc.contains(fields["rustc"]), "{long}");
        assert!(fields["commit"] == "unknown" || short.contains(&fields["commit"][..12]), "{long}");
    }
}

/// A repository with a package that prints its version, which the build script of the service finds
/// out.
struct Repository {
    folder: TempDir,
}

impl Repository {
    fn new() -> Self {
        let repository = Self { folder: TempDir::new().unwrap() };
        let folders =
            ["ingest", "fanout-worker", "transports", "broker", "operator", "console", "pushctl"];
        for folder in folders.iter().chain(&["shared/boot/src"]) {
            fs::create_dir_all(repository.path(folder)).unwrap();
        }
        for file in ["build.rs", "archive-commit", "src/build_info.rs"] {
            let file = format!("shared/boot/{file}");
            fs::copy(root().join(&file), repository.path(&file)).unwrap();
        }
        fs::copy(root().join(".gitattributes"), repository.path(".gitattributes")).unwrap();
        let workspace = "[workspace]\nresolver = \"3\"\nmembers = [\"shared/boot\"]\n";
        let package = "[package]\nname = \"service\"\nversion = \"7.8.9\"\nedition = \"2024\"\n";
        let main = "#![allow(dead_code)]\nmod build_info;\n\
                    fn main() { println!(\"service {}\", build_info::LONG_VERSION) }\n";
        repository.write(".gitignore", "/target\n");
        repository.write("Cargo.toml", workspace);
        repository.write("shared/boot/Cargo.toml", package);
        repository.write("shared/boot/src/main.rs", main);
        repository.write("pushctl/a.rs", "");
        repository.cargo(&["generate-lockfile"], &[]);
        repository
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).unwrap();
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.path());
        for name in ["SOURCE_COMMIT", "SOURCE_DATE_EPOCH", "RUSTFLAGS", "GIT_DIR"] {
            command.env_remove(name);
        }
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@b");
            // The second before 2024-03-01, in a leap year.
            command.env(format!("GIT_{role}_DATE"), "1709251199 +0000");
        }
        // Nothing that the machine's own configuration asks for, such as signatures.
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.env("CARGO_TARGET_DIR", self.path("target"));
        command
    }

    fn git(&self, arguments: &[&str]) -> String {
        printed(&self.command("git", arguments).output().unwrap()).trim().to_owned()
    }

    fn commit(&self) -> String {
        self.git(&["init", "--quiet"]);
        self.git(&["add", "."]);
        self.git(&["commit", "--quiet", "--message", "a"]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn cargo(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = self.command("cargo", arguments);
        command.arg("--offline").envs(environment.iter().copied()).output().unwrap()
    }

    fn version_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> String {
        let arguments = [&["run", "--quiet"], arguments].concat();
        printed(&self.cargo(&arguments, environment))
    }

    fn version(&self) -> String {
        self.version_with(&["--release"], &[])
    }
}

#[test]
fn an_optimised_build_names_its_commit_and_what_is_not_in_it() {
    let repository = Repository::new();
    let commit = repository.commit();
    let version = repository.version();
    let name = format!("service 7.8.9 ({} 2024-02-29)", &commit[..12]);
    assert_eq!(version.lines().next(), Some(&*name));
    assert_eq!((fields(&version)["commit"], fields(&version)["modified"]), (&*commit, "no"));

    // Nothing is built again while nothing has changed.
    let again = repository.cargo(&["build", "--release", "--verbose"], &[]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("Fresh service"), "{again:?}");

    repository.write("pushctl/a.rs", "// changed\n");
    let version = repository.version();
    assert!(version.contains(&format!("({}-modified 2024-02-29)", &commit[..12])), "{version}");
    assert_eq!(fields(&version)["modified"], "yes");

    let next = repository.commit();
    assert_ne!(next, commit);
    let version = repository.version();
    assert_eq!((fields(&version)["commit"], fields(&version)["modified"]), (&*next, "no"));

    let development = repository.version_with(&[], &[]);
    assert!(development.starts_with("service 7.8.9 (development build)\n"), "{development}");
}

#[test]
fn a_build_without_a_repository_has_its_commit_from_the_environment_or_from_the_archive() {
    let repository = Repository::new();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let modified = format!("{commit}-modified");
    let none = repository.version();
    assert!(none.starts_with("service 7.8.9 (unknown commit)\n"), "{none}");
    for (given, is_modified) in [(commit, "no"), (&modified, "yes")] {
        let given = [("SOURCE_COMMIT", given), ("SOURCE_DATE_EPOCH", "951782400")];
        for profile in [&["--release"][..], &[]] {
            let version = repository.version_with(profile, &given);
            assert!(version.contains(" 2000-02-29)\n"), "{version}");
            let fields = fields(&version);
            assert_eq!((fields["commit"], fields["modified"]), (commit, is_modified), "{version}");
        }
    }
    // An image is built with this while it is not given.
    assert_eq!(repository.version_with(&["--release"], &[("SOURCE_COMMIT", "")]), none);
    for (name, wrong) in [("SOURCE_COMMIT", "main"), ("SOURCE_DATE_EPOCH", "today")] {
        let refused = repository.cargo(&["build", "--release"], &[(name, wrong)]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(&format!("{name} must be")), "{said}");
    }

    let commit = repository.commit();
    let unpacked = Repository { folder: TempDir::new().unwrap() };
    let archive = unpacked.path("archive.tar");
    repository.git(&["archive", "--output", archive.to_str().unwrap(), "HEAD"]);
    printed(&unpacked.command("tar", &["xf", "archive.tar"]).output().unwrap());
    // The repository around it is another one.
    unpacked.write("others", "");
    unpacked.git(&["init", "--quiet"]);
    unpacked.git(&["add", "others"]);
    unpacked.git(&["commit", "--quiet", "--message", "others"]);
    let version = unpacked.version();
    assert!(version.contains(&format!("({} 2024-02-29)", &commit[..12])), "{version}");
}
