//! The README's walk-through, run as it is written: only its addresses are replaced by free ones. And
//! the file for a secret that it and deploy/README.md make.

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

/// The code block that follows the comment `<!-- run by tests/suites/docs: NAME -->`.
fn block(name: &str) -> String {
    let readme = page("README.md").text;
    let comment = format!("<!-- run by tests/suites/docs: {name} -->\n```sh\n");
    let (_, rest) = readme.split_once(&comment).expect("the block");
    rest.split_once("```").expect("its end").0.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_of_the_readme_works_as_it_is_written() {
    let folder = TempDir::new().expect("a folder");
    let [http, mqtt, ops] = [(); 3].map(|()| free_port().expect("a free port").address());
    let programs = built("pushctl").parent().expect("a folder").to_owned();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("PATH"));
    let terminal = |name: &str| {
        let script = USUAL.to_owned() + &block(name).replace("127.0.0.1:8080", &http);
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &script]).current_dir(folder.path());
        command.env("PATH", &path).env("PUSH_LISTEN", &http).env("PUSH_OPS_LISTEN", &ops);
        command.env("PUSH_MQTT_LISTEN", &mqtt).env("PUSH_MQTT_URL", format!("mqtt://{mqtt}"));
        command.env("PUSH_SERVER", format!("http://{http}"));
        Process::spawn(&command, Output::Log(&folder.path().join(name)), None).expect("bash")
    };
    let shows = async |name: &str, texts: &[&str]| {
        eventually(&format!("{name} shows {texts:?}"), DEADLINE, async || {
            let shown = fs::read_to_string(folder.path().join(name)).unwrap_or_default();
            if texts.iter().all(|text| shown.contains(text)) { Ok(shown) } else { Err(shown) }
        })
        .await
    };

    let _service = terminal("service");
    shows("service", &["ready on http://"]).await;
    let _device = terminal("device");
    shows("device", &["\"status\":200", "phone-1 listens on"]).await;
    assert_is_private(&folder.path().join("news.secret"));
    let mut push = terminal("push");
    let status = eventually("the pushes are sent", DEADLINE, async || {
        push.ended().expect("a status").ok_or_else(|| "still running".to_owned())
    })
    .await;
    let sent = shows("push", &["message_id", "accepted  "]).await;
    assert!(status.success(), "{sent}");
    let received = eventually("the device has both pushes", DEADLINE, async || {
        let shown = fs::read_to_string(folder.path().join("device")).unwrap_or_default();
        if shown.matches("A targeted push").count() == 2 { Ok(shown) } else { Err(shown) }
    })
    .await;
    assert!(received.contains("你好"), "{received}");
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
