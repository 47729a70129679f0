//! Credentials stay with the service: in no log, and in no backup in the clear.

use push_tests::{phone_server::Reply, stack::APP};

use super::{RSA_KEY, World, apns_token, fcm_token};

#[tokio::test(flavor = "multi_thread")]
async fn no_credential_is_in_a_log_at_trace_level_or_in_a_backup() {
    let world = World::start().await;
    world.set_all().await;
    let url = format!("{}/push", world.webhook.url());
    let set = world.set("webhook", &["--url", &url, "--rotate-secret"]).await;
    let secret = set.split_whitespace().find(|word| word.starts_with("whsec_")).unwrap();
    world.add_all(5).await;
    world.fcm.answer(|device, times| match times {
        0 if device == fcm_token(1) => Reply::answer(401, ""),
        _ => Reply::taken(),
    });
    let worker = world.worker(&["--log", "trace"]).await;
    let ledger = world.broadcast().await;
    assert_eq!(ledger["sent"], 25, "{ledger}");
    let mut secrets: Vec<String> = vec![secret.to_owned(), secret["whsec_".len()..].to_owned()];
    let key = std::fs::read_to_string(world.file("key.p8")).unwrap();
    let lines = RSA_KEY.lines().chain(key.lines()).filter(|line| line.len() >= 40);
    secrets.extend(lines.map(str::to_owned));
    for server in [&world.fcm, &world.apns, &world.webpush] {
        let authorizations = server.record().authorizations;
        assert!(!authorizations.is_empty());
        let words = authorizations.iter().flat_map(|text| text.split([' ', ',', '=']));
        let is_secret = |word: &&str| word.starts_with("eyJ") || word.starts_with("access-token-");
        secrets.extend(words.filter(is_secret).map(str::to_owned));
    }
    secrets.extend([fcm_token(2), apns_token(2)]);
    let log = worker.log();
    // Nothing of ours is logged at trace level, and libraries that would log secrets there are shut out.
    assert!(log.contains("DEBUG"), "it logs more than usual");
    let backup = world.file("backup");
    world.stack.pushctl(&["app", "backup", APP, backup.to_str().unwrap()]).await;
    let backup = std::fs::read(&backup).unwrap();
    let backup = String::from_utf8_lossy(&backup);
    let public = [fcm_token(2), apns_token(2)];
    for secret in &secrets {
        assert!(!log.contains(secret.as_str()), "the log has {secret}");
        assert!(
            public.contains(secret) || !backup.contains(secret.as_str()),
            "a backup has {secret}"
        );
    }
}
