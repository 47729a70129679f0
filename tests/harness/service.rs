//! The service's own programs as processes, as an operator runs them.
//!
//! They are the binaries that the run has built next to the tests. A program logs to a file in
//! its own folder; a test that fails shows the end of it.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    api_description::{self, Exchange},
    eventually,
    ports::{Port, free_port},
    process::{Output, Process, log_tail},
};

/// Deadline for a program to start and to stop.
const DEADLINE: Duration = Duration::from_secs(60);
/// Deadline of one command of `pushctl`; the longest one imports a million devices.
const TOOL_DEADLINE: Duration = Duration::from_secs(300);

/// Returns where a program of this workspace was built.
pub fn built(program: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the path of this program");
    // target/debug/deps/test-123 or target/release/bench → target/…/program
    let mut folders = own.ancestors().skip(1).skip_while(|folder| folder.ends_with("deps"));
    let file = folders.next().expect("a target folder").join(program);
    assert!(file.is_file(), "{} is not built: run the tests with ./tests/run", file.display());
    file
}

/// A limit of open files that a program is started with.
#[derive(Debug, Clone, Copy)]
pub enum OpenFiles {
    /// The soft limit and the hard one, so that the program cannot raise it.
    Fixed(u32),
    /// The soft limit alone, which the program may raise to the hard limit of this process.
    Soft(u32),
}

impl OpenFiles {
    /// A shell that sets the limit and becomes the program.
    fn command(self, program: &Path) -> Command {
        let (flag, limit) = match self {
            Self::Fixed(limit) => ("-n", limit),
            Self::Soft(limit) => ("-Sn", limit),
        };
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", r#"ulimit "$0" "$1" && shift && exec "$@""#, flag, &limit.to_string()]);
        shell.arg(program);
        shell
    }
}

/// Returns true for a `standalone` that would serve the admin API at its default address, which is one for all.
fn is_standalone_without_admin(flags: &[String]) -> bool {
    let is_given = flags.iter().any(|flag| flag.starts_with("--admin-listen"));
    flags.iter().any(|flag| flag == "standalone") && !is_given
}

/// A running program of the service. Killed when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    flags: Vec<String>,
    /// Its environment variables, besides those of this process.
    environment: Vec<(String, String)>,
    /// Its limit of open files, if not that of this process.
    open_files: Option<OpenFiles>,
    process: Process,
    folder: TempDir,
    ops: Port,
}

impl Program {
    /// Starts a program with these flags; `--ops-listen` is added.
    pub fn start(name: &str, flags: &[&str]) -> Self {
        Self::start_limited(name, flags, None)
    }

    /// Starts a program with this limit of open files, if one is given, and waits until it is ready.
    pub async fn start_with_open_files(
        name: &str,
        flags: &[&str],
        open_files: Option<OpenFiles>,
    ) -> Self {
        let mut program = Self::start_limited(name, flags, open_files);
        program.wait_ready().await;
        program
    }

    fn start_limited(name: &str, flags: &[&str], open_files: Option<OpenFiles>) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let ops = free_port().expect("a free port");
        let mut flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        flags.extend(["--ops-listen".to_owned(), ops.address()]);
        if is_standalone_without_admin(&flags) {
            flags.push("--admin-listen=off".to_owned());
        }
        let process = spawn(name, &flags, &[], open_files, folder.path());
        let (name, environment) = (name.to_owned(), Vec::new());
        Self { name, flags, environment, open_files, process, folder, ops }
    }

    /// Kills it if it runs, and starts it again with the same flags. Its log goes on.
    pub fn restart(&mut self) {
        self.process.kill();
        let Self { name, flags, environment, open_files, folder, .. } = self;
        self.process = spawn(name, flags, environment, *open_files, folder.path());
    }

    /// Sets its environment variables, from its next start on.
    pub fn set_environment(&mut self, environment: Vec<(String, String)>) {
        self.environment = environment;
    }

    /// Checks that `/readyz` answers 200.
    ///
    /// # Errors
    /// The other answer, with the end of the log.
    pub async fn is_ready(&self) -> Result<(), String> {
        match get(&format!("http://{}/readyz", self.ops.address())).await {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}; log: {}", log_tail(&self.log_file()))),
        }
    }

    /// Returns how it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended().ok().flatten()
    }

    /// Starts a program and waits until it is ready.
    pub async fn start_ready(name: &str, flags: &[&str]) -> Self {
        Self::start_with_open_files(name, flags, None).await
    }

    /// Waits until `/readyz` answers 200.
    pub async fn wait_ready(&mut self) {
        eventually(&format!("{} is ready", self.name), DEADLINE, async || {
            if let Some(status) = self.ended() {
                panic!("{} ended with {status}: {}", self.name, self.log());
            }
            self.is_ready().await
        })
        .await;
    }

    /// Everything it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The address of its operations listener.
    pub fn ops_address(&self) -> String {
        self.ops.address()
    }

    /// All its metrics, as it publishes them.
    pub async fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.ops.address());
        let (status, text) = get(&url).await.expect("metrics");
        assert_eq!(status, 200, "{text}");
        text
    }

    /// The value of a metric, by its full name and labels; 0 if it was not counted yet.
    pub async fn metric(&self, name_and_labels: &str) -> f64 {
        let text = self.metrics().await;
        let value = text.lines().find_map(|l| l.strip_prefix(name_and_labels)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The process, to freeze or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Tells it to stop and waits for its end.
    pub async fn stop(self) -> Stopped {
        self.stop_by(Signal::TERM).await
    }

    /// Sends it this signal and waits for its end.
    pub async fn stop_by(mut self, signal: Signal) -> Stopped {
        self.process.signal_all(signal);
        let status = eventually(&format!("{} has stopped", self.name), DEADLINE, async || {
            self.process.ended().ok().flatten().ok_or_else(|| self.log())
        })
        .await;
        Stopped { status, log: self.log() }
    }
}

/// A program that was told to stop, and did.
#[derive(Debug)]
pub struct Stopped {
    status: ExitStatus,
    /// Everything it logged.
    pub log: String,
}

impl Stopped {
    /// Returns true if it exited with success.
    pub fn success(&self) -> bool {
        self.status.success()
    }
}

fn spawn(
    name: &str,
    flags: &[String],
    more: &[(String, String)],
    open_files: Option<OpenFiles>,
    folder: &Path,
) -> Process {
    let mut command = match open_files {
        None => Command::new(built(name)),
        Some(limit) => limit.command(&built(name)),
    };
    command.args(flags).envs(more.iter().cloned()).current_dir(folder);
    Process::spawn(&command, Output::Log(&folder.join("log")), Some(folder))
        .expect("the program starts")
}

/// A test that fails shows the ends of its programs' logs.
impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of {} ends with:\n{}\n", self.name, log_tail(&self.log_file()));
        }
    }
}

/// Runs `pushctl` to its end, and returns its standard output.
pub async fn pushctl(flags: &[&str]) -> String {
    let output = pushctl_output(flags).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "pushctl {flags:?}: {}: {error}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Runs `pushctl` to its end.
pub async fn pushctl_output(flags: &[&str]) -> std::process::Output {
    pushctl_output_with(flags, &[]).await
}

/// As [`pushctl_output`], with these variables in its environment.
pub async fn pushctl_output_with(
    flags: &[&str],
    variables: &[(&str, &str)],
) -> std::process::Output {
    let mut command = tokio::process::Command::new(built("pushctl"));
    command.args(flags).envs(variables.iter().copied());
    command.stdin(Stdio::null()).kill_on_drop(true);
    tokio::time::timeout(TOOL_DEADLINE, command.output()).await.expect("in time").expect("it runs")
}

/// Status and body of one GET.
async fn get(url: &str) -> io::Result<(u16, String)> {
    request("GET", url, &[], "").await
}

/// One HTTP request; returns status and body of its answer. Those to `ingest` and to operations
/// listeners are held against the description of the API.
pub async fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<(u16, String)> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(20)))
        .build()
        .into();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.to_owned()).map_err(io::Error::other)?;
    let path = request.uri().path().to_owned();
    let content_type = request.headers().get("content-type");
    let content_type = content_type.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (status, headers, text) = tokio::task::spawn_blocking(move || {
        let mut answer = agent.run(request).map_err(io::Error::other)?;
        let text = answer.body_mut().read_to_string().map_err(io::Error::other)?;
        let headers = answer.headers().iter().map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        io::Result::Ok((answer.status().as_u16(), headers.collect::<Vec<_>>(), text))
    })
    .await
    .map_err(io::Error::other)??;
    if path.starts_with("/v1/") || api_description::has_path(&path) {
        api_description::check(&Exchange {
            method,
            path: &path,
            content_type: content_type.as_deref(),
            body: Some(body.as_bytes()),
            status,
            headers: &headers,
            answer: &text,
        });
    }
    Ok((status, text))
}
