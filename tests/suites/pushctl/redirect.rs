//! A push goes where the operator says, and nowhere else.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    thread,
};

use push_tests::service::{pushctl_output, pushctl_output_with};
use tempfile::TempDir;

/// Answers every request with this, on a thread that ends with the test; returns its address.
fn serve(answer: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    address
}

/// Pushes to a server; returns its success and its output.
async fn push(server: &str, more: &[&str]) -> (bool, String, String) {
    push_with(server, more, &[]).await
}

/// As [`push`], with these variables in the environment.
async fn push_with(
    server: &str,
    more: &[&str],
    variables: &[(&str, &str)],
) -> (bool, String, String) {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (secret, body) = (file("secret", &"0a".repeat(32)), file("push", "{}\n"));
    let command = ["push", "news", "--secret-file", &secret, "--server", server, &body];
    let output = pushctl_output_with(&[&command[..], more].concat(), variables).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn a_push_goes_to_its_server_also_if_the_environment_names_a_proxy() {
    let ok = "{\"status\":200,\"message\":\"OK\",\"result\":{\"message_id\":\"x\"}}";
    let head = format!("HTTP/1.1 200 X\r\nconnection: close\r\ncontent-length: {}\r\n", ok.len());
    let server = serve(format!("{head}\r\n{ok}"));
    let proxy = serve("HTTP/1.1 502 X\r\ncontent-length: 0\r\n\r\n".to_owned());
    let proxy = format!("http://{proxy}");
    let proxy = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"].map(|name| (name, &*proxy));
    let (ok, out, err) = push_with(&format!("http://{server}"), &[], &proxy).await;
    assert!(ok && out.contains('x'), "{out}{err}");
}

#[tokio::test]
async fn a_push_follows_no_redirect_and_says_where_it_points() {
    let ok = "{\"status\":200,\"message\":\"OK\",\"result\":{\"message_id\":\"x\"}}";
    let head =
        |status: &str, more: &str| format!("HTTP/1.1 {status} X\r\n{more}connection: close\r\n");
    let other = serve(format!("{}content-length: {}\r\n\r\n{ok}", head("200", ""), ok.len()));
    for status in ["301", "302", "303", "307", "308"] {
        let location = format!("location: http://{other}/elsewhere\r\n");
        let server = serve(format!("{}content-length: 0\r\n\r\n", head(status, &location)));
        for more in [&[][..], &["--batch"]] {
            let (ok, out, err) = push(&format!("http://{server}"), more).await;
            assert!(!ok && !out.contains("accepted  x"), "{status}: {out}{err}");
            let names_it = err.contains(&format!("http://{other}/elsewhere"));
            assert!(names_it && err.contains(status) && err.contains("--server"), "{err}");
        }
    }
}

#[tokio::test]
async fn a_secret_that_leaves_the_machine_in_clear_is_warned_of() {
    // 192.0.2.1 is reserved for documentation; nothing is sent to it, because the file is missing.
    let folder = TempDir::new().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "0a".repeat(32)).unwrap();
    let missing = folder.path().join("missing");
    for (server, warned) in
        [("http://192.0.2.1", true), ("https://192.0.2.1", false), ("http://127.0.0.1:1", false)]
    {
        let [secret, missing] = [&secret, &missing].map(|path| path.to_str().unwrap());
        let output =
            pushctl_output(&["push", "news", "--secret-file", secret, "--server", server, missing])
                .await;
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.contains("cannot read"), "{err}");
        assert_eq!(err.contains("warning: the secret goes to"), warned, "{server}: {err}");
    }
}

#[tokio::test]
async fn an_answer_of_the_server_cannot_command_the_terminal() {
    // Clears the screen, as ASCII and as one C1 character, and reverses what follows.
    let body = "{\"status\":9,\"message\":\"\\u001b[2J\u{9b}2J\u{202e}\\nerror: forged\"}";
    let head = "HTTP/1.1 403 X\r\nconnection: close\r\n";
    let server = serve(format!("{head}content-length: {}\r\n\r\n{body}", body.len()));
    for more in [&[][..], &["--batch"]] {
        let (_, out, err) = push(&format!("http://{server}"), more).await;
        let printed = [out, err].concat();
        assert!(printed.contains("[2J"), "the message is shown: {printed:?}");
        let commands = printed.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}');
        assert!(!commands && !printed.contains("\nerror: forged"), "{printed:?}");
    }
}
