//! Dependencies have the licences and the sources that `deny.toml` allows. cargo-deny checks the same,
//! and advisories; this test needs neither the tool nor a network, so it runs with all others.

use std::{collections::BTreeSet, process::Command};

use serde::Deserialize;
use spdx::{Expression, ParseMode};

use crate::docs::pages::root;

#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
struct Sources {
    #[serde(rename = "allow-registry")]
    registries: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for the crates of this repository.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

fn rules() -> Rules {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    toml::from_str(&text).expect("the rules")
}

fn packages() -> Vec<Package> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--all-features"];
    let output = Command::new("cargo").args(arguments).current_dir(root()).output();
    let output = output.expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Metadata>(&output.stdout).expect("the metadata").packages
}

fn judge(package: &Package, rules: &Rules) -> Vec<String> {
    let mut wrong = Vec::new();
    let license = package.license.as_deref().unwrap_or_default();
    // Older crates write "MIT/Apache-2.0".
    match Expression::parse_mode(license, ParseMode::LAX) {
        Ok(license) => {
            if !license.evaluate(|wanted| rules.licenses.allow.contains(&wanted.to_string())) {
                wrong.push(format!("its licence {license} is not allowed"));
            }
        }
        Err(error) => wrong.push(format!("its licence {license:?} is not known: {error}")),
    }
    if let Some(source) = &package.source {
        let allowed = rules.sources.registries.iter();
        if !allowed.map(|url| format!("registry+{url}")).any(|allowed| allowed == *source) {
            wrong.push(format!("its source {source} is not allowed"));
        }
    } else {
        let any = package.dependencies.iter().filter(|d| d.req == "*" && d.path.is_none());
        wrong.extend(any.map(|dependency| format!("any version of {}", dependency.name)));
    }
    let banned = rules.bans.deny.iter().filter(|banned| banned.name == package.name);
    wrong.extend(banned.map(|banned| format!("it is banned: {}", banned.reason)));
    wrong
}

#[test]
fn every_dependency_has_a_licence_and_a_source_that_are_allowed() {
    let (rules, packages) = (rules(), packages());
    assert!(packages.len() > 100, "only {} packages", packages.len());
    let mut wrong = Vec::new();
    for package in &packages {
        let name = format!("{} {}", package.name, package.version);
        wrong.extend(judge(package, &rules).into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(wrong.is_empty(), "see deny.toml: {wrong:#?}");
}
