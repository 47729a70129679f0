//! `pushctl doctor`: prints what the checks of a deployment find.
//!
//! - `args`, `listeners`: the settings of the other programs, under their names

mod args;
mod listeners;

use std::{path::PathBuf, sync::Arc};

use anyhow::bail;
use push_boot::engines::EngineSettings;
use push_credentials::SealFile;
use push_operator::{
    app::trial::Providers,
    doctor::{Deployment, Trials, examine},
};
use push_store::{Finding, Level};

pub use self::args::DoctorArgs;
use self::args::DoctorSettings;
use crate::output::{Output, Table};

/// The settings of this program that `doctor` looks at.
#[derive(Debug)]
pub(crate) struct Installation<'a> {
    pub(crate) engines: &'a EngineSettings,
    pub(crate) program: &'a str,
    pub(crate) device_keys: PathBuf,
    pub(crate) seal_keys: PathBuf,
    pub(crate) data_dir: PathBuf,
    /// The files of passwords, each with its flag.
    pub(crate) secret_files: Vec<(String, PathBuf)>,
    /// The keys that seal accounts, if there are any.
    pub(crate) seal: anyhow::Result<Option<Arc<SealFile>>>,
}

/// Runs every check, and prints the findings.
///
/// # Errors
/// If any finding is an error, or a setting is wrong.
pub(crate) async fn run(
    args: DoctorArgs,
    installation: Installation<'_>,
    out: Output,
) -> anyhow::Result<()> {
    let DoctorSettings { mqtt, server, management, ops, mut secret_files, listeners, providers } =
        args.check()?;
    let Installation {
        engines,
        program,
        device_keys,
        seal_keys,
        data_dir,
        secret_files: mut files,
        seal,
    } = installation;
    let trials = |seal| Ok(Trials { seal, providers: Providers::open(providers)? });
    let trials = seal.and_then(|seal| seal.map(trials).transpose());
    files.append(&mut secret_files);
    let findings = examine(Deployment {
        engines,
        program,
        device_keys,
        seal_keys,
        data_dir,
        secret_files: files,
        mqtt,
        trials,
        server,
        management,
        ops,
        listeners,
    });
    print(&findings.await, out)
}

fn print(findings: &[Finding], out: Output) -> anyhow::Result<()> {
    let mut table = Table::new(&["", "WHAT", "FOUND"]).wrapping();
    for finding in findings {
        let mark = match finding.level {
            Level::Ok => "ok",
            Level::Skipped => "-",
            Level::Warning => "WARN",
            Level::Error => "ERROR",
        };
        let found = match finding.remedy() {
            Some(remedy) => format!("{}; {remedy}", finding.detail),
            None => finding.detail.clone(),
        };
        table.row([mark.to_owned(), finding.subject.clone(), found]);
    }
    out.result(table, &findings)?;
    let count = |of: Level| findings.iter().filter(|finding| finding.level == of).count();
    let errors = count(Level::Error);
    if errors > 0 {
        bail!("{errors} of {} checks failed", findings.len() - count(Level::Skipped));
    }
    Ok(())
}
