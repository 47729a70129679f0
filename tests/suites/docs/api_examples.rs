//! The examples of docs/reference/http-api.md in each of its languages, run one after the other as they
//! are written.

use push_tests::process::installed;

use crate::docs::{pages::page, walk_through::Desk};

const PAGE: &str = "docs/reference/http-api.md";

/// Returns all code blocks of the page in a language, as one script.
fn examples(language: &str) -> String {
    let text = page(PAGE).text;
    let fence = format!("\n```{language}\n");
    let blocks =
        text.split(&fence).skip(1).map(|rest| rest.split_once("\n```").expect("its end").0);
    let blocks: Vec<&str> = blocks.collect();
    assert!(blocks.len() >= 4, "{PAGE} has {} blocks of {language}", blocks.len());
    blocks.join("\n") + "\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_http_api_work_in_each_language() {
    let desk = Desk::new();
    let _service = desk.terminal("service", "exec pushctl standalone");
    desk.shows("service", &["ready on http://"]).await;
    let create =
        r#"pushctl app create news --json | sed 's/.*"secret":"\([^"]*\)".*/\1/' > news.secret"#;
    desk.run("create", create).await;

    let shell = desk.run("shell", &examples("sh")).await;
    // The second line of the changes of many devices names one that is not registered.
    assert_eq!(shell.matches("\"status\":200").count(), 8, "{shell}");

    let settings = "export SERVER=http://127.0.0.1:8080 SECRET=$(cat news.secret); ";
    for (program, language, file) in
        [("python3", "python", "examples.py"), ("node", "ts", "examples.mjs")]
    {
        // Node is on no list of what the tests need; continuous integration has it.
        if installed(program).is_none() {
            continue;
        }
        std::fs::write(desk.folder.path().join(file), examples(language)).expect("a file");
        let shown = desk.run(program, &format!("{settings}exec {program} {file}")).await;
        // The push, the registration and the recall print a line each.
        assert_eq!(shown.lines().count(), 3, "{program}: {shown}");
    }
}
