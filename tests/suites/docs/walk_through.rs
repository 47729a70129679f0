//! The first push, of the README and of the tutorial, run as it is written: only addresses are
//! replaced by free ones. And the file for a secret that the tutorial and deploy/README.md make.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command, time::Duration};

use push_tests::{
    eventually, free_port,
    process::{Output, Process},
    service::built,
};
use tempfile::TempDir;

use crate::docs::pages::page;

const DEADLINE: Duration = Duration::from_secs(60);

/// The umask of most users: others may read a new file, unless the commands forbid it.
const USUAL: &str = "umask 022\n";

/// Returns the code block of a page behind the comment `<!-- run by tests/suites/docs: NAME -->`.
fn block(of: &str, name: &str) -> String {
    let text = page(of).text;
    let comment = format!("<!-- run by tests/suites/docs: {name} -->\n```sh\n");
    let (_, rest) = text.split_once(&comment).expect("the block");
    rest.split_once("```").expect("its end").0.to_owned()
}

/// A directory with terminals in it, and the addresses of the service that one of them runs.
pub(crate) struct Desk {
    pub(crate) folder: TempDir,
    pub(crate) http: String,
    mqtt: String,
    ops: String,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let [http, mqtt, ops] = [(); 3].map(|()| free_port().expect("a free port").address());
        Self { folder: TempDir::new().expect("a folder"), http, mqtt, ops }
    }

    /// Runs a script in a terminal, whose output goes to the file NAME.
    pub(crate) fn terminal(&self, name: &str, script: &str) -> Process {
        let programs = built("pushctl").parent().expect("a folder").to_owned();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("PATH"));
        let script = USUAL.to_owned() + &script.replace("127.0.0.1:8080", &self.http);
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &script]).current_dir(self.folder.path());
        command.env("PATH", path).env("PUSH_LISTEN", &self.http).env("PUSH_OPS_LISTEN", &self.ops);
        command.env("PUSH_MQTT_LISTEN", &self.mqtt).env("PUSH_ADMIN_LISTEN", "127.0.0.1:0");
        command.env("PUSH_MQTT_URL", format!("mqtt://{}", self.mqtt));
        command.env("PUSH_SERVER", format!("http://{}", self.http));
        Process::spawn(&command, Output::Log(&self.folder.path().join(name)), None).expect("bash")
    }

    fn shown(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// Waits until a terminal shows all of these texts, and returns what it shows.
    pub(crate) async fn shows(&self, name: &str, texts: &[&str]) -> String {
        eventually(&format!("{name} shows {texts:?}"), DEADLINE, async || {
            let shown = self.shown(name);
            if texts.iter().all(|text| shown.contains(text)) { Ok(shown) } else { Err(shown) }
        })
        .await
    }

    /// Runs a script to its end, and returns what it shows.
    pub(crate) async fn run(&self, name: &str, script: &str) -> String {
        let mut process = self.terminal(name, script);
        let status = eventually(&format!("{name} ends"), DEADLINE, async || {
            process.ended().expect("a status").ok_or_else(|| self.shown(name))
        })
        .await;
        assert!(status.success(), "{name}: {}", self.shown(name));
        self.shown(name)
    }

    /// Waits until a terminal shows a text so many times, and returns what it shows.
    async fn shows_times(&self, name: &str, text: &str, times: usize) -> String {
        eventually(&format!("{name} shows {text:?} {times} times"), DEADLINE, async || {
            let shown = self.shown(name);
            if shown.matches(text).count() == times { Ok(shown) } else { Err(shown) }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_push_of_the_tutorial_works_as_it_is_written() {
    const TUTORIAL: &str = "docs/tutorials/first-push.md";
    let desk = Desk::new();
    let _service = desk.terminal("service", &block(TUTORIAL, "service"));
    desk.shows("service", &["ready on http://"]).await;
    let _device = desk.terminal("device", &block(TUTORIAL, "device"));
    desk.shows("device", &["\"status\":200", "phone-1 listens on"]).await;
    assert_is_private(&desk.folder.path().join("news.secret"));
    let sent = desk.run("push", &block(TUTORIAL, "push")).await;
    assert!(sent.contains("message_id") && sent.contains("accepted  "), "{sent}");
    let received = desk.shows_times("device", "A targeted push", 2).await;
    assert!(received.contains("你好"), "{received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_what_the_readme_says_and_takes_its_push() {
    let desk = Desk::new();
    let _service = desk.terminal("demo", "exec pushctl standalone --demo");
    desk.shows("demo", &["Now you"]).await;
    let readme = page("README.md").text;
    let (_, rest) = readme.split_once("```\nOne push").expect("the picture of the demo");
    let (picture, _) = rest.split_once("```").expect("its end");
    let shown = desk.shown("demo");
    assert!(shown.contains(picture.trim()), "the README shows another demo than\n{shown}");
    let sent = desk.run("push", &block("README.md", "push")).await;
    assert!(sent.contains("message_id"), "{sent}");
    desk.shows_times("demo", "Hello", 1 + 6).await;
}

fn assert_is_private(file: &Path) {
    let mode = fs::metadata(file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}

/// Makes a `pushctl` in the working directory that answers as the true one.
const TOOL: &str = r#"cat > pushctl <<'END'
#!/bin/sh
echo '{"app":"news","secret":"5ec2e7"}'
END
chmod 700 pushctl
"#;

#[test]
fn the_secret_that_the_page_of_the_compose_stack_writes_is_for_its_owner_only() {
    let page = page("deploy/README.md").text;
    let mut blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.contains("> news.secret\n")).expect("the block");
    // What follows needs the stack.
    let (commands, _) = block.split_once("> news.secret\n").expect("the command");
    let script = format!("{TOOL}{USUAL}{commands}> news.secret\n");
    let folder = TempDir::new().expect("a folder");
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &script]).current_dir(folder.path());
    assert!(bash.status().expect("bash").success());
    let secret = folder.path().join("news.secret");
    assert_eq!(fs::read_to_string(&secret).expect("the secret"), "5ec2e7\n");
    assert_is_private(&secret);
}
