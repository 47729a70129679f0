//! The flags about providers that are reached over HTTP.

use std::{num::NonZeroU32, path::PathBuf, sync::Arc, time::Duration};

use push_boot::{
    settings,
    settings::{ConfigErrors, path},
    tune::{HOUR, Tuning},
};
use push_outbound::{Origin, Outbound, OutboundSettings, Owner, Permission, Proxy};
use push_providers::exchange::Destination;
use rand::RngExt as _;

/// FCM.
const FCM: &str = "https://fcm.googleapis.com";
/// APNs, for devices with a build from the App Store.
const APNS: &str = "https://api.push.apple.com";
/// APNs, for devices with a development build.
const APNS_SANDBOX: &str = "https://api.sandbox.push.apple.com";

settings! {
    /// Flags about FCM, APNs, Web Push and webhooks.
    pub struct HttpArgs, "FCM, APNs, Web Push, webhooks" => HttpValues {
        /// Send to FCM at this URL instead of Google's; `http://` means HTTP/2 without TLS
        fcm_url: Origin = ["URL", FCM] operators;
        /// Send so many messages a minute to FCM for each project, over all workers; 0 means no limit
        fcm_quota: Option<NonZeroU32> = ["N", "600000"] a_second;
        /// Send to APNs at this URL instead of Apple's; `http://` means HTTP/2 without TLS
        apns_url: Option<Origin> = ["URL"] operators;
        /// Let requests of tenants, which browsers' endpoints and webhooks are, also reach these networks:
        /// `10.1.0.0/16,http:192.0.2.7/32`. Those with `http:` before them are reached without TLS too
        outbound_allow: Option<Permission> = ["NETWORKS"] networks;
        /// Trust also the authorities of this PEM file in requests to providers
        outbound_ca: Option<PathBuf> = ["FILE"] path;
        /// Connect to providers through this proxy: `http://[user:password@]host:port`
        outbound_proxy or outbound_proxy_file: Option<Proxy> = ["URL"] proxy;
    }
}

fn operators(url: &str) -> Result<Origin, String> {
    Origin::parse(url, Owner::Operator).map_err(|error| error.to_string())
}

fn networks(text: &str) -> Result<Permission, String> {
    let expected =
        "must be networks such as 10.1.0.0/16 or http:fd00::/8, with commas between them";
    Permission::parse(text).map_err(|_| expected.to_owned())
}

fn proxy(url: &str) -> Result<Proxy, String> {
    Proxy::parse(url).map_err(|error| error.to_string())
}

/// Checked settings of the providers.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Where FCM is.
    pub fcm: Origin,
    /// The most messages a second to FCM for each project; none means no limit.
    pub fcm_a_second: Option<NonZeroU32>,
    /// Where APNs is.
    pub apns: Origin,
    /// Where APNs is for development builds.
    pub apns_sandbox: Origin,
    /// The connections.
    pub outbound: OutboundSettings,
    /// The most requests of one app that are under way at one provider.
    pub window: u32,
    /// The time after which a request without an answer is given up.
    pub request_timeout: Duration,
    /// The time within which a delivery ends.
    pub delivery_timeout: Duration,
}

impl HttpArgs {
    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<HttpSettings> {
        let times = HttpTuning::read(errors.tuning());
        let sandbox = errors.read("--apns-url", APNS_SANDBOX, operators);
        let production = errors.read("--apns-url", APNS, operators);
        let values = self.values(errors)?;
        let jitter = Arc::new(|| rand::rng().random());
        Some(HttpSettings {
            fcm: values.fcm_url,
            fcm_a_second: values.fcm_quota,
            apns: values.apns_url.clone().or(production)?,
            apns_sandbox: values.apns_url.or(sandbox)?,
            outbound: OutboundSettings {
                permission: values.outbound_allow.unwrap_or_default(),
                authorities: values.outbound_ca,
                proxy: values.outbound_proxy,
                ..OutboundSettings::new(jitter)
            },
            window: times.window,
            request_timeout: times.request_timeout,
            delivery_timeout: times.delivery_timeout,
        })
    }
}

/// The share of a quota that is used. After a pause, several workers together send up to two and a half seconds'
/// worth of requests more, which the provider counts in the same minute.
const USED: f64 = 0.96;

fn a_second(text: &str) -> Result<Option<NonZeroU32>, String> {
    let a_minute: u32 = text.parse().map_err(|_| "must be a whole number".to_owned())?;
    let a_second = f64::from(a_minute) * USED / 60.0;
    Ok((a_minute > 0).then(|| NonZeroU32::new(a_second as u32).unwrap_or(NonZeroU32::MIN)))
}

/// The bounds of requests that only tests and experts replace.
#[derive(Debug, Clone, Copy)]
pub struct HttpTuning {
    window: u32,
    request_timeout: Duration,
    delivery_timeout: Duration,
}

impl HttpTuning {
    /// Reads the constants that are replaced.
    pub fn read(tuning: &mut Tuning) -> Self {
        let (mut window, mut request) = (1000, Duration::from_secs(15));
        let mut delivery = Duration::from_secs(60);
        tuning.count("provider-window", &mut window, 1..=100_000);
        tuning.time("provider-request-timeout", &mut request, Duration::from_millis(100)..=HOUR);
        tuning.time("provider-delivery-timeout", &mut delivery, Duration::from_secs(1)..=HOUR);
        Self { window, request_timeout: request, delivery_timeout: delivery }
    }
}

impl HttpSettings {
    /// Returns the server of a request; `None` if its address can lead nowhere.
    pub(super) fn server(&self, to: &Destination) -> Option<Origin> {
        match to {
            Destination::Fcm => Some(self.fcm.clone()),
            Destination::Apns { sandbox: true } => Some(self.apns_sandbox.clone()),
            Destination::Apns { sandbox: false } => Some(self.apns.clone()),
            Destination::Outside(url) => Origin::parse(url, Owner::Tenant).ok(),
        }
    }

    /// Makes the connections' place.
    ///
    /// # Errors
    /// If the file of authorities cannot be used.
    pub fn open(&self) -> Result<Arc<Outbound>, push_tls::FileError> {
        Outbound::new(self.outbound.clone())
    }
}
