//! Devices that a transport reports as gone: they are removed and listed, unless so many of the app's
//! devices would go that something else must be wrong.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use push_fanout_worker::{PlanLimits, RunLimits, WorkerSettings};
use push_index::{Devices as _, GoneDevices as _};
use push_model::{
    device::{Target, TransportKind},
    gone::GoneLimit,
    ledger::{Entry, FailReason},
    time::UnixMillis,
};
use push_transports::{Outcome, Outgoing, Sending, Transport};

use crate::service::{DEADLINE, Service, eventually};

/// A provider that reports the devices whose token is `gone`, and refuses those whose token is `refused`.
#[derive(Debug)]
struct Provider;

#[async_trait]
impl Transport for Provider {
    async fn deliver(&self, _: &Outgoing, targets: &[Target], _: &Sending) -> Vec<Outcome> {
        let answer = |target: &Target| match target.token.as_deref() {
            Some("gone") => Outcome::Gone { since: None, code: "UNREGISTERED" },
            Some("refused") => Outcome::Failed(FailReason::Refused),
            _ => Outcome::Sent,
        };
        targets.iter().map(answer).collect()
    }

    async fn ready(&self) -> bool {
        true
    }

    fn longest_silence(&self) -> Duration {
        Duration::ZERO
    }

    async fn close(&self) {}
}

/// Starts a worker for an app with so many devices of each token.
async fn start(devices: &[(&'static str, usize)], gone_limit: GoneLimit) -> Service {
    let settings = WorkerSettings::default();
    let settings = WorkerSettings {
        run: RunLimits { batch: 50, ..settings.run },
        plan: PlanLimits { partitions: 1, ..settings.plan },
        gone_limit,
        ..settings
    };
    let of_token = |(token, count): &(&'static str, usize)| {
        let token = *token;
        (0..*count).map(move |n| (format!("{token}{n:05}"), Some(token)))
    };
    let devices = devices.iter().flat_map(of_token);
    Service::start(TransportKind::Fcm, Arc::new(Provider), None, devices, settings).await
}

impl Service {
    /// Sends a broadcast, and returns how many devices failed as gone.
    async fn broadcast(&self) -> u64 {
        let id = self.publish().await;
        let entry = self.entry(&id, Entry::is_closed).await;
        entry.outcomes.failed.get(&FailReason::Gone).copied().unwrap_or(0)
    }

    /// Waits until a number of devices is left.
    async fn are_left(&self, devices: u64) {
        eventually("the gone devices are removed", async || {
            let left = self.index.count_devices(&self.app).await.unwrap();
            if left == devices { Ok(()) } else { Err(format!("{left} are left")) }
        })
        .await;
    }

    /// Waits until the metrics have these lines.
    async fn shows(&self, lines: &[&str]) {
        eventually(&format!("the metrics have {lines:?}"), async || {
            let mut registry = prometheus_client::registry::Registry::default();
            self.metrics.register(&mut registry);
            let mut shown = String::new();
            prometheus_client::encoding::text::encode(&mut shown, &registry).unwrap();
            if lines.iter().all(|line| shown.contains(line)) { Ok(()) } else { Err(shown) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_are_gone_are_removed_and_listed_and_those_that_are_refused_are_not() {
    let service = start(&[("gone", 90), ("refused", 200), ("ok", 10)], GoneLimit::default()).await;
    assert_eq!(service.broadcast().await, 90);
    service.are_left(210).await;
    let since = UnixMillis::now().minus(DEADLINE);
    let page = service.index.removed_devices(&service.app, since, 0, 1000).await.unwrap();
    assert_eq!(page.devices.len(), 90);
    assert!(page.devices.iter().all(|device| device.client_id.as_str().starts_with("gone")));
    service
        .shows(&[
            r#"push_worker_gone_devices_total{action="removed"} 90"#,
            r#"push_worker_gone_devices_total{action="kept"} 0"#,
            "push_worker_removals_stopped_apps 0",
        ])
        .await;
    assert_eq!(service.broadcast().await, 0);
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removals_stop_before_an_app_loses_more_devices_than_its_limit_and_go_on_after_a_rest() {
    let limit = GoneLimit {
        percent: 10,
        least: 100,
        window: Duration::from_secs(2),
        rest: Duration::from_secs(6),
    };
    let service = start(&[("gone", 400), ("ok", 600)], limit).await;
    assert_eq!(service.broadcast().await, 400, "devices that are kept fail all the same");
    // Batches of 50 devices: the first or the second one that exceeds the limit is kept, with all later ones.
    service.shows(&["push_worker_removals_stopped_apps 1"]).await;
    let left = service.index.count_devices(&service.app).await.unwrap();
    assert!((900..1000).contains(&left), "{left} devices are left");
    let stopped = service.index.removals_stopped_until(&service.app).await.unwrap();
    assert!(stopped.is_some_and(|until| until > UnixMillis::now()), "{stopped:?}");
    assert_eq!(service.broadcast().await, left - 600);
    assert_eq!(service.index.count_devices(&service.app).await.unwrap(), left);
    service.shows(&["push_worker_removals_stopped_apps 0"]).await;
    // The rest is over, so further ones are removed, up to the limit again.
    assert_eq!(service.broadcast().await, left - 600);
    service.shows(&["push_worker_removals_stopped_apps 1"]).await;
    let fewer = service.index.count_devices(&service.app).await.unwrap();
    assert!(fewer < left && left - fewer < 100, "{fewer} of {left} devices are left");
    service.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_100_percent_removes_all_devices_that_are_gone() {
    let limit = GoneLimit { percent: 100, ..GoneLimit::default() };
    let service = start(&[("gone", 300), ("ok", 5)], limit).await;
    let stopped = UnixMillis::now().plus_seconds(600);
    assert!(service.index.stop_removals(&service.app, None, stopped).await.unwrap());
    assert_eq!(service.broadcast().await, 300);
    service.are_left(5).await;
    service.end().await;
}
