//! Counting the devices that a push would target, before it is sent.

use push_tests::{
    free_port,
    service::{Program, pushctl_output_with},
};
use serde_json::{Value, json};

use crate::pushctl::support::{Ran, Store};

#[tokio::test]
async fn an_audience_is_counted_from_flags_a_push_or_a_condition() {
    let store = Store::new();
    let secret = store.run(&["app", "create", "news", "--pace", "2", "--json"]).await.json();
    let secret = store.file("secret", secret["secret"].as_str().unwrap());
    let lines = [
        json!({"client_id": "a", "country": "SG", "language": "zh", "model": "M1"}),
        json!({"client_id": "b", "country": "SG", "language": "en", "model": "M1"}),
        json!({"client_id": "c", "country": "SG", "language": "zh-CN", "transport": "discard"}),
        json!({"client_id": "d", "country": "DE"}),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let devices = store.file("devices", &lines);
    assert!(store.run(&["device", "import", "news", &devices]).await.ok);
    let data = store.dir().to_str().unwrap();
    let [http, mqtt] = [(); 2].map(|()| free_port().unwrap().address());
    let flags = ["standalone", "--data-dir", data, "--listen", &http, "--mqtt-listen", &mqtt];
    let _standalone = Program::start_ready("pushctl", &flags).await;
    let url = format!("http://{http}");
    let audience = async |arguments: &[&str]| {
        let command = ["audience", "news", "--server", &url, "--secret-file", &secret];
        let narrow = [("COLUMNS", "80")];
        let output = pushctl_output_with(&[&command[..], arguments].concat(), &narrow).await;
        Ran {
            ok: output.status.success(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    };

    let counted = audience(&["--country", "SG", "--language", "zh", "--json"]).await.json();
    let expected = json!({
        "devices": 2, "by_transport": { "mqtt": 1, "discard": 1 }, "seconds_at_pace": 1,
        "after_each_criterion": [
            { "criterion": "country", "devices": 3 }, { "criterion": "language", "devices": 2 },
        ],
    });
    assert_eq!(counted, expected);
    let condition = json!({"type": 1, "targeting": {"country": ["SG"], "language": ["zh"]}});
    let push = json!({"type": 2, "time_to_live": 60, "data": {}, "condition": condition});
    for (name, content) in [("condition.json", &condition), ("push.json", &push)] {
        let file = store.file(name, &content.to_string());
        assert_eq!(audience(&[file.as_str(), "--json"]).await.json(), expected, "{name}");
        let both = audience(&[file.as_str(), "--all"]).await;
        assert!(both.refused().contains("leave out --all, or FILE"), "{}", both.err);
    }

    let text = audience(&["--country", "SG", "--language", "zh"]).await;
    let rows = "DEVICES  OF THEM\n\
                2        in the audience\n\
                1        over mqtt\n\
                1        over discard\n\
                3        left after country\n\
                2        left after language\n\
                At the pace of the app, a push to them takes 1 s.\n";
    assert_eq!(text.out, rows);
    let named = audience(&["--to", "a,absent"]).await;
    assert!(named.out.contains("\n1        in the audience\n"), "{}", named.out);

    assert!(audience(&[]).await.refused().contains("say who gets it"));
    let misspelt = json!({"type": 1, "targeting": {"contry": ["SG"]}});
    let misspelt = store.file("misspelt.json", &misspelt.to_string());
    let refused = audience(&[misspelt.as_str()]).await;
    assert!(refused.refused().contains("refused with 21005: Message illegal: "), "{}", refused.err);
    let list = store.file("list.json", &Value::Array(Vec::new()).to_string());
    assert!(audience(&[list.as_str()]).await.refused().contains("FILE is not a JSON object"));
}
