//! `--config`: settings from a file, under the flags and the environment.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use push_tests::{
    amqp_url, free_port, namespace, redis_url,
    service::{Program, pushctl_output_with, request},
};
use tempfile::TempDir;

/// A folder with a file of settings.
struct Config {
    _folder: TempDir,
    file: PathBuf,
}

impl Config {
    fn new(text: &str, mode: u32) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("push.toml");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        Self { _folder: folder, file }
    }

    fn path(&self) -> &str {
        self.file.to_str().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_takes_its_settings_from_a_file_and_a_flag_goes_before_them() {
    let [listen, other] = [(); 2].map(|()| free_port().unwrap().address());
    let (amqp, redis, namespace) = (amqp_url(), redis_url(), namespace());
    let text = format!(
        "listen = \"{listen}\"\nqueue-url = \"{amqp}\"\nindex-url = \"{redis}\"\n\
         namespace = \"{namespace}\"\ntune = \"max-header=1KiB\"\nhttp-in-clear = true\n"
    );
    let config = Config::new(&text, 0o600);
    let answers = async |address: &str| {
        let head = [("x-long", &*"x".repeat(2_000))];
        request("GET", &format!("http://{address}/nothing"), &head, "").await.map(|(code, _)| code)
    };
    let ingest = Program::start_ready("ingest", &["--config", config.path()]).await;
    assert_eq!(answers(&listen).await.unwrap(), 431, "{}", ingest.log());
    assert!(!ingest.log().contains("warning: "), "{}", ingest.log());
    drop(ingest);

    // The environment overrides the file, and a flag overrides both.
    let mut ingest = Program::start_ready("ingest", &["--config", config.path()]).await;
    ingest.set_environment(vec![
        ("PUSH_TUNE".to_owned(), "max-header=4KiB".to_owned()),
        ("PUSH_LISTEN".to_owned(), other.clone()),
    ]);
    ingest.restart();
    ingest.wait_ready().await;
    assert_eq!(answers(&other).await.unwrap(), 404, "{}", ingest.log());
    drop(ingest);
    let flags = ["--config", config.path(), "--tune", "max-header=8KiB", "--listen", &other];
    let ingest = Program::start_ready("ingest", &flags).await;
    assert_eq!(answers(&other).await.unwrap(), 404, "{}", ingest.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_pushctl_has_settings_of_all_its_commands_and_warns_if_others_can_read_a_password()
 {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let text = format!(
        "data-dir = \"{}\"\nmqtt-max-connections = 100\nmqtt-url = \"mqtt://u:hunter2@h\"\n",
        data.display()
    );
    let config = Config::new(&text, 0o644);
    let environment = [("PUSH_CONFIG", config.path())];
    let output = pushctl_output_with(&["app", "create", "news"], &environment).await;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    assert!(data.join("index.sqlite3").is_file(), "the data directory is that of the file");
    assert!(errors.contains("mqtt-url holds a password and other users can read"), "{errors}");
    assert!(!errors.contains("hunter2"), "{errors}");
    fs::set_permissions(&config.file, fs::Permissions::from_mode(0o600)).unwrap();
    let output = pushctl_output_with(&["app", "list"], &environment).await;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
