//! The page of an app: its devices in figures, and its use of quotas.

use serde_json::json;

use super::{support::Console, visitor::Visitor};

async fn an_app_shows_its_devices_in_figures_and_its_use_of_quotas(console: &Console) {
    console.pushctl(&["app", "create", "news", "--max-devices", "40"]).await;
    let operator = console.key("op", "operator").await;
    for number in 0..30_u8 {
        // DE five times, SG three times, twenty others once, and two devices without a country.
        let country = match number {
            0..5 => Some("DE".to_owned()),
            5..8 => Some("SG".to_owned()),
            8..28 => Some(format!("Q{}", char::from(b'A' + number - 8))),
            _ => None,
        };
        let transport = if number < 10 { "discard" } else { "mqtt" };
        let device = json!({"transport": transport, "country": country});
        let path = format!("/v1/admin/apps/news/devices/phone-{number}");
        console.send(&operator, "PUT", &path, device).await.result();
    }
    let viewer = console.key("eye", "viewer").await;
    let counts = console.get(&viewer, "/v1/admin/apps/news/device-counts").await;
    let counts = counts.result();
    assert_eq!(counts["by_transport"], json!({"mqtt": 20, "discard": 10}));
    let countries = counts["by_country"].as_array().unwrap();
    let first = json!([{"country": "DE", "devices": 5}, {"country": "SG", "devices": 3}]);
    assert_eq!((countries.len(), &json!(countries[..2])), (20, &first));
    let rest = ["devices", "other_countries", "without_country"].map(|of| &counts[of]);
    assert_eq!(rest, [&json!(30), &json!(2), &json!(2)]);
    console.get(&viewer, "/v1/admin/apps/shop/device-counts").await.refused(404);

    let visitor = Visitor::with_key(console, &viewer).await;
    let page = visitor.get("/apps/news").await.text;
    assert!(page.contains("30 of 40") && page.contains("not counted"), "{page}");
    assert!(page.contains("hx-get=\"/apps/news/device-counts\""), "{page}");
    assert!(!page.contains("By country"), "the page does not wait for the count: {page}");
    for path in ["/apps/news/device-counts", "/apps/news?counted=yes"] {
        let page = visitor.get(path).await.text;
        assert!(page.contains("aria-label=\"DE: 16.6 %\""), "{path}: {page}");
        assert!(page.contains("aria-label=\"unknown: 6.6 %\""), "{path}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_shows_its_devices_in_figures_and_its_use_of_quotas_on_rabbitmq_and_redis() {
    an_app_shows_its_devices_in_figures_and_its_use_of_quotas(&Console::scaled().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_shows_its_devices_in_figures_and_its_use_of_quotas_in_the_standalone_form() {
    an_app_shows_its_devices_in_figures_and_its_use_of_quotas(&Console::embedded().await).await;
}
