//! Devices that share no code with the service: each is a `mosquitto_sub` with a session of its
//! own.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    eventually,
    process::{Output, Process, log_tail},
};

/// Deadline of connecting and of receiving.
const DEADLINE: Duration = Duration::from_secs(60);
/// Bytes of a device's file that are read in one piece.
const MOST_AT_ONCE: u64 = 4 << 20;

/// A device that listens. The messages that it receives are written to a file.
#[derive(Debug)]
pub struct Device {
    /// Its client id.
    pub client_id: String,
    _process: Process,
    log: PathBuf,
}

/// Devices that listen, and the folder with what they received.
#[derive(Debug)]
pub struct Devices {
    /// The devices.
    pub all: Vec<Device>,
    _folder: TempDir,
}

impl Devices {
    /// Connects devices of an app to a broker (`mqtt://host:port`), and waits until every one
    /// has subscribed.
    pub async fn listen(broker: &str, app: &str, client_ids: &[String]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let (host, port) = broker
            .trim_start_matches("mqtt://")
            .rsplit_once(':')
            .expect("a broker URL with a port");
        let start = |client_id: &String| {
            let log = folder.path().join(client_id);
            let mut command = Command::new("stdbuf");
            command.args(["-oL", "mosquitto_sub", "-d", "-V", "5", "-q", "1", "-c"]);
            command.args(["-h", host, "-p", port, "-x", "3600", "-F", "%p"]);
            command.args(["-i", &format!("{app}:{client_id}")]);
            command.args(["-t", &format!("push/{app}/{client_id}")]);
            let process = Process::spawn(&command, Output::Log(&log), None).expect("it starts");
            Device { client_id: client_id.clone(), _process: process, log }
        };
        let devices = Self { all: client_ids.iter().map(start).collect(), _folder: folder };
        for device in &devices.all {
            eventually(&format!("{} has subscribed", device.client_id), DEADLINE, async || {
                let log = std::fs::read_to_string(&device.log).unwrap_or_default();
                if log.contains("SUBACK") { Ok(()) } else { Err(log_tail(&device.log)) }
            })
            .await;
        }
        devices
    }
}

impl Device {
    /// Every payload it received so far, in order.
    pub fn received(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect()
    }

    /// Returns what it received since `offset`, which is moved on: for tests in which all of it would not
    /// fit into memory.
    pub fn received_since(&self, offset: &mut u64) -> io::Result<Vec<String>> {
        let mut log = File::open(&self.log)?;
        log.seek(SeekFrom::Start(*offset))?;
        let mut new = Vec::new();
        log.take(MOST_AT_ONCE).read_to_end(&mut new)?;
        // The last line may be incomplete yet.
        let whole = new.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        *offset += whole as u64;
        let lines = new[..whole].split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"{"));
        Ok(lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect())
    }

    /// Waits until a payload contains this text.
    pub async fn wait_for(&self, text: &str) {
        eventually(&format!("{} receives {text}", self.client_id), DEADLINE, async || {
            let received = self.received();
            if received.iter().any(|payload| payload.contains(text)) {
                Ok(())
            } else {
                Err(format!("{} payloads, none with it", received.len()))
            }
        })
        .await;
    }
}
