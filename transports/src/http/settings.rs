//! The flags about providers that are reached over HTTP.

use std::{num::NonZeroU32, path::PathBuf, sync::Arc, time::Duration};

use push_boot::{
    secret::{SecretSetting, SecretText},
    settings::ConfigErrors,
    tune::{HOUR, Tuning},
};
use push_outbound::{Origin, Outbound, OutboundSettings, Owner, Permission, Proxy};
use rand::RngExt as _;

/// FCM.
const FCM: &str = "https://fcm.googleapis.com";
/// APNs, for devices with a build from the App Store.
const APNS: &str = "https://api.push.apple.com";
/// APNs, for devices with a development build.
const APNS_SANDBOX: &str = "https://api.sandbox.push.apple.com";

/// Flags about FCM, APNs, Web Push and webhooks.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "FCM, APNs, Web Push, webhooks")]
pub struct HttpArgs {
    /// Send to FCM at this URL instead of Google's; `http://` means HTTP/2 without TLS
    #[arg(long, env = "PUSH_FCM_URL", value_name = "URL", default_value = FCM)]
    fcm_url: String,
    /// Send so many messages a minute to FCM for each project, over all workers; 0 means no limit
    #[arg(long, env = "PUSH_FCM_QUOTA", value_name = "N", default_value = "600000")]
    fcm_quota: String,
    /// Send to APNs at this URL instead of Apple's; `http://` means HTTP/2 without TLS
    #[arg(long, env = "PUSH_APNS_URL", value_name = "URL")]
    apns_url: Option<String>,
    /// Let requests of tenants, which browsers' endpoints and webhooks are, also reach these networks:
    /// `10.1.0.0/16,192.0.2.7/32`
    #[arg(long, env = "PUSH_OUTBOUND_ALLOW", value_name = "NETWORKS", default_value = "")]
    outbound_allow: String,
    /// Trust also the authorities of this PEM file in requests to providers
    #[arg(long, env = "PUSH_OUTBOUND_CA", value_name = "FILE")]
    outbound_ca: Option<PathBuf>,
    /// Connect to providers through this proxy: `http://[user:password@]host:port`
    #[arg(long, env = "PUSH_OUTBOUND_PROXY", value_name = "URL")]
    outbound_proxy: Option<SecretText>,
    /// Read --outbound-proxy from this file
    #[arg(long, env = "PUSH_OUTBOUND_PROXY_FILE", value_name = "FILE")]
    outbound_proxy_file: Option<PathBuf>,
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
    /// The file of the proxy's URL, if there is one, with its flag: it may hold a password.
    pub fn secret_files(&self) -> Vec<(&'static str, PathBuf)> {
        self.outbound_proxy_file
            .iter()
            .map(|file| ("--outbound-proxy-file", file.clone()))
            .collect()
    }

    /// Checks the flags; what is wrong goes into `errors`.
    pub fn check(&self, errors: &mut ConfigErrors) -> Option<HttpSettings> {
        let origin = |url: &str| Origin::parse(url, Owner::Operator).map_err(|e| e.to_string());
        let fcm = errors.read("--fcm-url", &self.fcm_url, origin);
        let fcm_a_second = errors.read("--fcm-quota", &self.fcm_quota, a_second);
        let apns_url = self.apns_url.as_deref();
        let apns = errors.read("--apns-url", apns_url.unwrap_or(APNS), origin);
        let apns_sandbox = errors.read("--apns-url", apns_url.unwrap_or(APNS_SANDBOX), origin);
        let allow = |text: &str| Permission::parse(text).map_err(|e| e.to_string());
        let permission = errors.read("--outbound-allow", &self.outbound_allow, allow);
        let proxy = SecretSetting {
            text: self.outbound_proxy.as_ref(),
            file: self.outbound_proxy_file.as_deref(),
        };
        let parse = |url: &str| Proxy::parse(url).map_err(|e| e.to_string());
        let proxy = errors.read_secret("--outbound-proxy", proxy, parse);
        let jitter = Arc::new(|| rand::rng().random());
        let authorities = self.outbound_ca.clone();
        let (mut window, mut request, mut delivery) = defaults();
        let tuning: &mut Tuning = errors.tuning();
        tuning.count("provider-window", &mut window, 1..=100_000);
        tuning.time("provider-request-timeout", &mut request, Duration::from_millis(100)..=HOUR);
        tuning.time("provider-delivery-timeout", &mut delivery, Duration::from_secs(1)..=HOUR);
        let outbound = OutboundSettings {
            permission: permission?,
            authorities,
            proxy: proxy?,
            ..OutboundSettings::new(jitter)
        };
        Some(HttpSettings {
            fcm: fcm?,
            fcm_a_second: fcm_a_second?,
            apns: apns?,
            apns_sandbox: apns_sandbox?,
            outbound,
            window,
            request_timeout: request,
            delivery_timeout: delivery,
        })
    }
}

/// The share of a quota that is used. After a pause, up to two and a half seconds' worth of requests go out at once,
/// which the provider counts in the same minute.
const USED: f64 = 0.96;

fn a_second(text: &str) -> Result<Option<NonZeroU32>, String> {
    let a_minute: u32 = text.parse().map_err(|_| "must be a whole number".to_owned())?;
    let a_second = f64::from(a_minute) * USED / 60.0;
    Ok((a_minute > 0).then(|| NonZeroU32::new(a_second as u32).unwrap_or(NonZeroU32::MIN)))
}

/// The window, the time for a request, and the time for a delivery.
fn defaults() -> (u32, Duration, Duration) {
    (1000, Duration::from_secs(15), Duration::from_secs(60))
}

impl HttpSettings {
    pub(super) fn apns(&self, sandbox: bool) -> &Origin {
        if sandbox { &self.apns_sandbox } else { &self.apns }
    }

    /// Makes the connections' place.
    ///
    /// # Errors
    /// If the file of authorities cannot be used.
    pub fn open(&self) -> Result<Arc<Outbound>, push_tls::FileError> {
        Outbound::new(self.outbound.clone())
    }
}
