//! Servers, and whole runs of `test-servers`, end and leave nothing behind, however they end.

use std::{
    fs,
    path::PathBuf,
    process::{Command, ExitStatus},
};

use push_tests::{
    eventually,
    process::{
        Output, Process,
        tree::{Identity, still_running, tree_of},
    },
    run::Shared,
    servers::{Mosquitto, RabbitMq},
};
use rustix::process::Signal;

use crate::harness::DEADLINE;

/// The program under test.
const TEST_SERVERS: &str = env!("CARGO_BIN_EXE_test-servers");
/// A command that tells where its run can be asked for servers, and then waits.
const ASKABLE: &str = r#"echo "$PUSH_TEST_SERVERS" >told; mv told started; exec sleep 600"#;

#[tokio::test]
async fn a_dropped_server_is_gone_with_its_children_and_its_folder() {
    let rabbitmq = RabbitMq::start().await.unwrap();
    let mosquitto = Mosquitto::start().await.unwrap();
    let running = [tree_of(rabbitmq.id()).unwrap(), tree_of(mosquitto.id()).unwrap()].concat();
    assert!(running.len() > 4, "servers have children and guards: {running:?}");

    let folders = [rabbitmq.folder().to_owned(), mosquitto.folder().to_owned()];
    drop((rabbitmq, mosquitto));

    all_gone(&running).await;
    assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
}

#[tokio::test]
async fn test_servers_leaves_with_the_exit_code_of_its_command() {
    let mut run = Run::start("exit 7");
    assert_eq!(run.wait_until_ended().await.code(), Some(7));
    run.leaves_nothing(&[]).await;
}

#[tokio::test]
async fn a_run_starts_the_servers_that_its_tests_ask_for_and_no_other() {
    let mut run = Run::start(ASKABLE);
    let socket = run.socket().await;
    let url = || Shared::Redis.url(&socket).unwrap();
    assert_eq!(url(), url(), "it is started once");
    let running = tree_of(run.process.id()).unwrap();
    let is_running = |server: &str| running.iter().any(|process| process.command.contains(server));
    assert!(is_running("redis-server"), "{running:?}");
    assert!(!is_running("beam") && !is_running("mosquitto"), "{running:?}");

    run.process.kill();

    run.leaves_nothing(&running).await;
}

#[tokio::test]
async fn an_interrupted_run_leaves_nothing_behind() {
    let mut run = Run::start(ASKABLE);
    let running = run.start_all_servers().await;

    run.process.signal_all(Signal::INT);

    assert_eq!(run.wait_until_ended().await.code(), Some(128 + 2));
    run.leaves_nothing(&running).await;
}

/// A run of `test-servers`, with a folder for its temporary files.
struct Run {
    process: Process,
    folder: tempfile::TempDir,
}

impl Run {
    fn start(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("temporary")).unwrap();
        let mut command = Command::new(TEST_SERVERS);
        command
            .args(["--", "sh", "-c", script])
            .env("TMPDIR", folder.path().join("temporary"))
            .current_dir(folder.path());
        let process = Process::spawn(&command, Output::Inherited, None).unwrap();
        Self { process, folder }
    }

    /// Returns where the run can be asked for servers, once its command runs.
    async fn socket(&self) -> PathBuf {
        let started = self.folder.path().join("started");
        let told = eventually("the command runs", DEADLINE, async || {
            fs::read_to_string(&started).map_err(|error| error.to_string())
        });
        PathBuf::from(told.await.trim())
    }

    /// Asks for every server; returns the processes of the run.
    async fn start_all_servers(&self) -> Vec<Identity> {
        let socket = self.socket().await;
        for server in Shared::ALL {
            server.url(&socket).unwrap();
        }
        let running = tree_of(self.process.id()).unwrap();
        for part in ["redis-server", "beam", "epmd", "mosquitto", "sleep 600"] {
            let found = running.iter().any(|process| process.command.contains(part));
            assert!(found, "{part} is not in {running:?}");
        }
        running
    }

    async fn wait_until_ended(&mut self) -> ExitStatus {
        eventually("the run ends", DEADLINE, async || {
            self.process.ended().unwrap().ok_or_else(|| "still running".to_owned())
        })
        .await
    }

    /// Once the first process of the run has ended, all others end and all files are removed.
    async fn leaves_nothing(self, running: &[Identity]) {
        let Self { process, folder } = self;
        // Ends the guard of the run's first process, which belongs to this test.
        drop(process);
        all_gone(running).await;
        eventually("all temporary files are gone", DEADLINE, async || {
            let left = fs::read_dir(folder.path().join("temporary")).unwrap();
            let left: Vec<_> = left.map(|entry| entry.unwrap().path()).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}

async fn all_gone(processes: &[Identity]) {
    eventually("all processes are gone", DEADLINE, async || {
        let left = still_running(processes).unwrap();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}
